"""Phased plans made of cyclic ones: shelves are placed, jobs that share anything form a group, and it gets phases."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from typing import ClassVar

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import PhaseGroup, Plan
from jigsaw_opt.solvers.bound_tightening import BOUND_WORK, raise_bounds
from jigsaw_opt.solvers.engines.compiled import warn_if_interpreted
from jigsaw_opt.solvers.options import LIMITS
from jigsaw_opt.solvers.phased.group_search import GroupSearch, PlacedGroups, improve, refine
from jigsaw_opt.solvers.phased.moving import LeastLaxityPolicy, MovingPolicy, wrap_around_us
from jigsaw_opt.solvers.phased.phases import Jobs, RunningRule, Timing
from jigsaw_opt.solvers.phased.policies import policies
from jigsaw_opt.solvers.phased.rates.jobs import RateJob, RatePolicy
from jigsaw_opt.solvers.phased.rates.model import RateModel
from jigsaw_opt.solvers.phased.rates.search import RateSearch
from jigsaw_opt.solvers.phased.shelves import placed_shelves, sharing_groups
from jigsaw_opt.solvers.phased.side_by_side import SideBySide
from jigsaw_opt.solvers.phased.timer import PhaseTimer, UntimedError
from jigsaw_opt.solvers.resolve.values import value_of
from jigsaw_opt.solvers.result import Result, StoppedBy
from jigsaw_opt.solvers.solve_state import SolveState
from jigsaw_opt.solvers.solve_state.request import GeneralSolver

_BOUND_SHARE = 0.1
"""Share of a time limit up to which stronger bounds are sought."""
_MOST = 4
"""Most iterations of a job in a period: with more, it is closer to the ratios of jobs, and takes longer to plan."""
_PLACINGS = (("greedy", _MOST), ("auto", _MOST), ("greedy", 1), ("greedy", 2 * _MOST))
"""Solvers that place jobs on the cyclic horizon, each with the most iterations of a job in a period."""
_PLACING_SHARE = 0.4
"""Share of the limits that is left for placing by `auto`, which takes part only within a limit."""
_MOVING_SHARE = 0.8
"""Share of the time that is left for phases of jobs that move, where there is no other plan yet."""
_ANYWHERE_SHARE = 0.3
"""Share of the time that is left for a first placement of each job, before local search."""
_SEARCHED = "local search"
_PROMISING = 1.02
"""Factor of the best objective so far up to which all policies are tried with what local search finds."""
_MOST_AGAIN = 16
"""Most iterations of a job in a period where time is left after all placings and rounds."""
_ROUNDS = 4
"""Number of rounds of local search after all policies."""


def _search(solve_state: SolveState) -> StoppedBy:
    """Raise the bound for a short time, then offer the best plan on several placements, as far as time goes."""
    limit = solve_state.limit
    seconds = math.inf if limit is None else _BOUND_SHARE * limit - solve_state.seconds
    raise_bounds(solve_state, solve_state.operations, BOUND_WORK, seconds)
    if len(solve_state.operations.instance.jobs) > 1:
        warn_if_interpreted()
    timer = PhaseTimer(solve_state)
    with suppress(OutOfTimeError):
        _offer_plans(solve_state, timer)
    return solve_state.reason() or (StoppedBy.TIME if timer.is_over else StoppedBy.COMPLETED)


def _offer_plans(solve_state: SolveState, timer: PhaseTimer) -> None:
    """Offer plans on several placements; stop once one is at the bound."""
    found, placed = list[PlacedGroups](), list[PlacedGroups]()
    for one in _candidates(solve_state, timer, placed):
        found.append(one)
        _offer(solve_state, one)
        if timer.first:  # It has the first cyclic plan of each phase, and gets better ones now.
            timer.first = False
            refine(one.groups)
            _offer(solve_state, one)
        if timer.is_over:
            break
        least = min(other.rank[1] for other in found)
        # Groups of `placed` get all their policies once all others are there; the others only here.
        if not any(one is other for other in placed) and (one.moves or one.rank[1] <= _PROMISING * least):
            improve(one.groups, solve_state.bound)
            _offer(solve_state, one)
        if timer.is_over:
            break


def _candidates(solve_state: SolveState, timer: PhaseTimer, placed: list[PlacedGroups]) -> Iterator[PlacedGroups]:
    """Yield groups on placements by cyclic plans and by local search, then those of `placed` with all policies.

    What counts least begins: a period says much of a makespan, and little of weighted completions, and nothing of jobs
    that all may move. Beside task-graph jobs, whose memory keeps more of them apart, it says little of either.
    """
    instance, options, bound = solve_state.operations.instance, solve_state.options, solve_state.bound
    # Each round has its own source of random numbers, so that what it finds does not depend on how far others came.
    rounds = (partial(_searched, instance, timer, random.Random(f"{options.seed} {k}"), placed) for k in count())
    if instance.objective != "makespan" or instance.task_graph_jobs:
        moves = all(job.restart_us is not None for job in instance.jobs)
        for first in islice(rounds, _ROUNDS if moves else 1):
            for one in first():
                if instance.objective == "makespan":
                    placed.append(one)
                yield one
    for placing in _PLACINGS:
        if placing[0] != "auto" or options.limited:
            with suppress(UntimedError):  # Other placements may have cyclic plans of all phases.
                for one in _placed(instance, timer, placing):
                    placed.append(one)
                    yield one
    placed.sort(key=lambda one: one.rank)
    yield from next(rounds)()
    for one in placed:
        improve(one.groups, bound)
        yield one
    for more in islice(rounds, _ROUNDS):
        yield from more()
    if options.limited:
        yield from _more(instance, timer, rounds, bound)


def _more(
    instance: Instance, timer: PhaseTimer, rounds: Iterator[Callable[[], Iterator[PlacedGroups]]], bound: int
) -> Iterator[PlacedGroups]:
    """Yield groups with all policies as long as time is left: placed at other ratios of iterations, and searched.

    Each turn through the ratios has seeds of its own.
    """
    for turn in count():
        for most in range(_MOST_AGAIN, 1, -1):
            if timer.is_over:
                return
            if turn > 0 or most not in {known for _, known in _PLACINGS}:
                with suppress(UntimedError):
                    for one in _placed(instance, timer, ("auto", most), turn):
                        improve(one.groups, bound)
                        yield one
            for more in islice(rounds, _ROUNDS):
                yield from more()


def _placed(instance: Instance, timer: PhaseTimer, placing: tuple[str, int], turn: int = 0) -> Iterator[PlacedGroups]:
    """Yield the groups of one placement, each with phases; nothing where there is none."""
    name, most = placing
    share = _PLACING_SHARE if name == "auto" else 1.0
    shelves = placed_shelves(instance, instance.jobs, partial(timer.placed, name, share, turn=turn), most)
    if shelves is None:
        return
    gpus = {job.name: job.gpus for shelf in shelves for job in shelf.jobs}
    timing = partial(timer.timed, shelves)
    yield _grouped(
        instance,
        name,
        gpus,
        timing,
        lambda jobs: policies(jobs, shelves, timing, partial(value_of, instance, jobs), timer.deadline),
    )


def _searched(
    instance: Instance, timer: PhaseTimer, rng: random.Random, placed: Sequence[PlacedGroups]
) -> Iterator[PlacedGroups]:
    """Yield groups by local search, from jobs placed one after another, and from the best of the placements."""
    if len(instance.jobs) == 1 or timer.is_over:
        return
    model = RateModel(instance, rng)
    search = RateSearch(instance, model, rng, timer)
    anywhere: list[RateJob] | None = None
    # Task graphs of thousands of operations take long to schedule; placing by cyclic plans needs its time, too.
    with timer.limited(_ANYWHERE_SHARE), suppress(OutOfTimeError):
        anywhere = model.anywhere()
    starts = [search.placed_in_turn(anywhere)] if anywhere is not None else []
    if placed:
        on = [model.on(k, placed[0].gpus[job.name]) for k, job in enumerate(model.jobs)]
        starts.append(search.first_order([job for job in on if job is not None]))
    for start in starts:
        order = search.improved(start)
        gpus = {job.name: job.gpus for job in order}
        timing: Timing = partial(timer.timed, ())
        ways = partial(_by_rates, order, model, timing)
        moves = any(job.options for job in order)
        if moves:
            beside = SideBySide(instance, timing, timer.patience(_MOVING_SHARE))
            ways = partial(_with_moves, order, model, beside, search.last_end_us(order))
        with suppress(OutOfTimeError):  # Other placements may need fewer phases.
            yield _grouped(instance, _SEARCHED, gpus, timing, ways, moves)


def _by_rates(order: Sequence[RateJob], model: RateModel, timing: Timing, jobs: Jobs) -> Iterator[RunningRule]:
    """Yield counts by loads alone, then by the cyclic plans of several counts."""
    # An order of all jobs is one of each group as well: groups share nothing.
    own = [job for job in order if job.name in jobs]
    yield RatePolicy(own, model.rate_jobs, timing, 1)
    yield RatePolicy(own, model.rate_jobs, timing)


def _with_moves(
    order: Sequence[RateJob], model: RateModel, beside: SideBySide, known_us: float | None, jobs: Jobs
) -> Iterator[RunningRule]:
    """Yield policies at the rates of an order, then thorough ones; for a makespan, least laxity as well."""
    for thorough in (False, True):
        yield MovingPolicy(order, model.rate_jobs, beside, known_us is not None, thorough)
    if known_us is not None:
        for target_us in wrap_around_us(order, model.gpus, known_us):
            yield LeastLaxityPolicy(order, model.rate_jobs, beside, target_us)


def _grouped(
    instance: Instance,
    name: str,
    gpus: Mapping[str, Sequence[str]],
    timing: Timing,
    ways: Callable[[Jobs], Iterator[RunningRule]],
    moves: bool = False,
) -> PlacedGroups:
    """Return the groups of a placement, each with phases by its first policy; one group of all jobs where some move."""
    groups, all_jobs = [], {job.name: job for job in instance.jobs}
    # Jobs that move may share a GPU with any other in the end, and phases of different groups may not.
    for names in [[*all_jobs]] if moves else sharing_groups(instance, gpus):
        jobs = {name: all_jobs[name] for name in names}
        groups.append(GroupSearch(instance, jobs, ways(jobs), timing))
    return PlacedGroups(name, gpus, groups, instance.objective == "makespan", moves)


def _offer(solve_state: SolveState, placed: PlacedGroups) -> None:
    """Offer the phases of a placement if no job is late."""
    late, objective = placed.rank
    if not late:
        groups, made_by = tuple(PhaseGroup(tuple(group.phases)) for group in placed.groups), {"placed_by": placed.name}
        name = solve_state.operations.instance.name
        solve_state.offer_phased(Plan(name, "", "feasible", objective, 0, groups, made_by))


@dataclass(frozen=True, slots=True)
class Phased(GeneralSolver):
    """Makes a phased plan: phases of cyclic ones, whose jobs ``greedy`` and, within a limit, ``auto`` place."""

    name: str = "phased"
    display_name: str = "phases that repeat, for jobs too long to list all iterations; finite horizon"

    takes: ClassVar[tuple[str, ...]] = tuple(name for name in LIMITS if name not in ("listed", "survivable"))
    phased: ClassVar[bool] = True
    moves: ClassVar[bool] = True

    def unsupported(self, instance: Instance) -> str | None:
        """Return why it does not take this instance, or None."""
        return None if instance.horizon == "finite" else "it is cyclic; a phased plan is one of the finite horizon"

    def run(self, solve_state: SolveState) -> Result:
        """Make a phased plan."""
        return solve_state.conclude(partial(_search, solve_state))


PHASED = Phased()
"""The method that always makes a phased plan."""
