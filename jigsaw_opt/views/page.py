"""HTML pages that carry their data with them."""

from __future__ import annotations

import html
import json
import re
from importlib.resources import files

from jigsaw_opt.text import printable

_PLACE = re.compile(r"\{\{(title|data)\}\}")
_PART = re.compile(r"\{\{([\w./]+\.(?:css|js|txt))\}\}")


def template(name: str) -> str:
    """Return a page of this folder in the frame of all, with ``{{title}}`` and ``{{data}}`` where these belong.

    Files of this folder that it names, as in ``{{look.css}}``, are put in their places, so it needs no other file.
    """
    page = _text("frame.html").replace("{{page}}", _text(name))
    return _PART.sub(lambda place: _text(place[1]), page)


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def filled(name: str, title: str, data: object) -> str:
    """Return a page of this folder with a title and data in their places, both escaped."""
    text = _json(data)
    # Inside a script element only "</script" and "<!--" could end the data early.
    texts = {"title": html.escape(printable(title)), "data": text.replace("<", "\\u003c")}
    return _PLACE.sub(lambda place: texts[place[1]], template(name))


def _json(data: object) -> str:
    """Return data as JSON on one line; numbers that JSON does not have, such as infinity, become null."""
    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return _json(json.loads(json.dumps(data), parse_constant=lambda _: None))
