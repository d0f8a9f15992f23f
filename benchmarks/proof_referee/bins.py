"""The kind of argument `bins` (docs/proofs.md)."""

from __future__ import annotations

from typing import Any

from .common import Document, different, kind, need, parts
from .facts import JobFacts


@kind("bins", limit=int, links=list, prices=dict)
def _bins(instance: Document, argument: Document) -> int:
    U, cluster = argument["limit"], instance["cluster"]
    need(instance["objective"] != "weighted_completion", "bins bound no weighted_completion")
    jobs = {job["name"]: JobFacts(instance, job) for job in instance["jobs"] if "model" in job}
    prices: dict[str, Any] = argument["prices"]
    need(all(name in jobs and type(price) is int and price >= 1 for name, price in prices.items()), "a price is wrong")
    items = [jobs[name] for name in prices]
    need(all(job.known for job in items), "a job has a depth rule of its own")
    need(not any("restart_us" in job.job for job in items), "a job may move")
    need(all(job.channel is not None and job.kinds and job.sites for job in items), "a job has no place")
    different(argument["links"], [link["name"] for link in cluster["links"]], "links")
    cut = [link for link in cluster["links"] if link["name"] in argument["links"]]
    rest = [link for link in cluster["links"] if link["name"] not in argument["links"]]
    servers = {server["name"]: server for server in cluster["servers"]}
    groups = [part for part in parts([*servers, *cluster["switches"]], rest) if not servers.keys().isdisjoint(part)]
    need(all(sum(end in group for group in groups for end in link["ends"]) == 1 for link in cut), "a link is not cut")
    for job in items:
        job_rooms = sorted((sum(_room(job, servers, group, U).values()) for group in groups), reverse=True)
        if sum(job_rooms) < job.w:
            return U + 1
        need(job_rooms[0] < job.w, f"{job.job['name']} fits into one group")
    value, known = 0, {}
    for group in groups:
        leaving = [link for link in cut if not group.isdisjoint(link["ends"])]
        here = []
        for job in items if leaving else []:
            room = _room(job, servers, group, U)
            if room:
                assert job.channel is not None
                rate = min(job.channel[0], max(link["bandwidth"] for link in leaving))
                latency = max(job.channel[1], min(link["latency_us"] for link in leaving))
                least = max(min(job.ready(site)[0] for site in job.sites), min(job.p(t, 1) for t in room))
                head = 0 if instance["objective"] == "period" else job.release + least
                here.append((head, job.all_transfers(rate, latency), prices[job.job["name"]]))
        key = len(leaving), tuple(sorted(here, reverse=True))
        if key not in known:
            known[key] = _most(*key, U)
        value += known[key]
    wanted = 0
    for job in items:
        rooms = sorted((sum(_room(job, servers, group, U).values()) for group in groups), reverse=True)
        count = next(k for k in range(1, len(rooms) + 1) if sum(rooms[:k]) >= job.w)
        wanted += prices[job.job["name"]] * count
    need(value < wanted, "groups have room for all that is needed")
    return U + 1


def _room(job: JobFacts, servers: dict[str, Document], group: set[str], U: int) -> dict[str, int]:
    """Return, by type, the usable GPUs of a group that are fast enough."""
    d, count = min(job.candidates), {}
    for name in sorted(group & job.usable.keys()):
        t = servers[name]["gpu_type"]
        least = min(max(job.p(t, d), job.longest(t, d, site)) for site in job.sites)
        if job.release + job.n * least <= U:
            count[t] = count.get(t, 0) + job.usable[name]
    return count


def _most(m: int, items: tuple[tuple[int, int, int], ...], U: int) -> int:
    """Return the largest price of a set of items (head, size, price), sorted by falling heads, that fits."""
    unit = max(1, -(-m * U // 2**14))
    best, sets = 0, [(0, 0)]
    for head, size, price in items:
        capacity = m * (U - head) // unit if head <= U else -1
        more = [(used + size // unit, worth + price) for used, worth in sets]
        best = max([best, *(worth for used, worth in more if used <= capacity)])
        larger = sorted(sets + more, key=lambda pair: (pair[0], -pair[1]))
        sets = []
        for used, worth in larger:
            if used <= m * U // unit and (not sets or worth > sets[-1][1]):
                sets.append((used, worth))
    return best
