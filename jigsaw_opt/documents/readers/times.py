"""Moments and durations as logs write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import NamedTuple

_MISSING = frozenset({"", "unknown", "none", "n/a", "na", "nan", "nat", "null"})
_DURATION = re.compile(
    r"(?:(?P<days>[0-9]{1,6})(?:-| days?,? ))?(?P<hours>[0-9]{1,9}):(?P<minutes>[0-5][0-9]):"
    r"(?P<seconds>[0-5][0-9](?:\.[0-9]{1,9})?)"
)
_SLURM_TIME = re.compile(
    r"(?P<days>[0-9]{1,6})-(?P<hours>[0-9]{1,6})(?::(?P<minutes>[0-9]{1,6}))?(?::(?P<seconds>[0-9]{1,6}))?"
    r"|(?:(?P<h>[0-9]{1,6}):)?(?P<m>[0-9]{1,9})(?::(?P<s>[0-9]{1,6}))?"
)
_SINCE_1970 = re.compile(r"[0-9]{9,10}(?:\.[0-9]{1,9})?")
_ZONE_APART = re.compile(r" {1,20}(?:([+-][0-9]{2}:?[0-9]{2})|UTC|GMT)$")
"""A zone behind a space, as ``date`` and database systems write it."""
_EPOCH = datetime(1970, 1, 1)


class PointInTime(NamedTuple):
    """A point in time.

    `time_us`: microseconds since 1970, in UTC where it has a zone and else by its local clock.
    """

    time_us: int
    zoned: bool


class Zone:
    """The zone of the moments of a text: all have one or none does, or they cannot be compared."""

    def __init__(self) -> None:
        self._first: tuple[bool, str] | None = None

    @property
    def zoned(self) -> bool:
        """Whether the moments so far have a zone."""
        return self._first is not None and self._first[0]

    def problem(self, zoned: bool, where: str) -> str:
        """Return what is wrong with a moment beside the first one of the text; empty where nothing is."""
        if self._first is None:
            self._first = zoned, where
        if self._first[0] == zoned:
            return ""
        return f"has {'a' if zoned else 'no'} zone, and the time in {self._first[1]} has {'none' if zoned else 'one'}"


def is_missing(text: str) -> bool:
    """Return whether a log says that it has no value, as of a time that has not come."""
    return text.strip().lower() in _MISSING


def moment_us(text: str) -> PointInTime | None:
    """Return a date and time, with a zone or without, or seconds since 1970; None where the text is neither."""
    if _SINCE_1970.fullmatch(text):
        return PointInTime(_whole_us(Decimal(text)), True)
    try:
        moment = datetime.fromisoformat(_ZONE_APART.sub(lambda zone: zone[1] or "Z", text))
        zoned = moment.tzinfo is not None
        since = (moment.astimezone(UTC).replace(tzinfo=None) if zoned else moment) - _EPOCH
    except (ValueError, OverflowError):
        return None
    return PointInTime((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds, zoned)


def duration_us(text: str) -> int | None:
    """Return the microseconds of ``1-02:03:04``, ``1 day, 2:03:04`` or ``02:03:04.5``; None of any other text."""
    found = _DURATION.fullmatch(text)
    if found is None or (found["days"] and int(found["hours"]) >= 24):
        return None
    minutes = (int(found["days"] or 0) * 24 + int(found["hours"])) * 60 + int(found["minutes"])
    return minutes * 60_000_000 + _whole_us(Decimal(found["seconds"]))


def slurm_time_s(text: str) -> int | None:
    """Return a time of slurm.conf in seconds; None where it is none.

    It is ``minutes``, ``minutes:seconds``, ``hours:minutes:seconds``, ``days-hours``, ``days-hours:minutes`` or
    ``days-hours:minutes:seconds``.
    """
    found = _SLURM_TIME.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(found[name] or 0) for name in ("days", "hours", "minutes", "seconds"))
    if found["days"] is None:
        hours, minutes, seconds = (int(found[name] or 0) for name in ("h", "m", "s"))
        if found["h"] is not None and found["s"] is None:  # two numbers are minutes and seconds
            hours, minutes, seconds = 0, hours, minutes
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _whole_us(seconds: Decimal) -> int:
    return int((seconds * 1_000_000).to_integral_value(ROUND_HALF_UP))
