"""What jobs ask of a resource, which proofs count (docs/proofs.md, "Resources")."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import NamedTuple

from jigsaw_opt.checking.proofs.facts.cluster_facts import GpuKind, RateAndLatency
from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.facts.job_facts import IterationFacts, JobFacts
from jigsaw_opt.checking.proofs.step import ProofStep
from jigsaw_opt.problem.power import PowerCap


class DemandFacts(NamedTuple):
    """What a job asks of a resource: its work, the least times before and after it, and its mean-busy-time offset."""

    head: int
    work: int
    tail: int = 0
    offset: int = 0


class ResourceFacts(NamedTuple):
    """A resource.

    `capacity`: work that it does in a microsecond. `demand`: what a job asks of it; None where that may be nothing.
    `loads`: least times that the workers of a job keep a GPU of it each, falling; none where they may be elsewhere.
    `exclusive`: whether no two of some jobs have room on one of its GPUs at once, where that is asked. `prices`,
    `links`: price by kind of GPU, or numbers of the links, where it consists of them.
    """

    capacity: int
    demand: Callable[[JobFacts], DemandFacts | None]
    loads: Callable[[JobFacts], Sequence[int]] = lambda job: ()
    exclusive: Callable[[Sequence[JobFacts]], bool] = lambda jobs: True
    prices: Mapping[GpuKind, int] | None = None
    links: frozenset[int] = frozenset()


def resource_facts(step: ProofStep, facts: Facts) -> ResourceFacts:
    """Return the resource that a step names."""
    known = {"gpus": _gpus, "links": _links, "power cap": _power_cap, "licence": _licence, "presences": _presences}
    found = step.named("kind", known, "kind of resource")(step, facts)
    step.equal("capacity", found.capacity, "the capacity of the resource")
    step.done()
    return found


def _gpus(step: ProofStep, facts: Facts) -> ResourceFacts:
    prices: dict[GpuKind, int] = {}
    gpus = facts.cluster.gpus_of_kind
    for one in step.steps("prices"):
        kind = one.text("gpu_type"), one.integer("gpu_memory")
        one.require(kind in gpus and kind not in prices, "is no kind of GPU of the cluster, or named twice")
        prices[kind] = one.integer("price", 1)
        one.done()
    step.require(bool(prices), "is empty", "prices")

    @cache
    def priced(shared: IterationFacts) -> tuple[Sequence[int], int, int, int]:
        """Return cost by level, overflow, and amount and moment of the least work of an iteration."""
        cost, times, tails = shared.cheapest(prices), shared.shortest_blocks, shared.tails
        own = [(cost[d - 1], 2 * tails[d - 1] + times[d - 1]) for d in shared.least_levels if cost]
        amount, moment = sum(price for price, _ in own), sum(price * twice for price, twice in own)
        return cost, shared.overflow(prices) if cost else 0, amount, moment

    def demand(job: JobFacts) -> DemandFacts | None:
        cost, overflow, amount, moment = priced(job.shared)
        if not cost:
            return None
        work = job.least_work(cost) + job.iterations * overflow
        return DemandFacts(job.release, work, job.shared.tail, job.offset(amount, moment))

    def loads(job: JobFacts) -> Sequence[int]:
        shared = job.shared
        # A worker stays on its GPU, unless the job may move.
        stays = job.job.restart_us is None and set(prices.values()) == {1}
        if not stays or not shared.blocks.keys() <= prices.keys():
            return ()
        least = shared.least_levels if job.iterations == 1 else shared.least_levels[:1] * shared.workers
        return sorted((job.iterations * shared.shortest_blocks[d - 1] for d in least), reverse=True)

    return ResourceFacts(sum(price * gpus[kind] for kind, price in prices.items()), demand, loads, prices=prices)


def _links(step: ProofStep, facts: Facts) -> ResourceFacts:
    links = frozenset(step.all_named("links", facts.cluster.link_numbers, "link of the cluster"))
    step.require(bool(links), "is empty", "links")

    @cache
    def needed(shared: IterationFacts) -> tuple[int, RateAndLatency | None]:
        """Return how many links a placement uses at least, and the best channel over one of them."""
        return shared.links_needed(links), shared.channel_over(links)

    def demand(job: JobFacts) -> DemandFacts | None:
        shared = job.shared
        uses, channel = needed(shared)
        if not uses or channel is None or not shared.blocks:
            return None
        transfers = shared.transfers_over(channel)
        # One transfer after the other: their middle is at least half of their sum before the end of the iteration.
        once = sum(transfers.shortest)
        offset = uses * job.offset(once, once * once)
        head = job.release + shared.shortest_blocks[0]
        return DemandFacts(head, uses * job.least_transfers(transfers), offset=offset)

    return ResourceFacts(len(links), demand, links=links)


def _power_cap(step: ProofStep, facts: Facts) -> ResourceFacts:
    cap = step.named("cap", facts.cluster.power_caps, "power cap")

    def demand(job: JobFacts) -> DemandFacts | None:
        work = capped_work(job, cap)
        return None if work is None else DemandFacts(job.release, work, job.shared.tail)

    return ResourceFacts(cap.watts, demand)


def capped_work(job: JobFacts, cap: PowerCap) -> int | None:
    """Return the least watts times time of a job's blocks; None where some of them may be outside a power cap."""
    shared, servers = job.shared, job.shared.cluster.cluster.servers
    if not shared.blocks or not {servers[s].name for s in shared.gpus} <= set(cap.servers):
        return None
    watts: Mapping[GpuKind, int] = {kind: shared.terms.power_w.get(kind[0], 0) for kind in shared.blocks}
    return job.least_work(shared.cheapest(watts))


def _licence(step: ProofStep, facts: Facts) -> ResourceFacts:
    name, licences = step.text("licence"), facts.instance.cluster.licences or {}
    step.require(licences.get(name, 0) > 0 and facts.finite, f"there is no licence {name!r} for a time", "licence")

    def demand(job: JobFacts) -> DemandFacts | None:
        held = job.job.restart_us is None and name in (job.job.licences or ())
        return DemandFacts(job.release, job.span, offset=job.span**2) if held else None

    return ResourceFacts(licences[name], demand)


def _presences(step: ProofStep, facts: Facts) -> ResourceFacts:
    servers = set(step.all_named("servers", facts.cluster.server_numbers, "server of the cluster"))
    step.require(bool(servers), "is empty", "servers")
    step.require(facts.finite, "on the cyclic horizon all jobs are always present")
    memory = max(facts.cluster.kinds[s][1] for s in servers)

    def demand(job: JobFacts) -> DemandFacts | None:
        stays = job.job.restart_us is None and job.shared.gpus.keys() <= servers
        return DemandFacts(job.release, job.shared.workers * job.span) if stays else None

    def loads(job: JobFacts) -> Sequence[int]:
        return [job.span] * job.shared.workers if demand(job) else ()

    def exclusive(jobs: Sequence[JobFacts]) -> bool:
        sizes = [job.shared.least_bytes for job in jobs]
        return all(one[0] + other[0] + max(one[1], other[1]) > memory for one, other in combinations(sizes, 2))

    return ResourceFacts(sum(facts.cluster.gpus[s] for s in servers), demand, loads, exclusive)
