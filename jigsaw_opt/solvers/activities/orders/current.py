"""The plan that is being improved, as activities on the GPUs and at the levels that it has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import Gpu, Timetable
from jigsaw_opt.solvers.activities.capacities import capacity_arcs, keeping_capacities
from jigsaw_opt.solvers.activities.flat import FlatActivities, JobLevels
from jigsaw_opt.solvers.activities.presence import flattened
from jigsaw_opt.solvers.activities.timetables import gpus_of, levels_of, planned_network, starts_of, timetable_of
from jigsaw_opt.solvers.result import Accepted
from jigsaw_opt.solvers.solve_state import SolveState

Offer = Callable[[Timetable], Accepted | None]
"""Takes a plan as the incumbent if it is better, as `SolveState.offer` does."""


@dataclass(slots=True)
class CurrentPlan:
    """A plan.

    `gpus, levels`: its GPUs by job, and the levels of data-parallel jobs. `flat, begins`: its activities, and how many
    there are before each job. `starts, period`: in microseconds; the period is None on the finite horizon.
    """

    objective: int
    gpus: list[list[Gpu]]
    levels: list[JobLevels]
    flat: FlatActivities
    begins: list[int]
    starts: list[int]
    period: int | None

    def kept(self) -> FlatActivities:
        """Return its activities, with waits that keep cumulative capacities in the order of its starts."""
        return keeping_capacities(self.flat, self.starts, self.period)


def adopted(solve_state: SolveState, operations: Operations, current: CurrentPlan | None) -> CurrentPlan | None:
    """Return the plan to go on from: the incumbent, where it is better than the current one and its orders repeat.

    `current`: the current plan, None before there is any.
    """
    incumbent = solve_state.incumbent
    if incumbent is None or (current is not None and incumbent[0] >= current.objective):
        return current
    return _current_of(operations, *incumbent) or current


def offer_times(
    solve_state: SolveState,
    offer: Offer,
    operations: Operations,
    current: CurrentPlan,
    starts: list[int],
    period: int | None,
) -> bool:
    """Give a plan other starts, and offer it; return whether it was taken.

    `period`: in microseconds; None on the finite horizon.
    """
    timetable = timetable_of(operations, current.begins, current.gpus, starts, period, current.levels)
    if not solve_state.keeps_guarantees(timetable):
        return False
    current.starts, current.period = starts, period
    if offer(timetable) is None:
        return False
    incumbent = solve_state.incumbent
    assert incumbent is not None, "a plan was taken"
    current.objective = incumbent[0]
    return True


def _current_of(operations: Operations, objective: int, timetable: Timetable) -> CurrentPlan | None:
    """Return a plan as activities; None where on some GPU or link it reaches over more than a period.

    The result is also None where waits between jobs alone do not keep its memory.
    """
    network = planned_network(operations, timetable)
    starts = network.with_milestones(starts_of(timetable), timetable.period_us)
    flat = flattened(network, starts, operations.has_scarce_holdings)
    if flat is None:
        return None
    if timetable.period_us is not None:
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for activity, used in enumerate(flat.resources):
            for resource in used:
                end = starts[activity] + flat.duration_us[activity]
                first[resource] = min(first.get(resource, end), starts[activity])
                last[resource] = max(last.get(resource, 0), end)
        # `flatten` leaves out what follows from all use of a resource in one period being behind that of the period
        # before. Such a plan does not have that.
        if any(last[resource] - first[resource] > timetable.period_us for resource in first):
            return None
        # A wait for a later period would turn what comes first around.
        if any(arc.periods < 0 for arc in capacity_arcs(flat, starts, timetable.period_us)):
            return None
    gpus, levels = gpus_of(operations, timetable), levels_of(timetable)
    return CurrentPlan(objective, gpus, levels, flat, network.jobs, starts, timetable.period_us)
