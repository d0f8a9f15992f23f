"""Links of groups of servers as bins: prices of jobs at which the bins hold too little (docs/proofs.md: bins)."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from jigsaw_opt.checking.proofs.facts.cluster_facts import GpuKind
from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.facts.job_facts import JobFacts
from jigsaw_opt.checking.proofs.step import ProofStep

_CELLS = 2**14
"""Sizes are counted in parts of one over this of the capacity, rounded down."""


class _LeftGroup(NamedTuple):
    """Servers that are joined without the named links, and those of the links that leave them, all by number."""

    servers: tuple[int, ...]
    links: tuple[int, ...]


class _JobInBin(NamedTuple):
    """A job in a bin: time that no link of the group is used before it, least time on a link, and price."""

    head: int
    size: int
    price: int


def bins(step: ProofStep, facts: Facts) -> int:
    """Return one more than an objective within which the bins do not hold all jobs that have a price."""
    limit, groups = step.integer("limit"), _groups(step, facts)
    prices = step.named_integers("prices", 1)
    asked, jobs = 0, dict[str, tuple[JobFacts, frozenset[GpuKind]]]()
    for name, price in prices.items():
        job = facts.job(step, name, "prices")
        step.require(job.job.restart_us is None, f"workers of job {name!r} may change their GPUs", "prices")
        crosses = job.shared.ring is not None and bool(job.shared.blocks and job.shared.sites)
        step.require(crosses, f"job {name!r} has no place on several servers", "prices")
        allowed = _allowed(job, limit)
        fewest = _fewest(job, groups, facts, allowed)
        if fewest is None:
            return limit + 1
        step.require(fewest > 1, f"job {name!r} has room in one group", "prices")
        asked, jobs[name] = asked + price * fewest, (job, allowed)
    known = dict[tuple[int, frozenset[tuple[_JobInBin, int]]], int]()
    held = 0
    for group in groups:
        items = Counter[_JobInBin]()
        for name, (job, allowed) in jobs.items() if group.links else ():
            if _usable(job, group, facts, allowed):
                items[_item(job, group, facts, allowed, prices[name])] += 1
        key = len(group.links), frozenset(items.items())
        if key not in known:
            known[key] = _most_valuable(items, len(group.links) * limit)
        held += known[key]
    step.require(held < asked, f"the prices add up to {asked}, of which the bins hold {held}", "prices")
    return limit + 1


def _groups(step: ProofStep, facts: Facts) -> list[_LeftGroup]:
    named = set(step.all_named("links", facts.cluster.link_numbers, "link of the cluster"))
    links = facts.cluster.cluster.links
    part = facts.cluster.part_of([k for k in range(len(links)) if k not in named])
    servers, leaving = dict[int, list[int]](), dict[int, list[int]]()
    for s, server in enumerate(facts.cluster.cluster.servers):
        servers.setdefault(part[server.name], []).append(s)
    for k in sorted(named):
        left = [part[end] for end in links[k].ends if end in part]
        step.require(len(left) == 1, f"link {links[k].name!r} does not leave exactly one group", "links")
        leaving.setdefault(left[0], []).append(k)
    return [_LeftGroup(tuple(own), tuple(leaving.get(number, ()))) for number, own in servers.items()]


def _allowed(job: JobFacts, limit: int) -> frozenset[GpuKind]:
    """Return the kinds of GPU on which a worker does not delay the job beyond a limit."""
    lowest, found = job.shared.levels[0], []
    for kind, times in job.shared.blocks.items():
        iteration = min(
            max([times[lowest - 1], *(time + rest for time, rest in zip(times[:lowest], site.transfers.rests))])
            for site in job.shared.sites
        )
        if job.release + job.iterations * iteration <= limit:
            found.append(kind)
    return frozenset(found)


def _usable(job: JobFacts, group: _LeftGroup, facts: Facts, allowed: frozenset[GpuKind]) -> Mapping[int, int]:
    """Return the number of GPUs that a job may use within the limit, by server of a group."""
    gpus, kinds = job.shared.gpus, facts.cluster.kinds
    return {s: gpus[s] for s in group.servers if s in gpus and kinds[s] in allowed}


def _fewest(job: JobFacts, groups: Sequence[_LeftGroup], facts: Facts, allowed: frozenset[GpuKind]) -> int | None:
    """Return the least number of groups that have room for all workers; None where all together have not."""
    rooms = sorted((sum(_usable(job, group, facts, allowed).values()) for group in groups), reverse=True)
    missing = job.shared.workers
    for count, room in enumerate(rooms, 1):
        missing -= room
        if missing <= 0:
            return count
    return None


def _item(job: JobFacts, group: _LeftGroup, facts: Facts, allowed: frozenset[GpuKind], price: int) -> _JobInBin:
    channel = job.shared.channel_over(group.links)
    assert channel is not None, "a job without one was refused"
    size = job.least_transfers(job.shared.transfers_over(channel))
    if not facts.finite:
        return _JobInBin(0, size, price)
    kinds = {facts.cluster.kinds[s] for s in _usable(job, group, facts, allowed)}
    ready = min(job.shared.blocks[kind][0] for kind in kinds)
    anywhere = min(site.ready[0] for site in job.shared.sites)
    return _JobInBin(len(group.links) * (job.release + max(anywhere, ready)), size, price)


def _most_valuable(items: Mapping[_JobInBin, int], capacity: int) -> int:
    """Return the largest price of items that fit into a bin, all sizes rounded down.

    With the latest heads first, all items so far may go with the last one.
    """
    unit = max(1, -(-capacity // _CELLS))
    sums, values, best = [0], [0], 0  # undominated sums of sizes, ascending, and their values
    for item, copies in sorted(items.items(), reverse=True):
        room = (capacity - item.head) // unit
        for count in _bundles(copies):
            sums, values = _merged(sums, values, count * (item.size // unit), count * item.price, capacity // unit)
        if room >= 0:
            best = max(best, values[bisect_right(sums, room) - 1])
    return best


def _bundles(copies: int) -> Iterator[int]:
    """Yield numbers of which every number up to `copies` is a sum of some."""
    bundle = 1
    while copies > 0:
        yield min(bundle, copies)
        copies -= bundle
        bundle *= 2


def _merged(sums: list[int], values: list[int], size: int, value: int, most: int) -> tuple[list[int], list[int]]:
    """Return the undominated sums with and without one more bundle."""
    pairs = sorted(
        [*zip(sums, values, strict=True), *((s + size, v + value) for s, v in zip(sums, values, strict=True))]
    )
    found: tuple[list[int], list[int]] = ([], [])
    for total, worth in pairs:
        if total > most:
            break
        if found[1] and worth <= found[1][-1]:
            continue
        if found[0] and found[0][-1] == total:
            found[1][-1] = worth
        else:
            found[0].append(total)
            found[1].append(worth)
    return found
