"""Cyclic plans of jobs that stay on their GPUs: insertion at longer and longer periods, then annealed orders."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from random import Random

from jigsaw_opt.formulations.cpsat import spans_suffice
from jigsaw_opt.problem.compiled.operations import Operations, compile_instance
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.activities.heuristic import PlacedJobs
from jigsaw_opt.solvers.activities.orders.improving import Annealing
from jigsaw_opt.solvers.activities.placing import SlotPlacement, complete
from jigsaw_opt.solvers.activities.stepwise import SECONDS_OF_LISTING, SECONDS_OF_VISIT
from jigsaw_opt.solvers.placement.assignment import Assignment, ProblemData
from jigsaw_opt.solvers.placement.layout import demands
from jigsaw_opt.solvers.placement.state import PartialPlacement, fullest_us
from jigsaw_opt.solvers.placement.workers import PlacedWorkers
from jigsaw_opt.solvers.result import Result
from jigsaw_opt.solvers.search.cyclic.candidate_table import FixedPolicy
from jigsaw_opt.solvers.search.sequence_search import SequenceSearch
from jigsaw_opt.solvers.search.state.job_insertion import JobInsertion
from jigsaw_opt.solvers.search.state.partial_schedule import PartialSchedule
from jigsaw_opt.solvers.solve_state import SolveState


def assigned(data: ProblemData, placements: Mapping[str, Sequence[str]]) -> list[Assignment] | None:
    """Return each job on its GPUs, with levels that memory admits once all are placed; None where one finds none.

    `placements`: by name of a job, the names of its workers' GPUs.
    """
    placement = PartialPlacement(data, rigid=False)
    for index, job in enumerate(data.operations.jobs):
        assignment = placement.assignment(index, [data.number[gpu] for gpu in placements[job.name]])
        if assignment is None:
            return None
        placement.place(index, assignment, [max(column) for column in zip(*assignment.plan.rows, strict=True)])
    return placement.resolved()


_ANNEALING = 0.5
"""Deterministic seconds for better orders, at most."""


def _time_activities(solve_state: SolveState, placements: Mapping[str, Sequence[str]], known: Timetable | None) -> None:
    """Offer plans of a cyclic instance that has jobs with a task graph or power caps."""
    operations = solve_state.operations
    placement = _placement(operations, placements, known)
    if placement is None:
        return
    for timetable in _listed(solve_state, operations, placement):
        if timetable is not None:
            solve_state.offer(timetable)
        if _is_over(solve_state, (operations.blocks + operations.transfers) * SECONDS_OF_LISTING):
            break
    annealing, spent = Annealing(solve_state, operations), 0.0
    while solve_state.incumbent is not None and not (_is_over(solve_state, spent) or annealing.exhausted):
        left, before = _ANNEALING - annealing.spent, annealing.spent
        if left <= 0:
            break
        annealing.step(left, math.inf)
        spent = annealing.spent - before


def _listed(solve_state: SolveState, operations: Operations, placement: SlotPlacement) -> Iterator[Timetable | None]:
    jobs = PlacedJobs(operations, placement)
    if not jobs.flat.fits_alone:
        return
    for rule in jobs.ranks.rules:
        yield jobs.schedule(rule, _objective(solve_state))[1]
    # Where spans suffice, operations cannot wrap around the period, and modulo schedules would gain nothing.
    if solve_state.objective is not None and not spans_suffice(operations):
        yield from jobs.modulo_schedules(Random(f"phase/{solve_state.options.seed}"), solve_state.objective)


def _objective(solve_state: SolveState) -> float:
    return math.inf if solve_state.objective is None else solve_state.objective


def _placement(
    operations: Operations, placements: Mapping[str, Sequence[str]], known: Timetable | None
) -> SlotPlacement | None:
    """Return the jobs on their GPUs, data-parallel ones at their known levels; None where memory is short."""
    place_of = operations.cluster.gpus.place_of
    gpus = {name: tuple(place_of[gpu] for gpu in own) for name, own in placements.items()}
    levels = _levels(operations, placements, known)
    if levels is None:
        return None
    workers = [PlacedWorkers(gpus[job.name], own) for job, own in zip(operations.jobs, levels, strict=True)]
    return complete(operations, [gpus[graph.job.name] for graph in operations.task_graphs], workers)


def _levels(
    operations: Operations, placements: Mapping[str, Sequence[str]], known: Timetable | None
) -> list[tuple[tuple[int, ...], ...]] | None:
    """Return the levels by iteration of each data-parallel job; None where memory has no room for these jobs alone."""
    if known is not None:
        return [job.levels for job in known.jobs]
    if not operations.jobs:
        return []
    # Search knows data-parallel jobs only. Task-graph jobs have no levels, so these are chosen without them; `complete`
    # then looks at memory with all.
    alone = compile_instance(altered(operations.instance, jobs=operations.instance.data_parallel_jobs))
    asked = demands(alone)
    found = None if asked is None else assigned(ProblemData(alone, asked), placements)
    return None if found is None else [tuple(tuple(row) for row in placed.plan.rows) for placed in found]


_FRUITLESS, _WORTH = 2, 0.002
"""Rounds of insertion after which timing ends, each without a period that is shorter by more than this share."""
_STRETCH = 1.5
"""Factor from one period of insertion to the next; the first is by so much longer than the load of the fullest."""
_VISITS, _STEPS_AN_OPERATION, _MOST_STEPS = 1_000_000, 20, 4_000
"""Limits of one annealing of an order."""
_LOOK = 3e-6
"""Deterministic seconds of a look for room for an operation."""
_TEMPERATURE = 0.05
"""Share of the period that its first steps may lose."""


def time_placed(
    solve_state: SolveState, placements: Mapping[str, Sequence[str]], known: Timetable | None = None
) -> Result:
    """Offer plans of a cyclic instance whose jobs have their GPUs already, with shorter and shorter periods.

    `placements`: by name of a job, the names of its workers' or slots' GPUs. `known`: A plan of the same jobs there, or
    None.
    """

    def offer_plans() -> None:
        if known is not None:
            solve_state.offer(known)
        (_time_activities if solve_state.operations.needs_network else _time_jobs)(solve_state, placements, known)

    return solve_state.conclude(offer_plans)


def _time_jobs(solve_state: SolveState, placements: Mapping[str, Sequence[str]], known: Timetable | None) -> None:
    """Offer plans of a cyclic instance with data-parallel jobs alone."""
    operations, rng = solve_state.operations, random.Random(solve_state.options.seed)
    asked = demands(operations)
    data = None if asked is None else ProblemData(operations, asked)
    assignments = None if data is None else assigned(data, placements)
    if data is None or assignments is None:
        return
    # One after another, all iterations fit into half of this period: a longer one would add idle time only.
    most = 2 * sum(assignment.iteration_us * assignment.job.iterations for assignment in assignments)
    best, fruitless, orders = known, 0, SequenceSearch(data, rng)
    while fruitless < _FRUITLESS and not _is_over(solve_state):
        before = most if solve_state.objective is None else solve_state.objective
        if best is None:
            best = _inserted(data, assignments, most, rng, solve_state)
            if best is not None:
                solve_state.offer(best)
        if best is not None and not _is_over(solve_state):
            best = _annealed(orders, best, solve_state)
            solve_state.offer(best)
        gained = before - (most if solve_state.objective is None else solve_state.objective)
        fruitless = 0 if gained > before * _WORTH else fruitless + 1


def _is_over(solve_state: SolveState, work: float = 0.0) -> bool:
    """Count work; return whether there is a reason to stop, or no work left beside a plan."""
    solve_state.spend(work)
    over = solve_state.options.work_limit is not None and solve_state.options.work_limit <= 0
    return solve_state.reason() is not None or (over and solve_state.objective is not None)


def _inserted(
    data: ProblemData, assignments: Sequence[Assignment], most: int, rng: random.Random, solve_state: SolveState
) -> Timetable | None:
    """Return the jobs at the shortest of some periods at which all find room; `most` is the longest of them."""
    weights = [sum(map(sum, assignment.exchange)) for assignment in assignments]
    # No period is shorter than the load of the fullest GPU or link, and hardly any plan reaches it: the first try is
    # already longer by the factor.
    period = fullest_us(assignments)
    while period < most:
        # Without the 1, a period of one microsecond would stay as it is for ever.
        period = min(most, int(_STRETCH * period) + 1)
        insertion = JobInsertion(
            PartialSchedule(data, period), FixedPolicy(assignments), rng, lambda looks: solve_state.spend(_LOOK * looks)
        )
        found = insertion.insert_all(range(len(assignments)), weights, 0, lambda: _is_over(solve_state))
        if found is not None or _is_over(solve_state):
            return found
    return None


def _annealed(orders: SequenceSearch, timetable: Timetable, solve_state: SolveState) -> Timetable:
    """Return the timetable with its operations in a better order, if annealing finds one."""
    given = orders.given(timetable)
    steps = max(1, min(_MOST_STEPS, _VISITS // orders.size, _STEPS_AN_OPERATION * orders.size))

    def stop(visits: int) -> bool:
        return _is_over(solve_state, visits * SECONDS_OF_VISIT)

    found = orders.anneal(given, given.assignments, steps, _TEMPERATURE, stop)
    return orders.timetable(found) if found.value < given.value else timetable
