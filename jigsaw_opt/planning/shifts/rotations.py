"""Rotations of jobs that share links: the least total excess of demand, with a bound.

Coordinate search makes a first solution; best-first branch and bound, a job a level, improves and proves. The excess
of the jobs rotated so far is a bound, for further demand only adds to it; so is the excess of the mean demand. Since
excess is convex in demand, what each further job adds at least may be added up.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jigsaw_opt.planning.shifts.demand import GridDemand, SharedLink
from jigsaw_opt.problem import clock

if TYPE_CHECKING:
    from numpy.typing import NDArray

_EXACT = 1e-9
"""Sums of excess that differ by less are taken for equal: it is rounding of floats."""
_STARTS = 8
"""Random starts of the coordinate search before branch and bound, for which a good solution will do."""
_MOST_NODES = 1_000
"""Nodes of the branch and bound that are expanded."""


@dataclass(frozen=True, slots=True)
class Rotations:
    """Rotations of the jobs of some links.

    `cells`: for each job, by how many cells it starts later. `excess, bound`: mean excess over the bandwidth, summed
    over the links, and what no rotations fall below.
    """

    cells: dict[int, int]
    excess: float
    bound: float


class RotationProblem:
    """Jobs and links whose rotations are chosen together.

    `links`: the links; each job on one of them is a user of another one, or they are a single link. `jobs`: the jobs on
    the links, most demand first. `choices`: by job, so many rotations suffice: one by ``gcd`` of its cycle with the
    common cycle of its neighbours is the same as none, since the others fall on themselves by then; the first job need
    not be rotated at all.
    """

    def __init__(self, links: Sequence[SharedLink], demands: Sequence[GridDemand], grid_us: int) -> None:
        self.links, self.demands = tuple(links), demands
        self.perimeters = [math.lcm(*(demands[j].cells for j in link.users)) for link in links]
        self.shares = [{j: demands[j].share(grid_us, link.bandwidth) for j in link.users} for link in links]
        self.jobs = self._order()
        self.choices = {j: self._choices(j) for j in self.jobs}
        self.choices[self.jobs[0]] = 1
        means = [sum(float(share.mean()) for share in shares.values()) for shares in self.shares]
        self.least = [max(0.0, mean - 1.0) for mean in means]

    def loads(self, rotations: dict[int, int]) -> list[NDArray[Any]]:
        """Return the demand of rotated jobs on every link over its circle."""
        import numpy as np

        found = []
        for perimeter, shares in zip(self.perimeters, self.shares, strict=True):
            load = np.zeros(perimeter)
            for j, share in shares.items():
                if j in rotations:
                    load += np.tile(np.roll(share, rotations[j]), perimeter // len(share))
            found.append(load)
        return found

    def excess(self, rotations: dict[int, int]) -> float:
        """Sum over the links of the mean excess of the jobs that are rotated."""
        import numpy as np

        return sum(float(np.maximum(load - 1.0, 0.0).mean()) for load in self.loads(rotations))

    def excesses(self, loads: Sequence[NDArray[Any]], job: int) -> list[NDArray[Any]]:
        """Return for each link the mean excess over its bandwidth with one more job."""
        return [self._with(load, shares, job) for load, shares in zip(loads, self.shares, strict=True)]

    def _with(self, load: NDArray[Any], shares: dict[int, NDArray[Any]], job: int) -> NDArray[Any]:
        """Add up cells of one residue of the job's cycle; stretches of equal demand are differences of prefix sums."""
        import numpy as np

        choices = self.choices[job]
        if job not in shares:
            return np.full(choices, float(np.maximum(load - 1.0, 0.0).mean()))
        cells, share = self.demands[job].cells, shares[job]
        # The perimeter is a whole number of the job's cycles. A row of `folded` is a cycle; its cells have the demand
        # less the bandwidth, as a share of the bandwidth.
        folded, total = load.reshape(-1, cells) - 1.0, np.zeros(choices)
        sums: dict[int, NDArray[Any]] = {}
        for first, after, key in self.demands[job].runs:
            if key not in sums:
                by_cell = np.maximum(folded + share[first], 0.0).sum(axis=0)
                # Prefix sums, over two rounds, of the excess that each cell has if the job adds this demand to it. A
                # stretch that is rotated by k cells lies at cells first + k to after + k: a difference of two entries.
                sums[key] = np.concatenate(([0.0], np.cumsum(np.tile(by_cell, 2))))
            total += sums[key][after : after + choices] - sums[key][first : first + choices]
        return np.maximum(total / len(load), 0.0)

    def _order(self) -> tuple[int, ...]:
        """Return the jobs, most demand first, each a neighbour of one before it where there is one."""
        weight: dict[int, float] = {}
        for shares in self.shares:
            for j, share in shares.items():
                weight[j] = weight.get(j, 0.0) + float(share.mean())
        order, near = list[int](), set[int]()
        while len(order) < len(weight):
            j = max((j for j in weight if j not in order), key=lambda j: (j in near, weight[j], -j))
            order.append(j)
            near |= {k for link in self.links if j in link.users for k in link.users}
        return tuple(order)

    def _choices(self, job: int) -> int:
        others = {k for link in self.links if job in link.users for k in link.users} - {job}
        return math.gcd(self.demands[job].cells, math.lcm(*(self.demands[k].cells for k in others)))


