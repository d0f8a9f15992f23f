"""Placements that CP-SAT finds without a timetable: memory, levels, and loads within a target."""

from __future__ import annotations

import random
from typing import ClassVar

from jigsaw_opt.formulations import cpsat_loads
from jigsaw_opt.solvers.bounds.server_partition import server_partitions
from jigsaw_opt.solvers.placement.assignment import Assignment, ProblemData
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context
from jigsaw_opt.solvers.search.engine import Engine
from jigsaw_opt.solvers.search.moves.list_annealing import draft
from jigsaw_opt.solvers.search.moves.load_balancing import Placing
from jigsaw_opt.solvers.search.moves.sequence_annealing import SequenceAnnealing


class PlacementModel:
    """Places all jobs at once.

    `data`: the instance, for which `cpsat_loads.fits` holds; its objective is makespan or period. `failed`: largest
    limit within which no placement was found; 0 before.
    """

    def __init__(self, data: ProblemData, engine: Engine, rng: random.Random) -> None:
        self.data, self.engine, self.rng = data, engine, rng
        self.failed = 0
        self._places = [places for places in server_partitions(data.operations.cluster) if not places.shared]

    def within(self, limit: int) -> list[Assignment] | None:
        """Return a placement whose loads, and lengths without contention, are within a limit.

        The result is None where no placement was found.
        """
        data = self.data
        model = cpsat_loads.build(data.operations, limit, self._places)
        value = self.engine.solve_all([model.model], self.data.params.cp_placement.work)[0]
        if value is None:
            self.failed = max(self.failed, limit)
            return None
        placement = model.placement(value)
        assignments = []
        for index, (gpus, caps) in enumerate(zip(placement, data.caps(placement), strict=True)):
            shapes = list(data.shapes(index))
            self.rng.shuffle(shapes)
            found = (data.assignment(index, demand, gpus, caps) for demand in shapes)
            assignment = next((assignment for assignment in found if assignment is not None), None)
            if assignment is None:
                return None
            assignments.append(assignment)
        return assignments


class CpPlacement:
    """Places all jobs at once, with a target between bound and objective, and then some of them elsewhere."""

    name: ClassVar[str] = "cp_placement"

    def __init__(self, context: Context) -> None:
        self.context, self.model = context, PlacementModel(context.data, context.engine, context.rng)

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Return whether memory limits the levels of the best list schedule, for a makespan or period."""
        if not context.shared(SequenceAnnealing).fits or not cpsat_loads.fits(context.operations):
            return False
        if context.operations.objective == "weighted_completion" or context.best_list is None:
            return False
        caps = context.data.caps([assignment.gpus for assignment in context.best_list.assignments])
        return any(min(own) < job.levels for own, job in zip(caps, context.operations.jobs, strict=True))

    def run(self, incumbent: Candidate | None, budget: Budget) -> Candidate | None:
        """Find a placement by CP-SAT, schedule it, and relocate jobs from it.

        The best plan found, or None.

        `incumbent`: the best plan so far; None before there is any.
        """
        context = self.context
        least = max(context.solve_state.bound, self.model.failed)
        most = 2 * least if incumbent is None else incumbent.value
        assignments = self.model.within(round(context.rng.uniform(least, most)))
        if assignments is None or budget.over():
            return None
        balancer = context.shared(Placing).balancer()
        balancer.adopt(assignments)
        schedule = draft(context, balancer)
        if schedule is None:
            return None
        context.propose_list(schedule)
        return context.shared(SequenceAnnealing).relocate(balancer, context.candidate(schedule).timetable)
