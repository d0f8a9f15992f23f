"""Predicted against measured, also what the processes of a job in stages did, step by step. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from math import isnan
from statistics import fmean, median, quantiles
from typing import NamedTuple

from jigsaw_opt.executor.schedules.records import Kind, Part, RunRecord, StoppingClock
from jigsaw_opt.planning.pipeline.torch_csv import StageSchedule
from jigsaw_opt.problem.measured.replay import KindError, ReplaySummary
from jigsaw_opt.problem.measured.times import MeasuredIteration, MeasuredOperation, MeasuredStep, Timeline
from jigsaw_opt.problem.plan import JobPlan, Plan, TaskGraphJobPlan, TimedIteration, TimedOperation
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


def summary(plan: Plan, found: Timeline, stages: StepTimes | None = None) -> ReplaySummary:
    """Return the summary of a replay: predicted against measured.

    Predicted and measured objective in microseconds, relative errors, and shares of time that GPUs are busy.

    `found`: what it took; at least one iteration. `stages`: what the job in stages did; None where there is none.
    """
    blocks, transfers = list[Span](), list[Span]()  # planned and measured duration of each
    for job, measured in zip(plan.jobs, found.jobs, strict=True):
        for number, iteration in measured.numbered() if isinstance(job, JobPlan) else ():
            planned = job.iterations[number % len(job.iterations)]
            blocks += _durations(planned.blocks, iteration.blocks)
            transfers += _durations(planned.transfers, iteration.transfers)
    if stages is not None:
        blocks += [(planned_us, took) for _, planned_us, took in stages.durations()]
        transfers += [(planned_us, took) for _, planned_us, took in stages.sent()]
    errors = [took / planned_us - 1 for planned_us, took in blocks]
    sizes = sorted(map(abs, errors))
    moved = [abs(took - planned_us) for planned_us, took in transfers]
    gpus = len({gpu for job in plan.jobs for gpu in job.gpus})
    predicted = plan.period_us or max(job.end_us for job in plan.jobs)
    busy = _busy_us(i for job in plan.jobs for i in job.iterations)
    passes = [_busy_us(own) for own in _by_pass(plan, found).values()]
    cycle = cycle_us(plan, found)
    return ReplaySummary(
        objective="makespan" if plan.period_us is None else "period",
        predicted_us=predicted,
        measured_us=cycle,
        block_error=round(median(sizes), _DIGITS),
        block_error_p90=round(quantiles(sizes, n=10, method="inclusive")[-1] if len(sizes) > 1 else sizes[0], _DIGITS),
        block_bias=round(median(errors), _DIGITS),
        transfer_error_us=round(median(moved)) if moved else None,
        busy_predicted=round(busy / (gpus * predicted), _DIGITS),
        busy_measured=None if cycle is None else round(median(passes or [0]) / (gpus * cycle), _DIGITS),
    )


def _durations(planned: Sequence[TimedOperation], measured: Sequence[TimedOperation]) -> Iterator[Span]:
    """Yield planned and measured duration of operations."""
    for at, took in zip(planned, measured, strict=True):
        yield at.end_us - at.start_us, took.end_us - took.start_us


def _busy_us(iterations: Iterable[TimedIteration]) -> int:
    """Return the time of all blocks of some iterations."""
    return sum(block.end_us - block.start_us for iteration in iterations for block in iteration.blocks)


def cycle_us(plan: Plan, found: Timeline) -> int | None:
    """Return the period or makespan as it was measured, in microseconds; None where the run was too short to tell."""
    ends = {turn: max(iteration.end_us for iteration in own) for turn, own in _by_pass(plan, found).items()}
    if plan.period_us is not None:  # the mean distance of passes, without those in which jobs begin or end
        last = max(b.start_us for j in plan.jobs for i in j.iterations for b in i.blocks)
        return mean_distance(list(ends.values()), last // plan.period_us)
    begins = dict(zip(range(found.passes - len(found.origins_us), found.passes), found.origins_us, strict=True))
    return round(median(end - begins[turn] for turn, end in ends.items())) if ends else None


def repetitions(plan: Plan, found: Timeline) -> int:
    """Return how often all jobs have done their iterations of a plan, earlier runs included."""
    pairs = zip(plan.jobs, found.jobs, strict=True)
    return min((m.first_iteration + len(m.iterations)) // len(j.iterations) for j, m in pairs)


def _by_pass(plan: Plan, found: Timeline) -> dict[int, list[MeasuredIteration | MeasuredStep]]:
    """Return iterations of all jobs in each pass that was carried out wholly."""
    pairs = list(zip(plan.jobs, found.jobs, strict=True))
    first = max(-(-measured.first_iteration // len(job.iterations)) for job, measured in pairs)
    passes: dict[int, list[MeasuredIteration | MeasuredStep]]
    passes = {turn: [] for turn in range(first, repetitions(plan, found))}
    for job, measured in pairs:
        for number, iteration in enumerate(measured.iterations, measured.first_iteration):
            if number // len(job.iterations) in passes:
                passes[number // len(job.iterations)].append(iteration)
    return passes


def mean_distance(ends: Sequence[int], overlap: int) -> int | None:
    """Return the mean distance of the ends of passes, in microseconds, at least 1; None where fewer than two are left.

    `overlap`: how many passes are under way at once beside the last one. While so many begin or end, others have GPUs
    for themselves.
    """
    first = min(len(ends) // 2, 1 + overlap)
    kept = ends[first : len(ends) - overlap]
    return None if len(kept) < 2 else max(1, round((kept[-1] - kept[0]) / (len(kept) - 1)))
