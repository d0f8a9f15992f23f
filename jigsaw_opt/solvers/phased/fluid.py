"""Jobs as fluids: each does iterations at a rate, as far as those before it in an order leave GPUs, links and memory.

An order and a placement of all jobs say when each ends, in about a millisecond, without any timetable. The counts of a
phase are rates in whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.shape import ShapedJob
from jigsaw_opt.solvers.phased.shelves import iteration_counts

__all__ = ["FluidJob", "FluidPolicy", "fluid_ends"]

_LEAST_PACE = 1 / 16
"""Share of its own pace below which a job rather waits."""
_SHARING_COST = 1.1
"""What a job takes of a GPU or link from those behind it, beside what it uses: operations do not fit without gaps."""
_PERIODS, _MOST = 8, 16
"""Iterations of a job that a period is as long as, and iterations of one job in it, at most."""
_WORTH_AN_ITERATION = 0.001
"""Share of the pace for which a period may have one iteration more."""


@dataclass(frozen=True, slots=True)
class FluidJob:
    """A job on its GPUs.

    Parameters
    ----------
    name, iterations, weight, release_us, deadline_us
        As in the job.
    gpus
        Names of the GPUs of its workers.
    iteration_us
        Time of an iteration when no one is in the way.
    loads_us
        Busy time of each GPU and link in an iteration, by number.
    state_bytes, activation_bytes
        Memory on each of its GPUs, with the deepest level.
    """

    name: str
    iterations: int
    weight: int
    release_us: int
    deadline_us: int | None
    gpus: tuple[str, ...]
    iteration_us: int
    loads_us: tuple[tuple[int, float], ...]
    state_bytes: int
    activation_bytes: int

    @property
    def alone_us(self) -> int:
        """Time of all its iterations when no one is in the way."""
        return self.iteration_us * self.iterations


class _FluidResources:
    """What jobs share: GPUs and links that the same jobs use as one, and GPUs whose memory does not hold all of them.

    Parameters
    ----------
    jobs
        All jobs.
    memory
        Bytes by name of a GPU.
    """

    def __init__(self, jobs: Sequence[FluidJob], memory: Mapping[str, int]) -> None:
        users: dict[int, list[int]] = {}
        inside: dict[str, list[FluidJob]] = {}
        for k, job in enumerate(jobs):
            for resource, _ in job.loads_us:
                users.setdefault(resource, []).append(k)
            for gpu in job.gpus:
                inside.setdefault(gpu, []).append(job)
        self.loads_us = {job.name: _merged(job, users) for job in jobs}
        tight = {gpu for gpu, there in inside.items() if len(there) > 1 and _bytes(there) > memory[gpu]}
        self._tight = {job.name: [gpu for gpu in job.gpus if gpu in tight] for job in jobs} if tight else {}
        self._memory = memory

    def admits(self, job: FluidJob, others: Sequence[FluidJob]) -> bool:
        """Whether a job fits with its deepest levels beside the others that share a GPU with it; alone in any case."""
        for gpu in self._tight.get(job.name, ()):
            here = [other for other in others if gpu in other.gpus]
            if here and _bytes([*here, job]) > self._memory[gpu]:
                return False
        return True

    def rates(
        self, order: Sequence[FluidJob], remaining: Mapping[str, float], begun: set[str], now: float
    ) -> dict[str, float]:
        """Iterations a microsecond of the jobs that run, those in front first."""
        rates: dict[str, float] = {}
        left: dict[tuple[int, ...], float] = {}
        there = [job for job in order if job.name in begun]
        for job in order:
            if job.name not in remaining or job.release_us > now:
                continue
            rate = 1 / job.iteration_us
            least, loads_us = rate * _LEAST_PACE, self.loads_us[job.name]
            for shared, load_us in loads_us:
                rate = min(rate, left.get(shared, 1.0) / load_us)
                if rate < least:
                    break
            if rate < least or (job.name not in begun and not self.admits(job, there)):
                continue
            if job.name not in begun:
                there.append(job)
            rates[job.name] = rate
            for shared, load_us in loads_us:
                left[shared] = left.get(shared, 1.0) - _SHARING_COST * rate * load_us
        return rates


def _merged(job: FluidJob, users: Mapping[int, Sequence[int]]) -> list[tuple[tuple[int, ...], float]]:
    """The job's largest load among GPUs and links that the same jobs use; what it has for itself is no limit."""
    loads: dict[tuple[int, ...], float] = {}
    for resource, load_us in job.loads_us:
        shared = tuple(users[resource])
        if len(shared) > 1:
            loads[shared] = max(loads.get(shared, 0.0), load_us)
    return list(loads.items())