def best_rotations(problem: RotationProblem, seed: int = 0) -> Rotations:
    """Return the least excess that coordinate search and branch and bound find, with its bound.

    Where `_MOST_NODES` nodes do not suffice, the bound is the least open one.
    """
    least, rng = sum(problem.least), random.Random(seed)
    best = _descend(problem, dict.fromkeys(problem.jobs, 0))
    for _ in range(_STARTS):
        if best[0] <= least + _EXACT or clock.left() <= 0:
            return Rotations(best[1], best[0], least)
        start = {j: rng.randrange(problem.choices[j]) for j in problem.jobs}
        best = min(best, _descend(problem, start), key=lambda solution: solution[0])
    return _branch(problem, best)


def _descend(problem: RotationProblem, rotations: dict[int, int]) -> tuple[float, dict[int, int]]:
    """Rotate one job after another to its best place, until none gets better."""
    import numpy as np

    value = problem.excess(rotations)
    while True:
        before = value
        for job in problem.jobs[1:]:
            others = problem.loads({j: cells for j, cells in rotations.items() if j != job})
            totals: NDArray[Any] = np.sum(problem.excesses(others, job), axis=0)
            at = int(totals.argmin())
            if totals[at] < value - _EXACT:
                rotations, value = rotations | {job: at}, float(totals[at])
        if value >= before - _EXACT:
            return value, rotations


def _branch(problem: RotationProblem, best: tuple[float, dict[int, int]]) -> Rotations:
    """Expand the node of the least bound; its children enter one at a time, in the order of their bounds."""
    root = sum(problem.least)
    children: list[tuple[list[float], list[int], dict[int, int]]] = []
    heap: list[tuple[float, int, int]] = []

    def expand(rotations: dict[int, int]) -> None:
        nonlocal best
        job, last = problem.jobs[len(rotations)], len(rotations) + 1 == len(problem.jobs)
        bounds = _bounds(problem, rotations, job)
        if last:
            at = int(bounds.argmin())
            if bounds[at] < best[0]:
                best = float(bounds[at]), rotations | {job: at}
            return
        # Children that cannot be better than the best solution are dropped. Of the others only the next one is in the
        # heap: its bound is the least of its family.
        order = [int(k) for k in bounds.argsort(kind="stable") if bounds[k] < best[0] - _EXACT]
        if order:
            children.append(([float(bounds[k]) for k in order], order, rotations))
            heapq.heappush(heap, (children[-1][0][0], len(children) - 1, 0))

    expand({})
    nodes = 1
    while heap and heap[0][0] < best[0] - _EXACT and nodes < _MOST_NODES and clock.left() > 0:
        _, family, at = heapq.heappop(heap)
        bounds, order, above = children[family]
        if at + 1 < len(order):
            heapq.heappush(heap, (bounds[at + 1], family, at + 1))
        nodes += 1
        expand(above | {problem.jobs[len(above)]: order[at]})
    bound = min(best[0], heap[0][0] if heap else math.inf)
    return Rotations(best[1], best[0], max(root, bound))


def _bounds(problem: RotationProblem, rotations: dict[int, int], job: int) -> NDArray[Any]:
    """Return for each rotation of one more job a bound of the excess of all jobs.

    Excess is convex in demand. So all further jobs together add at least what each of them adds, at its best
    rotation, to those that are rotated.
    """
    import numpy as np

    loads = problem.loads(rotations)
    rows = problem.excesses(loads, job)
    now = sum(float(np.maximum(load - 1.0, 0.0).mean()) for load in loads)
    others = problem.jobs[len(rotations) + 1 :]
    further = sum(float(np.sum(problem.excesses(loads, other), axis=0).min()) - now for other in others)
    by_mean: NDArray[Any] = np.sum(
        [np.maximum(row, least) for row, least in zip(rows, problem.least, strict=True)], axis=0
    )
    bounds: NDArray[Any] = np.maximum(by_mean, np.sum(rows, axis=0) + further)
    return bounds
