"""HTML pages that carry their data with them."""

from __future__ import annotations

import html
import re
from importlib.resources import files

from jigsaw_opt.text import printable

__all__ = ["filled"]

_PLACE = re.compile(r"\{\{(title|data)\}\}")


def filled(template: str, title: str, data: object) -> str:
    """A page of this folder with a title and data in their places; neither is markup, whatever names are in them.

    Parameters
    ----------
    template
        Name of the file.
    title
        Of the window.
    data
        What ``JSON.parse`` gives the page.
    """
    import msgspec

    text = msgspec.json.encode(data).decode()
    # Inside a script element only "</script" and "<!--" could end the data early.
    texts = {"title": html.escape(printable(title)), "data": text.replace("<", "\\u003c")}
    page = files(__package__).joinpath(template).read_text(encoding="utf-8")
    return _PLACE.sub(lambda place: texts[place[1]], page)
