"""Least times of each job, which no plan can beat, gathered once for all bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jigsaw_opt.problem.clock import check_deadline, checking_deadline
from jigsaw_opt.problem.cluster import Channel, Link
from jigsaw_opt.problem.compiled import critical
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.costs import deepest_level


class GpuClass(NamedTuple):
    """GPUs of one type and memory, and how many there are."""

    gpu_type: str
    memory: int
    gpus: int


@dataclass(frozen=True, slots=True)
class JobClass:
    """Data that jobs of the same model, width, rule and route policy have in common; times in microseconds.

    `gpus`: number of GPUs that may hold a worker, by server; empty where there is no place. `tails`: least time from
    the end of a block that is not stretched to the end of its iteration, by level. `tail`: the least of them among the
    levels that the rule allows. `blocks`: duration of a block by level, for the class of each GPU that may hold a
    worker; shorter where deeper levels do not fit into its memory. `ring`: rate and latency that no placement on two or
    more servers beats, or None where there is no such placement. `crosses`: whether no server alone has room for all
    workers. `exchanges`: transfers by channel, as far as they were asked for.
    """

    gpus: dict[int, int]
    sites: tuple[critical.Site, ...]
    iteration: int
    tails: tuple[int, ...]
    tail: int
    blocks: dict[int, tuple[int, ...]]
    ring: Channel | None
    crosses: bool
    exchanges: dict[Channel, critical.Exchange] = field(default_factory=dict)

    def exchange_over(self, job: OperationGraph, channel: Channel) -> critical.Exchange:
        """Return the transfers of a job of this class over a channel, computed once."""
        if channel not in self.exchanges:
            self.exchanges[channel] = critical.exchange_over(job, channel)
        return self.exchanges[channel]

    def channel_over(self, links: Sequence[Link]) -> Channel:
        """Return a channel that is no slower than the best one over any of some links, for a job that has a ring."""
        assert self.ring is not None, "only jobs that have a ring are asked"
        # No link of the set is better than the best rate together with the least latency.
        rate = min(self.ring.rate, max(link.bandwidth for link in links))
        return Channel((), rate, max(self.ring.latency_us, min(link.latency_us for link in links)))


@dataclass(frozen=True, slots=True)
class JobData:
    """A job, its class, and its least completion time in microseconds."""

    job: OperationGraph
    job_class: JobClass
    completion: int

    def offset(self, once: int, moment: int) -> int:
        """Return the mean-busy-time offset (see `ResourceDemand`) of work that every iteration repeats.

        `moment`: twice the sum of its amounts times their least distances to the end of the iteration.
        """
        # Iteration i from the last ends at least i lengths before the job does, and twice the sum of all i < n is n (n
        # - 1).
        n = self.job.iterations
        return n * moment + self.job_class.iteration * n * (n - 1) * once


def gpu_classes(operations: Operations) -> list[GpuClass]:
    """Return the GPUs of the cluster by type and memory."""
    counts: dict[tuple[str, int], int] = {}
    for server in operations.cluster.servers:
        key = server.gpu_type, server.gpu_memory
        counts[key] = counts.get(key, 0) + server.gpus
    return [GpuClass(gpu_type, memory, count) for (gpu_type, memory), count in counts.items()]


def gather_job_data(operations: Operations, classes: Sequence[GpuClass]) -> list[JobData]:
    """Return the class and the least completion time of each job, in the instance's order."""
    known: dict[tuple[object, ...], JobClass] = {}
    spans: dict[tuple[object, ...], int] = {}
    job_data = []
    for job in checking_deadline(operations.jobs):
        # Blocks of one model and width are one object, so its identity says which model it is.
        key = (id(job.blocks), job.rule.multiset, job.rule.min_contributors, job.route_policy)
        if key not in known:
            known[key] = _job_class(operations, classes, job)
        job_class, same = known[key], (*key, job.rule.min_total, job.iterations)
        if same not in spans:
            spans[same] = critical.least_span_us(job, job_class.sites)
        job_data.append(JobData(job, job_class, job.release_us + spans[same]))
    return job_data


def _job_class(operations: Operations, classes: Sequence[GpuClass], job: OperationGraph) -> JobClass:
    gpus = critical.usable_gpus(operations, job)
    sites = critical.sites(operations, job, gpus)
    blocks = _blocks(operations, classes, job, gpus)
    tails = least_tails(job, sites, blocks)
    return JobClass(
        gpus=gpus,
        sites=sites,
        iteration=min((site.iteration_us for site in sites), default=0),
        tails=tails,
        tail=min(tails[level - 1] for level in critical.candidate_levels(job)),
        blocks=blocks,
        ring=operations.crossing(job, gpus),
        crosses=max(gpus.values(), default=job.slots) < job.slots,
    )


def _blocks(
    operations: Operations, classes: Sequence[GpuClass], job: OperationGraph, gpus: dict[int, int]
) -> dict[int, tuple[int, ...]]:
    servers = operations.cluster.servers
    there = {(servers[s].gpu_type, servers[s].gpu_memory) for s in gpus}
    blocks = {
        k: job.blocks[0].duration_us[each.gpu_type][: deepest_level(job, each.memory)]
        for k, each in enumerate(classes)
        if (each.gpu_type, each.memory) in there
    }
    # Without room for a worker at the last level there is no plan, and nothing is claimed.
    return blocks if any(len(times) == job.levels for times in blocks.values()) else {}


def least_tails(
    job: OperationGraph, sites: Sequence[critical.Site], blocks: dict[int, tuple[int, ...]]
) -> tuple[int, ...]:
    """Return, by level, the least time from the end of a block to that of its iteration, over all sites and classes."""
    least: list[int | None] = [None] * job.levels
    for times in set(blocks.values()):
        for transfers in {site.exchange.shortest for site in sites}:
            check_deadline()
            # `times` ends at the deepest level that fits into the memory of the class; the shorter of both decides.
            for level, (time, until) in enumerate(zip(times, critical.tails_us(times, transfers))):
                before = least[level]
                least[level] = until - time if before is None else min(before, until - time)
    return tuple(tail or 0 for tail in least)
