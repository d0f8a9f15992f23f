"""What the processes of a replay hand over, and their time without that of saves. Needs no torch.

Moments are microseconds after the begin of a run, on the clock of the first process.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import nan
from typing import Literal, NamedTuple

from jigsaw_opt.problem.measured.replay import Replay

Kind = Literal["block", "transfer", "action", "receipt"]


class RunRecord(NamedTuple):
    """A block, a worker's part in a transfer, an action of stages, or a wait for what others have sent to them.

    `what`: number of the worker or of the bucket, or what PyTorch calls the action. `level`: that of a block. `loss`:
    that of a block; of an action or a wait the mean over all micro-batches, no number where the last stage is
    elsewhere.
    """

    kind: Kind
    job: int
    iteration: int
    what: int | str
    start_us: int
    end_us: int
    level: int = 0
    loss: float = nan


@dataclass(frozen=True)
class Part:
    """The part of one process in a run.

    `records`: what was run of the workers and stages that it hosts; of stages whole steps, one behind the other.
    `origins_us`: when each pass of a finite plan began. `begin_us`: when the run began, the same for all of its
    processes. `saves`: start and end of the writing of each checkpoint, one behind the other. `stopped_us`: for how
    long the clock stood still while workers of later jobs were built.
    """

    records: list[RunRecord]
    origins_us: list[int]
    begin_us: int = 0
    saves: list[tuple[int, int]] = field(default_factory=list)
    stopped_us: int = 0


@dataclass(frozen=True)
class RankReport:
    """The report of one process.

    `parts`: what it did in each phase of its group, and behind them in the baseline. `parameters`: for each job and
    worker or slot, the digest of its parameters at the end of the plan; none after an interrupt. `done`: iterations of
    each job before this run. `notes`: what is to be told to whoever asked for the run.
    """

    parts: list[Part]
    parameters: dict[tuple[int, int], str]
    memory_bytes: int
    done: list[int]
    notes: Sequence[str] = ()


class InterruptedRunError(KeyboardInterrupt):
    """A run was ended by a signal.

    `found`: what was measured until then; None where no worker had ended an iteration. `saved`: for each job, after how
    many iterations all its workers were last saved; None where nothing is saved.
    """

    def __init__(self, found: Replay | None, saved: Mapping[str, int] | None) -> None:
        self.found, self.saved = found, saved
        super().__init__()


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

    def record(self, record: RunRecord) -> RunRecord:
        """Return a record by this clock.

        All but transfers last as long as before: their own process saved nothing meanwhile.
        """
        start = self.moment(record.start_us)
        end = self.moment(record.end_us) if record.kind == "transfer" else start + record.end_us - record.start_us
        return record._replace(start_us=start, end_us=end)
