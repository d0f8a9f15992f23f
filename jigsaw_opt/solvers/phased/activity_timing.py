"""Cyclic plans of jobs with a task graph or under power caps, also beside data-parallel ones, on given GPUs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from random import Random

from jigsaw_opt.formulations.cpsat_activities import spans_suffice
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.operations import Operations, compile_instance
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.timetable import Gpu, Timetable
from jigsaw_opt.solvers.activities.heuristic import PlacedJobs
from jigsaw_opt.solvers.activities.improving import Annealing
from jigsaw_opt.solvers.activities.placing import SlotPlacement, complete
from jigsaw_opt.solvers.activities.workers import PlacedWorkers
from jigsaw_opt.solvers.assignments.layout import Layout, demands
from jigsaw_opt.solvers.phased.assigning import assigned
from jigsaw_opt.solvers.result import StoppedBy
from jigsaw_opt.solvers.search.problem_data import ProblemData
from jigsaw_opt.solvers.solve_state import SolveState

__all__ = ["activities_timed"]

_ANNEALING = 0.5
"""Deterministic seconds for better orders, at most."""


def activities_timed(
    solve_state: SolveState, placements: Mapping[str, Sequence[str]], known: Timetable | None
) -> StoppedBy:
    """Offer plans of a cyclic instance that has jobs with a task graph or power caps, with shorter and shorter periods.

    `placements`: by name of a job, the names of its workers' or slots' GPUs. `known`: A plan of the same jobs there, or
    None.
    """
    operations = solve_state.operations
    if known is not None:
        solve_state.offer(known)
    placement = _placement(operations, placements, known)
    if placement is None:
        return solve_state.reason() or StoppedBy.COMPLETED
    for timetable in _listed(solve_state, operations, placement):
        if timetable is not None:
            solve_state.offer(timetable)
        if solve_state.reason() is not None:
            break
    if operations.cluster.power_caps:  # An order of operations does not say which of them draw at once.
        return solve_state.reason() or StoppedBy.COMPLETED
    annealing = Annealing(solve_state, operations)
    while solve_state.incumbent is not None and solve_state.reason() is None and not annealing.exhausted:
        left = _ANNEALING - annealing.spent
        if left <= 0:
            break
        annealing.step(left, math.inf)
    return solve_state.reason() or StoppedBy.COMPLETED


def _listed(solve_state: SolveState, operations: Operations, placement: SlotPlacement) -> Iterator[Timetable | None]:
    jobs = PlacedJobs(operations, placement)
    if not jobs.flat.keeps_caps_alone:
        return
    for rule in jobs.ranks.rules:
        yield jobs.schedule(rule, _objective(solve_state))[1]
    # Where spans suffice, operations cannot wrap around the period, and modulo schedules would gain nothing.
    rigid = spans_suffice(operations) or operations.cluster.power_caps
    if solve_state.objective is not None and not rigid:
        yield from jobs.modulo_schedules(Random(f"phase/{solve_state.options.seed}"), solve_state.objective)


def _objective(solve_state: SolveState) -> float:
    return math.inf if solve_state.objective is None else solve_state.objective


def _placement(
    operations: Operations, placements: Mapping[str, Sequence[str]], known: Timetable | None
) -> SlotPlacement | None:
    """Return the jobs on their GPUs, data-parallel ones at their known levels; None where memory is short."""
    number = {server.name: k for k, server in enumerate(operations.cluster.servers)}
    gpus = {name: tuple(_gpu(number, gpu) for gpu in own) for name, own in placements.items()}
    levels = _levels(operations, placements, known)
    if levels is None:
        return None
    workers = [PlacedWorkers(gpus[job.name], own) for job, own in zip(operations.jobs, levels, strict=True)]
    return complete(operations, [gpus[graph.job.name] for graph in operations.task_graphs], workers)


def _gpu(number: Mapping[str, int], name: str) -> Gpu:
    server, _, index = name.rpartition("/")
    return number[server], int(index)


def _levels(
    operations: Operations, placements: Mapping[str, Sequence[str]], known: Timetable | None
) -> list[tuple[tuple[int, ...], ...]] | None:
    """Return the levels by iteration of each data-parallel job; None where memory has no room for these jobs alone."""
    if known is not None:
        return [
            tuple(tuple(block.level for block in iteration.blocks) for iteration in job.iterations)
            for job in known.jobs
        ]
    if not operations.jobs:
        return []
    own = tuple(job for job in operations.instance.jobs if isinstance(job, Job))
    # Search knows data-parallel jobs only. Task-graph jobs have no levels, so these are chosen without them; `complete`
    # then looks at memory with all.
    alone = compile_instance(altered(operations.instance, jobs=own))
    asked = demands(alone)
    found = None if asked is None else assigned(ProblemData(alone, Layout(alone), asked), placements)
    return None if found is None else [tuple(tuple(row) for row in placed.plan.rows) for placed in found]
