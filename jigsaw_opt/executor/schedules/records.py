"""What the processes of a replay hand over, and their time without that of saves. Needs no torch.

Moments are microseconds after the begin of a run, on the clock of the first process.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import NamedTuple

from jigsaw_opt.executor.schedules.order import TransferKey
from jigsaw_opt.problem.measured.replay import Replay

Action = tuple[str, int, int]
"""What PyTorch calls it, and the moments of its begin and its end."""


@dataclass(frozen=True)
class StepRecord:
    """The record of one process in a step.

    `actions, receipts`: passes in the order in which they ran, and waits for what others have sent. `loss`: mean over
    all micro-batches; None where the last stage is elsewhere.
    """

    iteration: int
    actions: list[Action]
    receipts: list[Action]
    loss: float | None

    def since(self, begin_us: int) -> StepRecord:
        """Return the same with moments that count from another one."""
        actions, receipts = (
            [(name, start - begin_us, end - begin_us) for name, start, end in kept]
            for kept in (self.actions, self.receipts)
        )
        return replace(self, actions=actions, receipts=receipts)


class BlockRecord(NamedTuple):
    """A block that has been run."""

    job: int
    iteration: int
    slot: int
    level: int
    start_us: int
    end_us: int
    loss: float


class TransferRecord(NamedTuple):
    """A worker's part in a transfer."""

    key: TransferKey
    start_us: int
    end_us: int


@dataclass(frozen=True)
class Part:
    """The part of one process in a run.

    `blocks, transfers`: those of the workers that it hosts. `origins_us`: when each pass of a finite plan began.
    `passes`: how many there were; None where the run was interrupted before anybody had said. `begin_us`: when the run
    began, the same for all of its processes. `saves`: start and end of the writing of each checkpoint, one behind the
    other. `steps`: steps of the stages that it hosts, one behind the other. `stopped_us`: for how long the clock stood
    still while workers of later jobs were built.
    """

    blocks: list[BlockRecord]
    transfers: list[TransferRecord]
    origins_us: list[int]
    passes: int | None
    begin_us: int = 0
    saves: list[tuple[int, int]] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)
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

    def block(self, record: BlockRecord) -> BlockRecord:
        """Return a block that lasts as long as before: its own process saved nothing meanwhile."""
        start = self.moment(record.start_us)
        return record._replace(start_us=start, end_us=start + record.end_us - record.start_us)
