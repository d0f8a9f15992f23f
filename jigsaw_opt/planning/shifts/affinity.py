"""One time shift a job for all of its links, by the affinity graph of jobs and shared links.

Where a part of the graph has no cycle, each link is solved alone and a traversal makes the rotations agree, as in
CASSINI (NSDI'24). Where it has one, CASSINI leaves the placement out; here all links of the part are solved together,
with one rotation a job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from jigsaw_opt.planning.shifts.demand import GridDemand, SharedLink, choose_grid, compatibility, shared_links
from jigsaw_opt.planning.shifts.jobs import RepeatedJob
from jigsaw_opt.planning.shifts.rotations import RotationProblem, Rotations, best_rotations

Method = Literal["traversal", "joint"]


@dataclass(frozen=True, slots=True)
class LinkCompatibility:
    """The compatibility of the users of a link.

    `unshifted, shifted`: compatibility where all jobs start at 0, and with their time shifts. `load`: mean demand of
    all users over the bandwidth, each at its own speed. `method`: how the shifts of its part of the affinity graph were
    found.
    """

    shared: SharedLink
    unshifted: Fraction
    shifted: Fraction
    load: float
    method: Method


@dataclass(frozen=True, slots=True)
class TimeShifts:
    """A time shift for each job, and what it comes to on each shared link.

    `shifts_us`: for each job, how much later than 0 it starts. `links`: every link that two or more jobs use. `bound`:
    no shifts have a larger mean compatibility on this grid. `grid_us, rounded`: microseconds of a cell; whether some
    cycle is no multiple of it and was rounded up.
    """

    shifts_us: tuple[int, ...]
    links: tuple[LinkCompatibility, ...]
    bound: float
    grid_us: int
    rounded: bool

    @property
    def mean(self) -> float:
        """Mean compatibility of the shared links; 1 where there is none."""
        return float(sum(link.shifted for link in self.links) / len(self.links)) if self.links else 1.0

    @property
    def unshifted(self) -> float:
        """The same where all jobs start at 0."""
        return float(sum(link.unshifted for link in self.links) / len(self.links)) if self.links else 1.0

    @property
    def status(self) -> Literal["optimal", "feasible"]:
        """``optimal`` where no shifts on this grid are better, up to rounding of sums."""
        return "optimal" if self.mean >= self.bound - 1e-9 else "feasible"

    @property
    def has_cycle(self) -> bool:
        """Whether the affinity graph has a cycle, so that CASSINI leaves the placement out."""
        return any(link.method == "joint" for link in self.links)


def time_shifts(
    jobs: Sequence[RepeatedJob], bandwidths: Sequence[int], grid_us: int | None = None, seed: int = 0
) -> TimeShifts:
    """Return time shifts of the best mean compatibility.

    `bandwidths`: bytes per second of every link of the cluster.
    """
    links = shared_links(jobs, bandwidths)
    grid = grid_us or choose_grid(jobs, links)
    demands = [GridDemand.of(job, grid) for job in jobs]
    shifts = [0] * len(jobs)
    told: dict[int, LinkCompatibility] = {}
    lost = 0.0
    for part in affinity_parts(links):
        found, method = _solve_part(part, demands, grid, seed)
        lost += found.bound
        for j, cells in found.cells.items():
            shifts[j] = cells
        for link in part:
            before, after = (compatibility(link, demands, shift, grid) for shift in ([0] * len(jobs), shifts))
            load = sum(jobs[j].busy_us * jobs[j].channel.rate / jobs[j].cycle_us for j in link.users) / link.bandwidth
            told[link.link] = LinkCompatibility(link, before, after, load, method)
    bound = 1.0 - lost / len(links) if links else 1.0
    rounded = any(jobs[j].cycle_us % grid for link in links for j in link.users)
    in_us = tuple(cells * grid for cells in shifts)
    return TimeShifts(in_us, tuple(told[link.link] for link in links), bound, grid, rounded)


def affinity_parts(links: Sequence[SharedLink]) -> list[tuple[SharedLink, ...]]:
    """Return the connected parts of the affinity graph: links that jobs join, directly or over others."""
    left, parts = list(links), []
    while left:
        part = [left.pop(0)]
        for link in part:
            near = [other for other in left if set(other.users) & set(link.users)]
            part += near
            left = [other for other in left if other not in near]
        parts.append(tuple(part))
    return parts


def has_no_cycle(part: Sequence[SharedLink]) -> bool:
    """Return whether a connected part of the affinity graph is a tree: one edge less than it has jobs and links."""
    jobs = {j for link in part for j in link.users}
    return sum(len(link.users) for link in part) == len(jobs) + len(part) - 1


def traverse(
    part: Sequence[SharedLink], rotations: Mapping[int, Mapping[int, int]], cells: Sequence[int]
) -> dict[int, int]:
    """Return a shift for each job that agrees with the rotations of each link, up to a common shift of the circle.

    By job of the part, its shift modulo its cycle.

    `rotations`: by index of a link, the rotation of each of its users.
    """
    shifts = {part[0].users[0]: 0}
    pending = list(part)
    while pending:
        link = next(entry for entry in pending if any(j in shifts for j in entry.users))
        pending.remove(link)
        own = rotations[link.link]
        known = next(j for j in link.users if j in shifts)
        common = shifts[known] - own[known]
        shifts |= {j: (own[j] + common) % cells[j] for j in link.users if j != known}
    return shifts


def _solve_part(
    part: Sequence[SharedLink], demands: Sequence[GridDemand], grid: int, seed: int
) -> tuple[Rotations, Method]:
    if not has_no_cycle(part):
        return best_rotations(RotationProblem(part, demands, grid), seed), "joint"
    single = {link.link: best_rotations(RotationProblem([link], demands, grid), seed) for link in part}
    rotations = {link: found.cells for link, found in single.items()}
    agreed = traverse(part, rotations, [demand.cells for demand in demands])
    sums = (sum(getattr(found, name) for found in single.values()) for name in ("excess", "bound"))
    return Rotations(agreed, *sums), "traversal"
