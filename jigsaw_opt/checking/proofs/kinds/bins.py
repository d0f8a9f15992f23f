"""Links of groups of servers as bins: prices of jobs at which the bins hold too little (docs/proofs.md: bins)."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jigsaw_opt.checking.proofs.facts.cluster_facts import GpuKind
from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.facts.job_facts import JobFacts
from jigsaw_opt.checking.proofs.step import ProofStep

_CELLS = 2**14
"""Sizes are rounded down to multiples of the capacity over this, so that a bin has so many sums of sizes at most."""


class _JoinedServers(NamedTuple):
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
    asked, jobs = 0, dict[str, tuple[JobFacts, Mapping[int, int]]]()
    for name, price in prices.items():
        job = facts.job(step, name, "prices")
        step.require(job.job.restart_us is None, f"workers of job {name!r} may change their GPUs", "prices")
        crosses = job.shared.ring is not None and bool(job.shared.blocks and job.shared.sites)
        step.require(crosses, f"job {name!r} has no place on several servers", "prices")
        room = _fast_gpus(job, limit)
        fewest = _fewest((sum(room.get(s, 0) for s in group.servers) for group in groups), job.shared.workers)
        if fewest is None:
            return limit + 1
        step.require(fewest > 1, f"job {name!r} has room in one group", "prices")
        asked, jobs[name] = asked + price * fewest, (job, room)
    known = dict[tuple[int, frozenset[tuple[_JobInBin, int]]], int]()
    held = 0
    for group in groups:
        items = Counter[_JobInBin]()
        for name, (job, room) in jobs.items() if group.links else ():
            if servers := [s for s in group.servers if s in room]:
                items[_item(job, servers, group.links, facts.finite, prices[name])] += 1
        key = len(group.links), frozenset(items.items())
        if key not in known:
            known[key] = _most_valuable(items, len(group.links) * limit)
        held += known[key]
    step.require(held < asked, f"the prices add up to {asked}, of which the bins hold {held}", "prices")
    return limit + 1


def _groups(step: ProofStep, facts: Facts) -> list[_JoinedServers]:
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
    return [_JoinedServers(tuple(own), tuple(leaving.get(number, ()))) for number, own in servers.items()]


def _fast_gpus(job: JobFacts, limit: int) -> Mapping[int, int]:
    """Return, by server, the number of GPUs on which a worker does not delay the job beyond a limit."""
    lowest, fast = job.shared.levels[0], set[GpuKind]()
    for kind, times in job.shared.blocks.items():
        iteration = min(
            max([times[lowest - 1], *(time + rest for time, rest in zip(times[:lowest], site.transfers.rests))])
            for site in job.shared.sites
        )
        if job.release + job.iterations * iteration <= limit:
            fast.add(kind)
    return {s: gpus for s, gpus in job.shared.gpus.items() if job.shared.cluster.kinds[s] in fast}


def _fewest(rooms: Iterable[int], workers: int) -> int | None:
    """Return the least number of groups that have room for all workers; None where all together have not."""
    for count, room in enumerate(sorted(rooms, reverse=True), 1):
        workers -= room
        if workers <= 0:
            return count
    return None


def _item(job: JobFacts, servers: Sequence[int], links: Sequence[int], finite: bool, price: int) -> _JobInBin:
    channel = job.shared.channel_over(links)
    assert channel is not None, "a job without one was refused"
    size = job.least_transfers(job.shared.transfers_over(channel))
    if not finite:
        return _JobInBin(0, size, price)
    ready = min(job.shared.blocks[job.shared.cluster.kinds[s]][0] for s in servers)
    anywhere = min(site.ready[0] for site in job.shared.sites)
    return _JobInBin(len(links) * (job.release + max(anywhere, ready)), size, price)


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