def _bytes(jobs: Sequence[FluidJob]) -> int:
    """Memory that jobs need together on a GPU of all of them."""
    return sum(job.state_bytes for job in jobs) + max(job.activation_bytes for job in jobs)


def fluid_ends(order: Sequence[FluidJob], memory: Mapping[str, int]) -> dict[str, float]:
    """When each job ends, in microseconds.

    Parameters
    ----------
    order
        All jobs, those that come first in front.
    memory
        Bytes by name of a GPU.
    """
    sharing = _FluidResources(order, memory)
    remaining = {job.name: float(job.iterations) for job in order}
    releases = sorted({job.release_us for job in order})
    begun: set[str] = set()
    ends: dict[str, float] = {}
    now = 0.0
    while remaining:
        rates = sharing.rates(order, remaining, begun, now)
        until = next((release for release in releases if release > now), inf)
        lasts = {name: remaining[name] / rate for name, rate in rates.items()}
        step = min(min(lasts.values(), default=inf), until - now)
        for name, rate in rates.items():
            remaining[name] -= rate * step
            if lasts[name] <= step * (1 + 1e-9):
                ends[name] = now + step
                del remaining[name]
        begun = (begun | rates.keys()) & remaining.keys()
        now += step
    return ends


class FluidPolicy:
    """Phases at the rates of an order.

    Parameters
    ----------
    order
        Jobs of a group, those that come first in front.
    memory
        Bytes by name of a GPU.
    """

    def __init__(self, order: Sequence[FluidJob], memory: Mapping[str, int]) -> None:
        self._order, self._sharing = order, _FluidResources(order, memory)

    def counts(
        self, jobs: Mapping[str, Job | ShapedJob], remaining: Mapping[str, int], begun: set[str], now: int
    ) -> dict[str, int]:
        """Iterations of each job that runs in a period, from how many are left."""
        rates = self._sharing.rates(self._order, remaining, begun, now)
        running = [job for job in self._order if job.name in rates]
        found = _whole(running, rates) if len(running) > 1 else dict.fromkeys(rates, 1)
        return {name: min(count, remaining[name]) for name, count in found.items()}


def _whole(jobs: Sequence[FluidJob], rates: Mapping[str, float]) -> dict[str, int]:
    """Whole iterations in about the ratio of the rates, with which the period wastes least for those that weigh most.

    Periods are tried that are as long as some iterations of one of the jobs.
    """
    worth = {job.name: job.weight * job.alone_us for job in jobs}
    total = sum(worth.values())

    def gained(counts: Mapping[str, int]) -> float:
        period_us = _period_us(jobs, counts)
        paces = (worth[job.name] * min(1.0, counts[job.name] / (period_us * rates[job.name])) for job in jobs)
        return sum(paces) / total - _WORTH_AN_ITERATION * sum(counts.values()) / len(jobs)

    periods = {k / rates[job.name] for job in jobs for k in range(1, _PERIODS + 1)}
    shortest = min(1 / rate for rate in rates.values())
    tried = [
        {job.name: max(1, int(period_us * rates[job.name] * (1 + 1e-9))) for job in jobs}
        for period_us in sorted(periods)
        if period_us <= _MOST * shortest
    ]
    return max([*tried, iteration_counts(rates, _MOST)], key=gained)


def _period_us(jobs: Sequence[FluidJob], counts: Mapping[str, int]) -> float:
    """Time of the longest job, or of the fullest GPU or link."""
    loads: dict[int, float] = {}
    for job in jobs:
        for resource, load_us in job.loads_us:
            loads[resource] = loads.get(resource, 0.0) + load_us * counts[job.name]
    return max(*(job.iteration_us * counts[job.name] for job in jobs), *loads.values())
