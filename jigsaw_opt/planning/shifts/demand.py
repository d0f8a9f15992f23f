"""Demand of jobs on a link over their unified circle, and how compatible they are there.

The circle has the least common multiple of the jobs' cycles as its perimeter, in cells of a grid (CASSINI;
Rajasekaran, Ghobadi and Akella, NSDI'24).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from jigsaw_opt.planning.shifts.jobs import RepeatedJob
from jigsaw_opt.problem.costs import ceil_div

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_CELLS = 20_000
"""A grid is chosen so that no circle has more cells."""


@dataclass(frozen=True, slots=True)
class SharedLink:
    """A link that transfers of two or more jobs use."""

    link: int
    bandwidth: int
    users: tuple[int, ...]


@dataclass(frozen=True)
class GridDemand:
    """The demand of one job on each of its links, cell by cell over its cycle.

    `cells`: its cycle in cells of the grid, rounded up. `busy_us`: in each cell, for how many microseconds it sends.
    `rate`: bytes per second while it sends.
    """

    cells: int
    busy_us: tuple[int, ...]
    rate: int

    @classmethod
    def of(cls, job: RepeatedJob, grid_us: int) -> GridDemand:
        """Return the demand of a job on a grid of so many microseconds."""
        cells = ceil_div(job.cycle_us, grid_us)
        busy = [0] * cells
        for start, end in job.transfers:
            for cell in range(start // grid_us, ceil_div(end, grid_us)):
                busy[cell] += min(end, (cell + 1) * grid_us) - max(start, cell * grid_us)
        return cls(cells, tuple(busy), job.channel.rate)

    @cached_property
    def runs(self) -> tuple[tuple[int, int, int], ...]:
        """Stretches of cells of one demand: first cell, the cell after the last, microseconds a cell."""
        cuts = [0, *(k for k in range(1, self.cells) if self.busy_us[k] != self.busy_us[k - 1]), self.cells]
        return tuple((first, after, self.busy_us[first]) for first, after in pairwise(cuts))

    def share(self, grid_us: int, bandwidth: int) -> NDArray[Any]:
        """Return the demand of each cell as a share of the bandwidth of a link.

        `bandwidth`: bytes per second of the link.
        """
        import numpy as np

        return np.array(self.busy_us, dtype=float) * (self.rate / bandwidth / grid_us)


def shared_links(jobs: Sequence[RepeatedJob], bandwidths: Sequence[int]) -> tuple[SharedLink, ...]:
    """Return links that two or more jobs send over, by index.

    The links in the order of their indices.

    `bandwidths`: bytes per second of each link of the cluster.
    """
    users: dict[int, list[int]] = {}
    for number, job in enumerate(jobs):
        for link in job.channel.links if job.transfers else ():
            users.setdefault(link, []).append(number)
    return tuple(SharedLink(k, bandwidths[k], tuple(users[k])) for k in sorted(users) if len(users[k]) > 1)


def choose_grid(jobs: Sequence[RepeatedJob], links: Sequence[SharedLink], most_cells: int = MOST_CELLS) -> int:
    """Return the finest grid, in microseconds, on which every circle has at most so many cells.

    Divisors of all cycles come first: on them no cycle is rounded. Else it is 1, 2 or 5 times a power of ten.

    `links`: links that two or more of them share; each has a circle.
    """
    groups = [[jobs[j].cycle_us for j in link.users] for link in links]
    if not groups:
        return 1

    def cells(grid: int) -> int:
        return max(math.lcm(*(ceil_div(cycle, grid) for cycle in group)) for group in groups)

    common = math.gcd(*(cycle for group in groups for cycle in group))
    small = [k for k in range(1, math.isqrt(common) + 1) if common % k == 0]
    for grid in sorted({*small, *(common // k for k in small)}):
        if cells(grid) <= most_cells:
            return grid
    grid = 1
    while cells(grid) > most_cells:
        grid = grid * 5 // 2 if str(grid).startswith("2") else grid * 2
    return grid


def compatibility(link: SharedLink, demands: Sequence[GridDemand], rotations: Sequence[int], grid_us: int) -> Fraction:
    """Return ``1 - mean(max(0, D - C)) / C`` exactly: `D` is the demand over the circle, `C` the bandwidth.

    `demands, rotations`: by job: its demand, and by how many cells it starts later.
    """
    perimeter = math.lcm(*(demands[j].cells for j in link.users))
    capacity, excess = link.bandwidth * grid_us, 0
    for cell in range(perimeter):
        used = (demands[j].rate * demands[j].busy_us[(cell - rotations[j]) % demands[j].cells] for j in link.users)
        excess += max(0, sum(used) - capacity)
    return 1 - Fraction(excess, perimeter * capacity)
