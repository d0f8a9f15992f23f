"""Predicted against measured. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median, quantiles

from jigsaw_opt.executor.replay.step_times import Span, StepTimes
from jigsaw_opt.problem.measured.replay import ReplaySummary
from jigsaw_opt.problem.measured.times import MeasuredIteration, MeasuredStep, Timeline
from jigsaw_opt.problem.plan import JobPlan, Plan, TimedIteration, TimedOperation

_DIGITS = 4


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
