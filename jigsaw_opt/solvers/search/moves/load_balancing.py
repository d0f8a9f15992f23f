"""Balancing: a placement whose fullest GPU, fullest link and longest job are as little as can be.

Jobs are put elsewhere, or exchange their GPUs; simulated annealing decides what is kept. No timetable is made, so a
step costs a fraction of a millisecond.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import exp

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.solvers.placement.assignment import Assignment, ProblemData
from jigsaw_opt.solvers.placement.candidates import CandidateGenerator
from jigsaw_opt.solvers.placement.layout import Demand
from jigsaw_opt.solvers.placement.levels import SHAPES
from jigsaw_opt.solvers.placement.state import PartialPlacement
from jigsaw_opt.solvers.search.context import Context

_LENGTH_WEIGHT = 20.0
"""Price of a job that is longer than the target, against that of a load: no change of other jobs makes it shorter."""


class LoadBalancer:
    """Local search over placements.

    `target_us`: load or length that GPUs, links and jobs should keep to. `link_weight`: what it costs to use a link for
    as long as the target, beside its load. Jobs that use few links lie inside one another or apart, and are timed
    without idle links.
    """

    def __init__(self, data: ProblemData, rng: random.Random, target_us: int, link_weight: float = 1.0) -> None:
        self.data, self.rng, self.target_us, self.link_weight = data, rng, target_us, link_weight
        self.params = data.params.load_balancing
        self.placement = PartialPlacement(data, rigid=False)
        self.generator = CandidateGenerator(data, rng)
        self.shaped = [index for index in range(len(data.demands)) if len(data.shapes(index)) > 1]

    def build(self, order: Sequence[int]) -> bool:
        """Place all jobs anew in an order, each where it costs least; return whether all found room.

        The levels of all jobs have the same shape, or each has its own; where memory has no room for it, another one.
        """
        self.placement.clear()
        shape = self.rng.randrange(len(SHAPES) + 1)
        for index in self.shaped:
            shapes = self.data.shapes(index)
            self.placement.demands[index] = shapes[shape] if shape < len(shapes) else self.rng.choice(shapes)
        return all(self._insert(index) for index in checking_deadline(order))

    def adopt(self, assignments: Sequence[Assignment]) -> None:
        """Replace the placement by a whole one."""
        self.placement.clear()
        for index, assignment in enumerate(assignments):
            self.place(index, assignment)

    def assignments(self) -> list[Assignment]:
        """Return the assignments of a whole placement."""
        return [assignment for assignment in self.placement.assignments if assignment is not None]

    def anneal(self, steps: int, temperature: float) -> None:
        """Take some steps, at a temperature that falls to 0."""
        for step in range(steps):
            self.step(temperature * (1 - step / steps) ** 2)

    def step(self, temperature: float) -> None:
        """Change the placement, or leave it as it is where that costs too much."""
        before = self.change()
        if before is None:
            return
        moved, gain = before
        if gain >= 0 or (temperature > 0 and self.rng.random() < exp(gain / temperature)):
            return
        self.undo(moved)

    def change(self, first: int | None = None) -> tuple[list[tuple[int, Assignment]], float] | None:
        """Move a job, by itself or with others; return the old assignments of all that moved and the gain, or None."""
        kind = self.rng.random()
        if first is None:
            first = self._bottleneck_job()
        if first in self.data.layout.held or (self.rng.random() < self.params.profile_share and self.shaped):
            return self._change_profile(first) if self.shaped else None
        if kind < 0.25 or len(self.placement.assignments) == 1:
            return self._move([(first, None)])
        return self._move([(first, None), (self._other(first), None)]) if kind < 0.42 else self._exchange(first)

    def undo(self, moved: Sequence[tuple[int, Assignment]]) -> None:
        """Put jobs back where they were."""
        for index, _ in moved:
            self.placement.unplace(index)
        for index, assignment in moved:
            self.place(index, assignment)

    def place(self, index: int, assignment: Assignment) -> None:
        """Put a job on an assignment."""
        plan = assignment.plan
        fixed = [max(column) for column in zip(*plan.rows, strict=True)] if plan.fixed else None
        self.placement.place(index, assignment, fixed or assignment.demand.need)

    def _move(
        self, moves: Sequence[tuple[int, Sequence[int] | None]]
    ) -> tuple[list[tuple[int, Assignment]], float] | None:
        """Take jobs away and put each on the given GPUs, or where it costs least."""
        old, gain = [], 0.0
        for index, _ in moves:
            assignment = self.placement.placed(index)
            self.placement.unplace(index)
            gain += self._cost(assignment)
            old.append((index, assignment))
        done: list[int] = []
        for index, gpus in moves:
            assignment_or_none = self._cheapest(index) if gpus is None else self.placement.assignment(index, gpus)
            if assignment_or_none is None:
                for index in done:
                    self.placement.unplace(index)
                for index, assignment in old:
                    self.place(index, assignment)
                return None
            gain -= self._cost(assignment_or_none)
            self.place(index, assignment_or_none)
            done.append(index)
        return old, gain

    def _change_profile(self, first: int) -> tuple[list[tuple[int, Assignment]], float] | None:
        """Change the level profile of a job, on the same GPUs or elsewhere.

        Where the job has only one profile, another job is taken.
        """
        index = first if len(self.data.shapes(first)) > 1 else self.rng.choice(self.shaped)
        before = self.placement.demands[index]
        others = [demand for demand in self.data.shapes(index) if demand is not before]
        self.placement.demands[index] = self.rng.choice(others)
        return self._move([(index, self.placement.placed(index).gpus if self.rng.random() < 0.5 else None)])

    def _exchange(self, first: int) -> tuple[list[tuple[int, Assignment]], float] | None:
        """Exchange the places of two jobs of one width."""
        width = self.data.operations.jobs[first].slots
        others = self.data.of_width[width]
        second = self.rng.choice(others)
        held = second in self.data.layout.held
        if held or second == first or self.placement.placed(first).gpus == self.placement.placed(second).gpus:
            return None
        return self._move([(first, self.placement.placed(second).gpus), (second, self.placement.placed(first).gpus)])

    def _bottleneck_job(self) -> int:
        """Return a job on a GPU or link with a large load."""
        rng, placement = self.rng, self.placement
        if rng.random() < 0.15:
            lengths = [a.iteration_us * a.job.iterations if a else 0 for a in placement.assignments]
            return max(range(len(lengths)), key=lengths.__getitem__)
        if placement.link_us and rng.random() < 0.6:
            count = len(placement.link_us)
            sample = range(count) if rng.random() < 0.3 else rng.sample(range(count), min(8, count))
            on = list(placement.on_link[max(sample, key=placement.link_us.__getitem__)])
        else:
            sample = rng.sample(range(len(placement.gpu_us)), min(8, len(placement.gpu_us)))
            on = list(placement.on_gpu[max(sample, key=placement.gpu_us.__getitem__)])
        if not on or rng.random() < 0.1:
            return rng.randrange(len(placement.assignments))
        return rng.choice(on)

    def _other(self, first: int) -> int:
        """Return another job, in half of all cases one that shares a GPU."""
        count = len(self.placement.assignments)
        near = [i for gpu in self.placement.placed(first).gpus[:2] for i in self.placement.on_gpu[gpu] if i != first]
        if near and self.rng.random() < 0.5:
            return self.rng.choice(near)
        return (first + self.rng.randrange(1, count)) % count

    def _insert(self, index: int) -> bool:
        for demand in dict.fromkeys((self.placement.demands[index], *self.data.shapes(index))):
            self.placement.demands[index] = demand
            assignment = self._cheapest(index, thorough=True)
            if assignment is not None:
                self.place(index, assignment)
                return True
        return False

    def _cheapest(self, index: int, thorough: bool = False) -> Assignment | None:
        best, least, placement, job = None, float("inf"), self.placement, self.data.operations.jobs[index]
        type_of, loads, times = self.data.layout.type_of, placement.gpu_us, job.iterations
        slot_us = {name: time // times * times for name, time in placement.demands[index].slot_us.items()}
        for gpus in self.generator.of(placement, index, thorough):
            caps = [placement.cap(index, gpu) for gpu in gpus]
            known = job.rule.balance is None and min(caps) >= job.levels
            if known and _raised(0.0, loads, [(g, slot_us.get(type_of[g], 0)) for g in gpus], self.target_us) >= least:
                continue  # Its links and its length make it no cheaper.
            assignment = placement.assignment(index, gpus, caps)
            if assignment is not None and (cost := self._cost(assignment)) < least:
                best, least = assignment, cost
        return best

    def _cost(self, assignment: Assignment) -> float:
        """Return what the job adds to the excess of its GPUs, its links and itself."""
        iterations, target = assignment.job.iterations, self.target_us
        total = _LENGTH_WEIGHT * _over(assignment.job.release_us + assignment.iteration_us * iterations, target)
        slots = zip(assignment.gpus, assignment.slot_us, strict=True)
        total = _raised(total, self.placement.gpu_us, [(gpu, slot_us * iterations) for gpu, slot_us in slots], target)
        if assignment.links:
            exchange = sum(map(sum, assignment.exchange))
            total = _raised(total, self.placement.link_us, [(link, exchange) for link in assignment.links], target)
            total += self.link_weight * len(assignment.links) * exchange / target
        return total


def _raised(cost: float, loads: Sequence[int], more: Sequence[tuple[int, int]], target: int) -> float:
    """Return a cost and the rise of the price of loads: it is small and rising up to the target, and steep above."""
    for at, load in more:
        share, before = (loads[at] + load) / target, loads[at] / target
        price, old = share * share * share * share, before * before * before * before
        if share > 1:
            price += _over(loads[at] + load, target)
            old += _over(loads[at], target)
        cost += price - old
    return cost


def _over(length: int, target: int) -> float:
    over = length / target - 1
    return 400 * over * over + 20 * over if over > 0 else 0.0


def random_order(jobs: Sequence[Demand], rng: random.Random) -> list[int]:
    """Return jobs by decreasing work, length, width, or memory times length; which of them is random, as is a blur.

    Indices of the jobs.
    """
    load = [max(d.slot_us.values()) * rng.uniform(0.8, 1.25) for d in jobs]
    weight = rng.choice(("work", "length", "width", "memory"))
    if weight == "width":
        return sorted(range(len(jobs)), key=lambda index: (-jobs[index].job.slots, -load[index]))
    factor = {
        "work": [demand.job.slots for demand in jobs],
        "length": [1] * len(jobs),
        "memory": [demand.job.state_bytes for demand in jobs],
    }[weight]
    return sorted(range(len(jobs)), key=lambda index: -load[index] * factor[index])


_PLACED_WORKER, _BALANCING_STEP = 2e-5, 6e-5
"""Deterministic seconds that placing a worker and a step of balancing count as, about what Python takes for them."""
_TARGETS = (1.0, 1.03, 1.08)
"""Target loads, as multiples of the least load; one is drawn. Where the least load cannot be reached, a target a little
above it spreads what is too much, and leaves the other loads free."""
_LINK_WEIGHTS = (1.0, 10.0, 50.0)
"""Prices of a link's time; one is drawn, for how much links matter beside GPUs differs between instances."""
_ORDERS = 5
"""Orders in which it is tried to find room for all jobs. Where memory is so tight that five fail, most others do."""
_MOST_WORKER_STEPS = 100_000
"""Steps of balancing times the mean width of a job, at most: with thousands of jobs, one placement would take all of
the time."""
_STRETCH = 50
"""Steps between two looks at the limits: some milliseconds."""


