"""What the processes of a job in stages did, step by step, and predicted against measured. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from math import isnan
from statistics import fmean, median
from typing import NamedTuple

from jigsaw_opt.executor.schedules.records import Kind, Part, RunRecord, StoppingClock
from jigsaw_opt.planning.pipeline.torch_csv import StageSchedule
from jigsaw_opt.problem.measured.replay import KindError
from jigsaw_opt.problem.measured.times import MeasuredOperation, MeasuredStep
from jigsaw_opt.problem.plan import JobPlan, TaskGraphJobPlan, TimedOperation
from jigsaw_opt.problem.task_graph import TaskGraph

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
        self,
        shape: TaskGraph,
        done: JobPlan | TaskGraphJobPlan,
        schedule: StageSchedule,
        parts: Sequence[Part],
        first: int,
    ) -> None:
        self._shape, self._schedule, self._done, self._first = shape, schedule, done, first
        before = {edge.after: edge.before for edge in shape.edges}
        after = {edge.before: edge.after for edge in shape.edges}
        names = [transfer.name for transfer in shape.transfers]
        self._ends = {name: (before.get(name, ""), after.get(name, "")) for name in names}
        """For each transfer the block whose result it is and the one that takes it."""
        clock = StoppingClock(part.saves for part in parts)
        records = (
            (clock.record(record) for record in part.records if record.kind in ("action", "receipt"))
            for part in parts[: schedule.processes]
        )
        steps = ([list(own) for _, own in groupby(own, lambda record: record.iteration)] for own in records)
        # Only a run that was interrupted has processes that took fewer steps than others.
        self._steps = [_step(schedule, own) for own in zip(*steps, strict=False)]

    def measured(self) -> tuple[MeasuredStep, ...]:
        """Return the steps that all processes have taken, in the order of the task graph."""
        return tuple(map(self._measured, self._steps))

    def _measured(self, step: _RunStep) -> MeasuredStep:
        blocks = (MeasuredOperation(block.name, *step.ran[block.name]) for block in self._shape.blocks)
        transfers = (MeasuredOperation(name, *self._span(step, name)) for name in self._ends)
        return MeasuredStep(tuple(blocks), tuple(transfers), step.loss)

    def _span(self, step: _RunStep, transfer: str) -> Span:
        """Begin and end of a transfer: as an action, or from the end of a pass until another one has what it takes."""
        if transfer in step.ran:
            return step.ran[transfer]
        before, after = self._ends[transfer]
        start = step.ran[before][1]
        return start, max(start, step.waited[after][1])

    def _planned(self) -> Iterator[tuple[_RunStep, dict[str, TimedOperation]]]:
        """Yield each step with the operations by name of the iteration of the plan that it carries out."""
        for number, step in enumerate(self._steps, self._first):
            iteration = self._done.iterations[number % len(self._done.iterations)]
            yield step, dict(zip(self._shape.operations, iteration.operations, strict=True))

    def durations(self) -> Iterator[tuple[str, int, int]]:
        """Yield kind, planned and measured duration of each pass; a split one of stage 0 counts whole as ``W``."""
        for step, planned in self._planned():
            for name in (block.name for block in self._shape.blocks):
                start, end = step.ran[name]
                kind, length, took = name[0], planned[name].end_us - planned[name].start_us, end - start
                if self._schedule.is_split and name.endswith(".0") and kind != "F":
                    if kind == "B":
                        continue
                    other = f"B{name[1:]}"
                    length += planned[other].end_us - planned[other].start_us
                    took += step.ran[other][1] - step.ran[other][0]
                yield kind, length, took

    def sent(self) -> Iterator[tuple[str, int, int]]:
        """Yield planned and measured duration of transfers that somebody waited for; of others no end is known."""
        for step, planned in self._planned():
            for name, (_, after) in self._ends.items():
                start, end = self._span(step, name)
                length = planned[name].end_us - planned[name].start_us
                if name in step.ran:
                    yield name[0], length, end - start
                elif step.waited[after][1] - step.waited[after][0] >= _WAITED_US:
                    yield "sent", length, end - start

    def kinds(self) -> dict[str, KindError]:
        """Return errors by kind of pass, and of what is sent."""
        kinds: dict[str, list[Span]] = {}
        for kind, planned, took in (*self.durations(), *self.sent()):
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


def _step(schedule: StageSchedule, processes: Sequence[Sequence[RunRecord]]) -> _RunStep:
    """Return what all processes did in a step."""
    ran, waited = (_spans(schedule, chain(*processes), kind) for kind in ("action", "receipt"))
    return _RunStep(ran, waited, fmean(records[0].loss for records in processes if not isnan(records[0].loss)))


def _spans(schedule: StageSchedule, records: Iterable[RunRecord], kind: Kind) -> dict[str, Span]:
    """Return for each operation the begin of its first and the end of its last action."""
    spans: dict[str, Span] = {}
    for record in records:
        if record.kind == kind:
            name = schedule.planned_in(record.iteration)[str(record.what)]
            start, end = spans.get(name, record[4:6])
            spans[name] = min(start, record.start_us), max(end, record.end_us)
    return spans
