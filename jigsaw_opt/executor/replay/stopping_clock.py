"""A clock without the time in which workers were saved. Needs no torch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from jigsaw_opt.executor.replay.records import BlockRecord

__all__ = ["StoppingClock"]


class StoppingClock:
    """A clock that stands still while workers are saved, for as long as the process that has saved longest so far."""

    def __init__(self, saves: Iterable[Sequence[tuple[int, int]]]) -> None:
        # By process: starts and ends, and the time spent on the first k of them.
        self._saves = [
            ([s for s, _ in own], [e for _, e in own], list(accumulate((e - s for s, e in own), initial=0)))
            for own in saves
            if own
        ]

    def moment(self, at_us: int) -> int:
        """Return a moment without what was spent on saving before it."""
        spent = 0
        for starts, ends, before in self._saves:
            begun = bisect_left(starts, at_us)
            under_way = max(0, ends[begun - 1] - at_us) if begun else 0
            spent = max(spent, before[begun] - under_way)
        return at_us - spent

    def block(self, record: BlockRecord) -> BlockRecord:
        """Return a block that lasts as long as before: its own process saved nothing meanwhile."""
        start = self.moment(record.start_us)
        return record._replace(start_us=start, end_us=start + record.end_us - record.start_us)
