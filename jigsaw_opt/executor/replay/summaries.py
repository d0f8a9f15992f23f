"""Predicted against measured. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median, quantiles
from typing import Literal

from jigsaw_opt.executor.replay.step_times import StepTimes
from jigsaw_opt.problem.measured.replay import ReplaySummary
from jigsaw_opt.problem.measured.times import MeasuredBlock, MeasuredIteration, MeasuredJob, MeasuredStep, Timeline
from jigsaw_opt.problem.plan import JobPlan, Plan, Transfer

_DIGITS = 4


def summary(plan: Plan, found: Timeline, stages: StepTimes | None = None) -> ReplaySummary:
    """Return the summary of a replay: predicted against measured.

    `found`: what it took; at least one iteration. `stages`: what the job in stages did; None where there is none.
    """
    planned_us = sum(b.end_us - b.start_us for job in plan.jobs for i in job.iterations for b in i.blocks)
    blocks = [(planned, b.end_us - b.start_us) for planned, b in _pairs(plan, found)]
    transfers = [(p.end_us - p.start_us, m.end_us - m.start_us) for p, m in _transfer_pairs(plan, found)]
    if stages is not None:
        blocks += [(planned, took) for _, planned, took in stages.durations()]
        transfers += [(planned, took) for _, planned, took in stages.sent()]
    passes = _by_pass(plan, found).values()
    busy = median([sum(b.end_us - b.start_us for i in own for b in i.blocks) for own in passes] or [0])
    return compared(plan, cycle_us(plan, found), blocks, transfers, (planned_us, busy))


def cycle_us(plan: Plan, found: Timeline) -> int | None:
    """Return the period or makespan as it was measured, in microseconds; None where the run was too short to tell."""
    ends = {turn: max(iteration.end_us for iteration in own) for turn, own in _by_pass(plan, found).items()}
    if plan.period_us is not None:  # the mean distance of passes, without the first ones, where the pipeline fills
        last = max(b.start_us for j in plan.jobs for i in j.iterations for b in i.blocks)
        return mean_distance(list(ends.values()), 1 + last // plan.period_us)
    begins = dict(zip(range(found.passes - len(found.origins_us), found.passes), found.origins_us, strict=True))
    return round(median(end - begins[turn] for turn, end in ends.items())) if ends else None


def compared(
    plan: Plan,
    measured: int | None,
    blocks: Iterable[tuple[int, int]],
    transfers: Iterable[tuple[int, int]],
    busy_us: tuple[int, float],
) -> ReplaySummary:
    """Compare a plan with what was measured.

    Predicted and measured objective in microseconds, relative errors, and shares of time that GPUs are busy.

    `measured`: its makespan or period in microseconds; None where the run was too short to tell. `blocks, transfers`:
    planned and measured duration of each, at least one block.
    """
    cyclic = plan.period_us is not None
    predicted = plan.period_us or max(job.end_us for job in plan.jobs)
    errors = [found / planned - 1 for planned, found in blocks]
    sizes = sorted(map(abs, errors))
    moved = [abs(found - planned) for planned, found in transfers]
    gpus = {gpu for job in plan.jobs for gpu in job.gpus}
    objective: Literal["makespan", "period"] = "period" if cyclic else "makespan"
    return ReplaySummary(
        objective=objective,
        predicted_us=predicted,
        measured_us=measured,
        block_error=round(median(sizes), _DIGITS),
        block_error_p90=round(quantiles(sizes, n=10, method="inclusive")[-1] if len(sizes) > 1 else sizes[0], _DIGITS),
        block_bias=round(median(errors), _DIGITS),
        transfer_error_us=round(median(moved)) if moved else None,
        busy_predicted=round(busy_us[0] / (len(gpus) * predicted), _DIGITS),
        busy_measured=None if measured is None else round(busy_us[1] / (len(gpus) * measured), _DIGITS),
    )


def _pairs(plan: Plan, found: Timeline) -> Iterator[tuple[int, MeasuredBlock]]:
    """Yield planned duration of each measured block, and the block."""
    for job, measured in _data_parallel(plan, found):
        for number, iteration in measured.numbered():
            planned = job.iterations[number % len(job.iterations)]
            for expected, block in zip(planned.blocks, iteration.blocks, strict=True):
                yield expected.end_us - expected.start_us, block


def _data_parallel(plan: Plan, found: Timeline) -> Iterator[tuple[JobPlan, MeasuredJob]]:
    """Yield data-parallel jobs, as planned and as measured."""
    for job, measured in zip(plan.jobs, found.jobs, strict=True):
        if isinstance(job, JobPlan):
            yield job, measured


def _transfer_pairs(plan: Plan, found: Timeline) -> Iterator[tuple[Transfer, Transfer]]:
    for job, measured in _data_parallel(plan, found):
        for number, iteration in measured.numbered():
            yield from zip(job.iterations[number % len(job.iterations)].transfers, iteration.transfers, strict=True)


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


def mean_distance(ends: Sequence[int], left_out: int) -> int | None:
    """Return the mean distance of consecutive times; None where fewer than two are left.

    Microseconds, at least 1.
    """
    first = min(len(ends) // 2, left_out)
    if len(ends) - first < 2:
        return None
    return max(1, round((ends[-1] - ends[first]) / (len(ends) - 1 - first)))
