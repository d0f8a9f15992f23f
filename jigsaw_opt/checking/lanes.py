"""No GPU runs two blocks at once and no link carries two transfers at once (SPEC 4.4), modulo the period."""

from __future__ import annotations

from jigsaw_opt.checking.violation import Findings

__all__ = ["Lanes"]

_Stay = tuple[int, int, int, int, int]


class Lanes:
    """What lies on each GPU or link.

    Parameters
    ----------
    kind
        What a lane is and what lies on it, for messages.
    period
        The period of a cyclic plan, or None.
    """

    def __init__(self, kind: tuple[str, str], period: int | None) -> None:
        self._kind, self._period = kind, period
        self._stays: dict[str, list[_Stay]] = {}

    def occupy(self, lane: str, start: int, end: int, job: int, iteration: int, number: int) -> None:
        """Put an interval on a lane; an empty one overlaps nothing and is left out."""
        if end > start:
            place = start if self._period is None else start % self._period
            self._stays.setdefault(lane, []).append((place, place + end - start, job, iteration, number))

    def check(self, found: Findings) -> None:
        """Report every interval that begins before an earlier one has ended."""
        for lane, stays in self._stays.items():
            stays.sort()
            latest = stays[0]
            for stay in stays[1:]:
                if stay[0] < latest[1]:
                    self._report(lane, latest, stay, found)
                if stay[1] > latest[1]:
                    latest = stay
            if self._period is not None and len(stays) > 1 and latest[1] > stays[0][0] + self._period:
                self._report(lane, latest, stays[0], found)

    def _report(self, lane: str, first: _Stay, second: _Stay, found: Findings) -> None:
        where, what = self._kind
        path = f"$.jobs[{second[2]}].iterations[{second[3]}].{what}s[{second[4]}]"
        other = f"$.jobs[{first[2]}].iterations[{first[3]}].{what}s[{first[4]}]"
        modulo = "" if self._period is None else f" modulo {self._period}"
        found.add("4.4", path, f"overlaps {other} on {where} {lane}{modulo}")
