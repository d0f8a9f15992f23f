"""What multi-server jobs ask of groups of servers, with the equivalence classes of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from jigsaw_opt.problem.cluster import Channel, Link
from jigsaw_opt.problem.compiled import critical
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.solvers.bounds.job_data import GpuClass, JobClass, JobData
from jigsaw_opt.solvers.bounds.server_partition import ServerPartition


class ServerGroup(NamedTuple):
    """Groups of servers that are equivalent: how many, and the links and the GPUs, by server and class, of one."""

    number: int
    links: tuple[Link, ...]
    servers: tuple[tuple[int, int], ...]

    def room(self, job_class: JobClass, allowed: frozenset[int]) -> int:
        """Return the number of GPUs of allowed classes that may hold a worker, in one group."""
        return sum(job_class.gpus.get(s, 0) for s, k in self.servers if k in allowed)


class EquivalentJobs(NamedTuple):
    """Jobs that ask the same: what is known of one of them, and the names of all."""

    data: JobData
    names: tuple[str, ...]

    @property
    def number(self) -> int:
        """Return the number of these jobs."""
        return len(self.names)


def equivalent_groups(
    operations: Operations, classes: Sequence[GpuClass], partition: ServerPartition
) -> list[ServerGroup]:
    """Return the equivalence classes of the groups of a partition."""
    number = {(each.gpu_type, each.memory): k for k, each in enumerate(classes)}
    policies = dict.fromkeys((None, *(job.route_policy for job in operations.jobs)))
    parts = [operations.routes.under(policy).component for policy in policies]
    groups: dict[int, list[tuple[int, int]]] = {}
    for s, server in enumerate(operations.cluster.servers):
        groups.setdefault(partition.group[s], []).append((s, number[server.gpu_type, server.gpu_memory]))
    equivalent: dict[tuple[object, ...], ServerGroup] = {}
    for group, servers in groups.items():
        links = tuple(operations.cluster.links[k] for k in sorted(partition.leaving[group]))
        # Servers of different components cannot serve one job, even if their GPUs are alike.
        gpus = Counter((k, operations.cluster.servers[s].gpus, *(part[s] for part in parts)) for s, k in servers)
        rates = Counter((link.bandwidth, link.latency_us) for link in links)
        key = (frozenset(gpus.items()), frozenset(rates.items()))
        known = equivalent.get(key, ServerGroup(0, links, tuple(servers)))
        equivalent[key] = known._replace(number=known.number + 1)
    return list(equivalent.values())


def equivalent_jobs(job_data: Sequence[JobData]) -> list[EquivalentJobs]:
    """Return the equivalence classes of jobs with one job class and the same iterations, levels and release."""
    equivalent: dict[tuple[object, ...], list[JobData]] = {}
    for data in job_data:
        job = data.job
        if data.job_class.ring is not None and data.job_class.blocks and data.job_class.sites:
            # Classes are shared objects (`gather_job_data`), so that identity says equality.
            key = (id(data.job_class), job.iterations, job.rule.min_total, job.release_us)
            equivalent.setdefault(key, []).append(data)
    return [EquivalentJobs(jobs[0], tuple(data.job.name for data in jobs)) for jobs in equivalent.values()]


def allowed_classes(data: JobData, limit: int) -> frozenset[int]:
    """Return the classes of GPUs on which a worker does not delay the job beyond a limit.

    A worker stays on its GPU, so in every iteration it makes its buckets ready there.

    `limit`: latest end of the job, in microseconds.
    """
    job, job_class = data.job, data.job_class
    # The worker counts at the least level, and the transfers at the best site: whatever the plan, it takes no less.
    lowest = critical.candidate_levels(job)[0]
    spans = {
        k: job.iterations
        * min(critical.tails_us(times, site.exchange.shortest)[lowest - 1] for site in job_class.sites)
        for k, times in job_class.blocks.items()
    }
    return frozenset(k for k, span in spans.items() if job.release_us + span <= limit)


def fewest_groups(groups: Sequence[ServerGroup], data: JobData, allowed: frozenset[int]) -> int | None:
    """Return the least number of groups that have room for all workers of a job, None if all together have not.

    `allowed`: indices of the classes of GPUs that may be used.
    """
    rooms = sorted(((group.room(data.job_class, allowed), group.number) for group in groups), reverse=True)
    # Groups with most room come first, so no other choice needs fewer.
    left, fewest = data.job.slots, 0
    for room, count in rooms:
        if room and room * count >= left:
            return fewest + -(-left // room)
        left, fewest = left - room * count, fewest + count
    return None


def least_transfers(data: JobData, links: Sequence[Link]) -> int:
    """Return the least time that one of the links is busy with all transfers of a job, in microseconds."""
    ring = data.job_class.ring
    assert ring is not None, "only jobs that have a ring are asked"
    rate = min(ring.rate, max(link.bandwidth for link in links))
    latency = max(ring.latency_us, min(link.latency_us for link in links))
    return critical.least_transfer_us(data.job, data.job_class.exchange_over(data.job, Channel((), rate, latency)))
