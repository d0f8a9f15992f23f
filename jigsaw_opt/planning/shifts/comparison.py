"""Jobs on shared links in three ways: as they come, with time shifts, and by a plan with links one at a time."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from jigsaw_opt.errors import (
    OutOfTimeError,
    UsageError,
    argument,
    out_of_range,
    wrong_input,
)
from jigsaw_opt.planning.limits import Limits
from jigsaw_opt.planning.shifts.affinity import TimeShifts, time_shifts
from jigsaw_opt.planning.shifts.jobs import RepeatedJob, WorkerGpus, draw_placement, placement_of, repeated_jobs
from jigsaw_opt.planning.shifts.link_rates import simulate_shared
from jigsaw_opt.planning.shifts.ratios import RatioResult, best_ratios
from jigsaw_opt.problem import clock
from jigsaw_opt.problem.compiled.operations import Operations, compile_instance
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.stop import interruptible

_RANDOM_STARTS = 5
"""Simulations with random starts that are averaged; each takes as long as that with the time shifts."""
_FIRST_PLAN = 0.2
"""Share of the limits for the plan whose levels and placement are taken."""


@dataclass(frozen=True, slots=True)
class ShiftedPlacement:
    """A placement with its time shifts."""

    jobs: tuple[RepeatedJob, ...]
    shifts: TimeShifts


@dataclass(frozen=True, slots=True)
class Comparison:
    """Mean times of an iteration, by job, in microseconds.

    `chosen`: the placement of the best mean compatibility, with its time shifts. `fair_us, shifted_us`: times with
    links shared fairly: the mean over several random starts, and with the time shifts. `ratios`: plans with links one
    at a time: a common period, and the best ratios.
    """

    chosen: ShiftedPlacement
    placements: int
    alone_us: tuple[float, ...]
    fair_us: tuple[float, ...]
    shifted_us: tuple[float, ...]
    ratios: RatioResult

    def planned_us(self, slowdowns: Sequence[float]) -> tuple[float, ...]:
        """Return for each job its time in a plan of such slow-downs."""
        return tuple(factor * us for factor, us in zip(slowdowns, self.alone_us, strict=True))


def compare(
    instance: Instance,
    options: Options,
    plans: Sequence[Plan] = (),
    *,
    placements: int = 8,
    most: int = 4,
) -> Comparison:
    """Compare sharing, time shifts and plans of a cyclic instance of data-parallel jobs.

    Times of an iteration of each job, in microseconds, in each of the three ways.

    `plans`: plans whose placements are candidates; the first one's levels are taken. Without any, one is solved.
    `placements`: so many random ones with GPUs of their own are candidates too; none where `plans` are given. `most`:
    the largest ratio of a job.
    """
    for name, value, fewest in (("placements", placements, 0), ("most", most, 1)):
        if value < fewest:
            raise out_of_range(name, f"{argument(name)} is at least {fewest}, not {value}")
    if instance.horizon != "cyclic":
        told = "time shifts are for jobs that repeat for ever; jobs end on a finite horizon, also in phases that repeat"
        raise wrong_input("$.horizon", told, code="unsupported")
    if instance.task_graph_jobs:
        raise UsageError(
            f"job {instance.task_graph_jobs[0].name!r} has a task graph; time shifts are for data-parallel jobs",
            code="unsupported",
        )
    instance.cluster.require_no_capacities("time shifts keep none")
    operations = compile_instance(instance)
    with interruptible(options):
        return _compared(instance, operations, options, plans, placements, most)


def _compared(
    instance: Instance,
    operations: Operations,
    options: Options,
    plans: Sequence[Plan],
    drawn: int,
    most: int,
) -> Comparison:
    limits = Limits.of(options, "a comparison of shifts")
    given = plans or (_solved(instance, limits.part(_FIRST_PLAN)),)
    placements = candidates(operations, given, 0 if plans else drawn, options.seed)
    with clock.limited(clock.Clock(None, options.cancel)):
        chosen = best_placement(operations, placements, given[0], options.seed)
        fair, shifted = shared_times(operations, chosen, options.seed)
    jobs = chosen.jobs
    left = options if plans else limits.part(1 - _FIRST_PLAN)
    ratios = best_ratios(instance, [job.cycle_us for job in jobs], left, most, start=given[0])
    return Comparison(chosen, len(placements), tuple(job.alone_us for job in jobs), fair, shifted, ratios)


def candidates(operations: Operations, plans: Iterable[Plan], drawn: int, seed: int) -> list[WorkerGpus]:
    """Return placements of plans, and random ones, in which no two jobs share a GPU, each once."""
    found = [placement_of(operations, plan) for plan in plans]
    found += [placement for k in range(drawn) if (placement := draw_placement(operations, seed + k)) is not None]
    own = [
        order for order in dict.fromkeys(found) if len({gpu for gpus in order for gpu in gpus}) == sum(map(len, order))
    ]
    if not own:
        raise UsageError(
            "no candidate placement has a GPU of its own for each worker; time shifts are for such ones",
            code="does-not-fit",
        )
    return own


def best_placement(operations: Operations, placements: Iterable[WorkerGpus], plan: Plan, seed: int) -> ShiftedPlacement:
    """Return the candidate of the best mean compatibility, the first among equals, with the levels of a plan.

    `placements`: at least one candidate; the first is judged whatever the limits, others as long as time is left.
    """
    bandwidths = [link.bandwidth for link in operations.cluster.links]

    def judged(placement: WorkerGpus) -> ShiftedPlacement:
        jobs = repeated_jobs(operations, placement, plan)
        return ShiftedPlacement(jobs, time_shifts(jobs, bandwidths, seed=seed))

    first, *others = placements
    tried = (judged(other) for other in others if clock.left() > 0)
    return max(chain([judged(first)], tried), key=lambda comparison: comparison.shifts.mean)


def shared_times(
    operations: Operations, chosen: ShiftedPlacement, seed: int, iterations: int = 200
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean times of an iteration under fair sharing: with random starts, and with the time shifts.

    Microseconds by job: the mean over random starts, and that with the time shifts.
    """
    bandwidths, rng = [link.bandwidth for link in operations.cluster.links], random.Random(seed)
    jobs = chosen.jobs
    rows = []
    for _ in range(_RANDOM_STARTS):
        starts = [rng.randrange(job.cycle_us) for job in jobs]
        rows.append(simulate_shared(jobs, bandwidths, starts, iterations=iterations).iteration_us)
    fair = tuple(sum(column) / len(rows) for column in zip(*rows, strict=True))
    return fair, simulate_shared(jobs, bandwidths, chosen.shifts.shifts_us, iterations=iterations).iteration_us


def _solved(instance: Instance, options: Options) -> Plan:
    plan = solve(instance, "auto", replace(options, listed=True)).plan
    if plan is None:
        raise OutOfTimeError("no plan was found within the limits")
    return plan
