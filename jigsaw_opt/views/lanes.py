"""A plan as lanes: one for each GPU and one for each link, with the intervals that lie on it.

Every picture reads this. The intervals of a cyclic plan are shown in one period: they are moved
to ``[0, T)`` and split where they reach past its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from jigsaw_opt.problem.cluster import Routes
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import JobPlan, Plan
from jigsaw_opt.problem.timetable import job_end

__all__ = ["Interval", "Lane", "Picture", "picture"]


class Interval(NamedTuple):
    """One block or transfer on a lane.

    `number` is the worker of a block and the bucket of a transfer; `level` is 0 for a transfer.
    Times are microseconds; `job` and `iteration` count from 0.
    """

    start_us: int
    end_us: int
    job: int
    iteration: int
    number: int
    level: int


@dataclass(slots=True)
class Lane:
    """A GPU or a link and its intervals by start."""

    name: str
    kind: str
    intervals: list[Interval] = field(default_factory=list)

    @property
    def busy_us(self) -> int:
        """Total length of the intervals."""
        return sum(interval.end_us - interval.start_us for interval in self.intervals)


@dataclass(frozen=True, slots=True)
class Picture:
    """What there is to draw.

    Parameters
    ----------
    instance, plan
        Where it comes from.
    lanes
        GPUs in the cluster's order, then links.
    end_us
        Right edge: the latest end, or the period of a cyclic plan.
    """

    instance: Instance
    plan: Plan
    lanes: tuple[Lane, ...]
    end_us: int

    @property
    def depths(self) -> list[int]:
        """Number of levels of each job."""
        return [self.instance.models[job.model].depth for job in self.instance.jobs]


def picture(instance: Instance, plan: Plan) -> Picture:
    """Lanes of a correct plan.

    Parameters
    ----------
    instance, plan
        A plan that `jigsaw_opt.checking.check` accepts for the instance.
    """
    cluster = instance.cluster
    gpus = {
        cluster.gpu_name(s, k): Lane(cluster.gpu_name(s, k), "gpu")
        for s, server in enumerate(cluster.servers)
        for k in range(server.gpus)
    }
    links = [Lane(link.name, "link") for link in cluster.links]
    routes = Routes(cluster)
    server_of = {server.name: index for index, server in enumerate(cluster.servers)}
    for index, job in enumerate(plan.jobs):
        channel = routes.channel(Counter(server_of[gpu.rsplit("/", 1)[0]] for gpu in job.gpus))
        used = [links[k] for k in channel.links] if channel else []
        for lane, interval in _intervals(index, job, [gpus[gpu] for gpu in job.gpus], used):
            lane.intervals.extend(_wrapped(interval, plan.period_us))
    lanes = (*gpus.values(), *links)
    for lane in lanes:
        lane.intervals.sort()
    return Picture(instance, plan, lanes, plan.period_us or max(map(job_end, plan.jobs)))


def _intervals(index: int, job: JobPlan, gpus: list[Lane], links: list[Lane]) -> Iterator[tuple[Lane, Interval]]:
    for number, iteration in enumerate(job.iterations):
        for worker, (lane, block) in enumerate(zip(gpus, iteration.blocks, strict=True)):
            yield lane, Interval(block.start_us, block.end_us, index, number, worker, block.level)
        for transfer in iteration.transfers:
            for lane in links:
                yield lane, Interval(transfer.start_us, transfer.end_us, index, number, transfer.bucket, 0)


def _wrapped(interval: Interval, period: int | None) -> Iterator[Interval]:
    if period is None or interval.start_us == interval.end_us:
        yield interval
        return
    start = interval.start_us % period
    end = start + interval.end_us - interval.start_us
    yield interval._replace(start_us=start, end_us=min(end, period))
    if end > period:
        yield interval._replace(start_us=0, end_us=end - period)
