"""What the processes of a job in stages did, step by step, and predicted against measured. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import NamedTuple

from jigsaw_opt.executor.pipeline.records import Action, StepRecord
from jigsaw_opt.executor.replay.records import Part, StoppingClock
from jigsaw_opt.planning.pipeline.torch_csv import StageSchedule
from jigsaw_opt.problem.measured.replay import KindError
from jigsaw_opt.problem.measured.times import MeasuredOperation, MeasuredStep
from jigsaw_opt.problem.plan import TaskGraphJobPlan
from jigsaw_opt.problem.task_graph import TaskGraph, TaskGraphJob

__all__ = ["StepTimes"]

_DIGITS = 4
_WAITED_US = 50
"""A wait that is shorter says only that what was waited for had come before."""

Span = tuple[int, int]


class _RunStep(NamedTuple):
    """An iteration: by block when it ran, and when it waited for what it takes; and its loss."""

    ran: dict[str, Span]
    waited: dict[str, Span]
    loss: float


class StepTimes:
    """The times of the processes of a job in stages, step by step.

    `parts`: for each process, the first ones, what they did in a run.
    """

    def __init__(
        self, asked: TaskGraphJob, done: TaskGraphJobPlan, schedule: StageSchedule, parts: Sequence[Part], first: int
    ) -> None:
        self._shape, self._schedule, self._done, self._first = asked.shape, schedule, done, first
        clock, records = (
            StoppingClock(part.saves for part in parts),
            [part.steps for part in parts[: schedule.processes]],
        )
        # Only a run that was interrupted has processes that took fewer steps than others.
        self._steps = [_step(clock, schedule, own) for own in zip(*records, strict=False)]

    def measured(self) -> tuple[MeasuredStep, ...]:
        """Return the steps that all processes have taken."""
        return tuple(_measured(self._shape, step) for step in self._steps)

    def durations(self) -> Iterator[tuple[str, int, int]]:
        """Yield kind, planned and measured duration of each pass; a split one of stage 0 counts whole as ``W``."""
        return _durations(self._shape, self._schedule, self._done, self._first, self._steps)

    def sent(self) -> Iterator[tuple[str, int, int]]:
        """Yield planned and measured duration of transfers that somebody waited for; of others no end is known."""
        return _sent(self._shape, self._done, self._first, self._steps)

    def kinds(self) -> dict[str, KindError]:
        """Return errors by kind of pass, and of what is sent."""
        return _kinds([*self.durations(), *self.sent()])


def _step(clock: StoppingClock, schedule: StageSchedule, records: Sequence[StepRecord]) -> _RunStep:
    """Return what all processes did in a step."""
    iteration = records[0].iteration
    ran = _spans(clock, schedule, iteration, (action for record in records for action in record.actions))
    waited = _spans(clock, schedule, iteration, (receipt for record in records for receipt in record.receipts))
    return _RunStep(ran, waited, fmean(record.loss for record in records if record.loss is not None))


def _spans(clock: StoppingClock, schedule: StageSchedule, iteration: int, actions: Iterable[Action]) -> dict[str, Span]:
    """Return for each operation the begin of its first and the end of its last action.

    Each is as long as before: its own process saved nothing meanwhile.
    """
    spans: dict[str, Span] = {}
    for action, begin, finish in actions:
        name, start = schedule.planned_in(iteration)[action], clock.moment(begin)
        end = start + finish - begin
        before = spans.get(name, (start, end))
        spans[name] = min(before[0], start), max(before[1], end)
    return spans


def _measured(shape: TaskGraph, step: _RunStep) -> MeasuredStep:
    """Return a step in the order of the task graph."""
    blocks = tuple(MeasuredOperation(block.name, *step.ran[block.name]) for block in shape.blocks)
    transfers, ends = [], _ends(shape)
    for name in (transfer.name for transfer in shape.transfers):
        transfers.append(MeasuredOperation(name, *_span(step, name, ends)))
    return MeasuredStep(blocks, tuple(transfers), step.loss)


def _span(step: _RunStep, transfer: str, ends: Mapping[str, tuple[str, str]]) -> Span:
    """Begin and end of a transfer: as an action, or from the end of a pass until another one has what it takes."""
    if transfer in step.ran:
        return step.ran[transfer]
    before, after = ends[transfer]
    start = step.ran[before][1]
    return start, max(start, step.waited[after][1])


def _ends(shape: TaskGraph) -> dict[str, tuple[str, str]]:
    """Return for each transfer the block whose result it is and the one that takes it."""
    before = {edge.after: edge.before for edge in shape.edges}
    after = {edge.before: edge.after for edge in shape.edges}
    return {
        transfer.name: (before.get(transfer.name, ""), after.get(transfer.name, "")) for transfer in shape.transfers
    }


def _durations(
    shape: TaskGraph, schedule: StageSchedule, done: TaskGraphJobPlan, first: int, steps: Sequence[_RunStep]
) -> Iterator[tuple[str, int, int]]:
    """Yield kind, planned and measured duration of each pass; a split one of stage 0 counts whole as ``W``."""
    for number, step in enumerate(steps, first):
        planned = dict(
            zip(
                (block.name for block in shape.blocks),
                done.iterations[number % len(done.iterations)].blocks,
                strict=True,
            )
        )
        for name in planned:
            start, end = step.ran[name]
            kind, length, took = name[0], planned[name].end_us - planned[name].start_us, end - start
            if schedule.is_split and name.endswith(".0") and kind != "F":
                if kind == "B":
                    continue
                other = f"B{name[1:]}"
                length += planned[other].end_us - planned[other].start_us
                took += step.ran[other][1] - step.ran[other][0]
            yield kind, length, took


def _sent(
    shape: TaskGraph, done: TaskGraphJobPlan, first: int, steps: Sequence[_RunStep]
) -> Iterator[tuple[str, int, int]]:
    """Yield planned and measured duration of transfers that somebody waited for; of others no end is known."""
    ends = _ends(shape)
    for number, step in enumerate(steps, first):
        planned = done.iterations[number % len(done.iterations)].transfers
        for execution, name in zip(planned, (transfer.name for transfer in shape.transfers), strict=True):
            start, end = _span(step, name, ends)
            if name in step.ran:
                yield name[0], execution.end_us - execution.start_us, end - start
                continue
            waited = step.waited[ends[name][1]]
            if waited[1] - waited[0] >= _WAITED_US:
                yield "sent", execution.end_us - execution.start_us, end - start


def _kinds(durations: Sequence[tuple[str, int, int]]) -> dict[str, KindError]:
    """Return errors by kind."""
    kinds: dict[str, list[Span]] = {}
    for kind, planned, took in durations:
        kinds.setdefault(kind, []).append((planned, took))
    return {
        kind: KindError(
            len(pairs),
            round(median(planned for planned, _ in pairs)),
            round(median(took for _, took in pairs)),
            round(median(abs(took / planned - 1) for planned, took in pairs), _DIGITS),
        )
        for kind, pairs in sorted(kinds.items())
    }