class Placing:
    """Makes placements for one search."""

    def __init__(self, context: Context) -> None:
        self.context, self.rng, self.params = context, context.rng, context.params.load_balancing
        workers = sum(job.slots for job in context.operations.jobs)
        self.construction_work = workers * _PLACED_WORKER

    def balancer(self, target: float | None = None) -> LoadBalancer:
        """Return an empty placement with a target for its loads: a least load times a factor, random where not given.

        The least load is the bound, or for weighted ends the mean load of a GPU.
        """
        context = self.context
        target = self.rng.choice(_TARGETS) if target is None else target
        least = context.solve_state.bound
        if context.operations.objective == "weighted_completion":
            load = sum(max(demand.slot_us.values()) * demand.job.slots for demand in context.data.demands)
            least = load // len(context.data.layout.gpus)
        return LoadBalancer(context.data, self.rng, max(1, round(target * least)), self.rng.choice(_LINK_WEIGHTS))

    def construct(self, balancer: LoadBalancer) -> bool:
        """Place all jobs in some order; return whether all found room."""
        self.context.budget.spend(self.construction_work)
        return balancer.build(random_order(self.context.data.demands, self.rng))

    def balanced(self) -> LoadBalancer | None:
        """Return a new, balanced placement; None where no order leaves room for all jobs."""
        balancer = self.balancer()
        if not any(self.construct(balancer) for _ in range(_ORDERS)):
            return None
        steps = self._steps()
        temperature = self.rng.choice(self.params.temperatures)
        for done in range(0, steps, _STRETCH):
            # Each stretch falls to 0 and the next begins a little cooler: one fall over all of them is no better.
            balancer.anneal(_STRETCH, temperature * (1 - done / steps) ** 2)
            if self.context.budget.spend(_STRETCH * _BALANCING_STEP):
                break
        return balancer

    def _steps(self) -> int:
        """Return the steps of balancing: by the number of jobs, fewer where jobs are wide and a step takes long."""
        jobs = len(self.context.operations.jobs)
        workers = sum(job.slots for job in self.context.operations.jobs)
        return max(1, min(self.params.steps_per_job * jobs, _MOST_WORKER_STEPS * jobs // workers))
