"""Names in figures of matplotlib, where they are text and never mathematics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jigsaw_opt.text import printable

__all__ = ["label", "plain_text"]


def label(name: str) -> str:
    """Return what to give matplotlib so that it draws `name`: between two dollar signs it would look for a formula."""
    return printable(name).replace("$", r"\$")


@contextmanager
def plain_text() -> Iterator[None]:
    """Draw texts as `label` expects it, and without TeX, whatever the user's settings are; twice the same in SVG."""
    import warnings

    from matplotlib import rc_context

    drawn = rc_context(
        {"text.usetex": False, "text.parse_math": True, "svg.fonttype": "none", "svg.hashsalt": "jigsaw"}
    )
    with drawn, warnings.catch_warnings():
        # A character that the font lacks is drawn as a box; nobody needs to be told for each.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield
