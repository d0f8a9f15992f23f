"""Text for people: foreign text made safe, misspelt words, and times in words.

The names in a document, a trace or a file system are others' words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

_LONGEST_WORD = 60
_UNITS = ((86_400_000_000, "days"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"), (1000, "ms"))

Tell = Callable[[str], None]
"""Takes a message for the user."""


def say_nothing(message: str) -> None:
    """Take a message, and say it to nobody."""


def printable(text: str) -> str:
    r"""Return `text` on one line as any terminal shows it: what is not visible is written as ``\n`` or ``\u202e``.

    These are control characters (escape sequences of a terminal begin with one), marks that turn the direction of
    writing, characters without a width, and bytes of a file's name that are no text.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def json_text(value: object, indent: int | None = None, allow_nan: bool = False) -> str:
    """Return `value` as JSON in which every character is visible, but for the line ends of an indented text.

    `indent`: spaces of a level; None for one line.
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=allow_nan)
    if text.isprintable():
        return text
    # Within a string no line end stands as it is, so those are the layout's.
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def html_table(facts: Mapping[str, object]) -> str:
    """Return names with what they stand for as a table that a notebook shows; neither is read as markup."""
    from html import escape

    rows = (
        f'<tr><th style="text-align: left">{escape(printable(name))}</th><td>{escape(printable(str(value)))}</td></tr>'
        for name, value in facts.items()
    )
    return f"<table>{''.join(rows)}</table>"


def counted(number: int, one: str, ending: str = "s") -> str:
    """Return a number with its noun: ``1 job``, ``1,200 jobs``; see `agreeing` for the verb."""
    return f"{number:,} {one}" if number == 1 else f"{number:,} {one}{ending}"


def agreeing(number: int, one: str = "is", several: str = "are") -> str:
    """Return the verb that goes with a number of things: ``1 job is``, ``2 jobs are``."""
    return one if number == 1 else several


def named(names: Sequence[str], most: int = 4) -> str:
    """Return names, printable; the first of them, with the number of the others, where there are many.

    `most`: how many are shown where there are at least two more.
    """
    more = len(names) - most
    shown = ", ".join(map(printable, names[:most] if more > 1 else names))
    return f"{shown} and {more:,} more" if more > 1 else shown


def readable(name: str) -> str:
    """Return the name of a file as text that can be written: question marks for bytes that are no UTF-8."""
    return name.encode(errors="replace").decode()


def similar(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that was most likely meant by a misspelt one; None where none is close."""
    import difflib

    near = difflib.get_close_matches(word[:_LONGEST_WORD], list(known), n=1)
    return near[0] if near else None


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return what may have been meant by an unknown word; empty where nothing is close."""
    near = similar(word, known)
    return "" if near is None else f"did you mean {near!r}?"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return what may have been meant by an unknown word, or else what there is."""
    known = tuple(known)
    return suggestion(word, known) or f"there are {', '.join(known) or 'none'}"


def duration(time_us: float) -> str:
    """Return a time in the greatest unit of which it has one, with four digits, as in ``12.35 s``."""
    size, unit = next((entry for entry in _UNITS if abs(time_us) >= entry[0]), (1, "µs" if time_us else "s"))
    amount = time_us / size
    return f"{amount:,.0f} {unit}" if abs(amount) >= 1000 else f"{amount:.4g} {unit}"


def called(kind: str, name: str) -> str:
    """Return a name behind its kind, which is left out where the name begins with it, as in ``job0``."""
    return name if name.casefold().startswith(kind) else f"{kind} {name}"
