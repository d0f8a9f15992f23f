"""Values of a policy's option where they are not a short list: whole numbers, times and names of files."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from jigsaw_opt.documents.readers.times import slurm_time_s

_WHOLE = re.compile(r"[0-9]{1,10}")
_MOST_WEIGHT = 2**32 - 1
_HOURS = re.compile(r"(?P<amount>[0-9]{1,6}(?:\.[0-9]{1,6})?)(?P<unit>h|min)?")
_UNITS_US = {None: 3_600_000_000, "h": 3_600_000_000, "min": 60_000_000}


class OpenValues(tuple[str, ...]):
    """Values of an option that may have others too: those listed are the ones to compare, the default first.

    `listed`: the values that a comparison of settings tries. `kind`: what other values are, in words that follow "is".
    `fits`: whether a text is such a value.
    """

    kind: str
    _fits: Callable[[str], bool]

    def __new__(cls, listed: tuple[str, ...], kind: str, fits: Callable[[str], bool]) -> OpenValues:
        """Return the values."""
        made = super().__new__(cls, listed)
        made.kind, made._fits = kind, fits
        return made

    def __contains__(self, value: object) -> bool:
        return super().__contains__(value) or (isinstance(value, str) and self._fits(value))


def whole_numbers(*listed: str, most: int = _MOST_WEIGHT) -> OpenValues:
    """Return the whole numbers from 0 to `most`."""
    return OpenValues(
        listed, f"a whole number from 0 to {most}", lambda text: bool(_WHOLE.fullmatch(text)) and int(text) <= most
    )


def hours(*listed: str, least_us: int = 0) -> OpenValues:
    """Return the times that `hours_us` reads, from `least_us` microseconds on."""
    above = " above 0" if least_us else ""
    kind = f"a time in hours{above}, below 1000000, as in 24 or 0.5, or 30min"
    return OpenValues(listed, kind, lambda text: bool(_HOURS.fullmatch(text)) and hours_us(text) >= least_us)


def hours_us(text: str) -> int:
    """Return the microseconds of a value of `hours`.

    `text`: A number of hours, with ``h`` or without, or of minutes with ``min``.
    """
    found = _HOURS.fullmatch(text)
    assert found is not None
    return round(Fraction(found["amount"]) * _UNITS_US[found["unit"]])


def file_names() -> OpenValues:
    """Return the names of files, beside ``none`` for no file."""
    return OpenValues(("none",), "the name of a file", bool)


def slurm_times(*listed: str) -> OpenValues:
    """Return the times that `slurm_time_s` reads."""
    return OpenValues(listed, "a time as Slurm writes it, as in 7-0", lambda text: slurm_time_s(text) is not None)
