"""What data-parallel jobs ask of resources (docs/proofs.md)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

from .common import Document, different, fields, memory, need, parts
from .facts import JobFacts, Kind, counted

FIELDS: dict[str, dict[str, type]] = {
    "gpus": {"prices": list},
    "links": {"links": list},
    "power cap": {"cap": str},
    "licence": {"licence": str},
    "presences": {"servers": list},
}


@dataclass(frozen=True)
class Demand:
    """What a job asks of a resource."""

    head: int
    work: int
    tail: int
    offset: int


class Resource:
    """A resource of an argument, whose own facts are right."""

    def __init__(self, instance: Document, stated: Any) -> None:
        need(type(stated) is dict and stated.get("kind") in list(FIELDS), "there is no such kind of resource")
        self.kind, self.stated, self.cluster = stated["kind"], stated, instance["cluster"]
        fields(stated, {"kind": str, "capacity": int, **FIELDS[self.kind]}, "resource")
        finite = self.kind not in ("licence", "presences") or instance["horizon"] == "finite"
        need(finite, f"{self.kind} are for the finite horizon")
        servers, counts = self.cluster["servers"], counted(instance)
        self.numbers: dict[Kind, int] = {}
        for server in servers:
            gpu = server["gpu_type"], server["gpu_memory"]
            self.numbers[gpu] = self.numbers.get(gpu, 0) + counts[server["name"]]
        self.prices: dict[Kind, int] = {}
        if self.kind == "gpus":
            capacity = self._prices()
        elif self.kind == "links":
            different(stated["links"], [link["name"] for link in self.cluster["links"]], "links")
            capacity = len(stated["links"])
            need(capacity > 0, "there are no links")
        elif self.kind == "power cap":
            caps = {cap["name"]: cap["watts"] for cap in self.cluster.get("power_caps", [])}
            need(stated["cap"] in caps, "there is no such power cap")
            capacity = caps[stated["cap"]]
        elif self.kind == "licence":
            capacity = self.cluster.get("licences", {}).get(stated["licence"], 0)
            need(capacity > 0, "there is no such licence")
        else:
            different(stated["servers"], [server["name"] for server in servers], "servers")
            need(bool(stated["servers"]), "there are no servers")
            capacity = sum(counts[name] for name in stated["servers"])
        need(stated["capacity"] == capacity, "the capacity is another one")
        self.capacity = capacity

    def _prices(self) -> int:
        for price in self.stated["prices"]:
            fields(price, {"gpu_type": str, "gpu_memory": int, "price": int}, "price")
            gpu = price["gpu_type"], price["gpu_memory"]
            need(gpu in self.numbers and gpu not in self.prices and price["price"] >= 1, "a price is wrong")
            self.prices[gpu] = price["price"]
        need(bool(self.prices), "there are no prices")
        return sum(price * self.numbers[gpu] for gpu, price in self.prices.items())

    def demand(self, job: JobFacts) -> Demand:
        """Return what a job asks of the resource, or raise where the page defines nothing."""
        name, levels = job.job["name"], range(1, job.D + 1)
        if self.kind in ("licence", "presences"):
            need("restart_us" not in job.job, f"{name} may move")
            if self.kind == "licence":
                need(self.stated["licence"] in job.job.get("licences", []), f"{name} does not hold the licence")
                return Demand(job.release, job.span, 0, job.span**2)
            need(job.usable.keys() <= set(self.stated["servers"]), f"{name} may be on other servers")
            return Demand(job.release, job.w * job.span, 0, 0)
        need(bool(job.kinds), f"{name} has no usable kinds")
        if self.kind == "links":
            return self._of_links(job)
        if self.kind == "power cap":
            servers = next(cap["servers"] for cap in self.cluster["power_caps"] if cap["name"] == self.stated["cap"])
            need(job.usable.keys() <= set(servers), f"{name} may be on servers outside the cap")
            watts = job.model.get("power_w", {})
            cost = [min(watts.get(t, 0) * job.p(t, d) for t, _ in job.taking(d)) for d in levels]
            return Demand(job.release, job.least_work(cost), job.tail, 0)
        cost = self.cost(job)
        work = job.least_work(cost) + job.n * self.overflow(job)
        middles = [(cost[d - 1], 2 * job.tail_of(d) + job.shortest(d)) for d in job.least_levels]
        return Demand(job.release, work, job.tail, job.offset(middles))

    def cost(self, job: JobFacts) -> list[int]:
        """Return what levels 1, 2, ... cost at least on GPUs with these prices."""
        levels = range(1, job.D + 1)
        return [min(self.prices.get(gpu, 0) * job.p(gpu[0], d) for gpu in job.taking(d)) for d in levels]

    def overflow(self, job: JobFacts) -> int:
        """Return what fixed levels of an iteration cost more because their cheapest GPUs are too few."""
        regrets: dict[Kind, list[int]] = {}
        for level in job.fixed or []:
            costs = sorted((self.prices.get(gpu, 0) * job.p(gpu[0], level), gpu) for gpu in job.taking(level))
            regrets.setdefault(costs[0][1], []).append(costs[1][0] - costs[0][0] if len(costs) > 1 else 0)
        return sum(sum(sorted(some)[: max(0, len(some) - self.numbers[gpu])]) for gpu, some in regrets.items())

    def _of_links(self, job: JobFacts) -> Demand:
        needed = self.needed_links(job)
        need(needed is not None, f"{job.job['name']} needs none of the links, or has no best channel")
        u, rate, latency = needed  # type: ignore[misc]
        e = sum(job.transfers(rate, latency))
        work = u * job.all_transfers(rate, latency)
        return Demand(job.release + job.shortest(1), work, 0, job.offset([(u * e, e)]))

    def needed_links(self, job: JobFacts, apart: bool = False) -> tuple[int, int, int] | None:
        """Return how many of the links a job needs, and its channel there; None if it needs none.

        A job that is `apart` is on at least two servers.
        """
        if job.channel is None:
            return None
        links = [link for link in self.cluster["links"] if link["name"] in self.stated["links"]]
        others = [link for link in self.cluster["links"] if link["name"] not in self.stated["links"]]
        joined = parts([*(s["name"] for s in self.cluster["servers"]), *self.cluster["switches"]], others)
        sizes = sorted((sum(job.usable.get(name, 0) for name in part) for part in joined), reverse=True)
        k = next(k for k in range(1, len(sizes) + 1) if sum(sizes[:k]) >= job.w)
        if apart and all(len(job.usable.keys() & part) <= 1 for part in joined):
            k = max(k, 2)
        if k == 1:
            return None
        ends = [[next(part for part in joined if end in part) for end in link["ends"]] for link in links]
        both = any(
            a is not b and not (job.usable.keys().isdisjoint(a) or job.usable.keys().isdisjoint(b)) for a, b in ends
        )
        rate = min(job.channel[0], max(link["bandwidth"] for link in links))
        latency = max(job.channel[1], min(link["latency_us"] for link in links))
        return k - 1 if both else k, rate, latency

    def check_exclusion(self, jobs: list[JobFacts]) -> None:
        """Raise unless any two of the jobs exclude each other, where the resource asks for it."""
        if self.kind != "presences":
            return
        largest = max(s["gpu_memory"] for s in self.cluster["servers"] if s["name"] in self.stated["servers"])
        for one, other in combinations(jobs, 2):
            need(together(one, other) > largest, f"{one.job['name']} and {other.job['name']} may share a GPU")


def together(one: JobFacts, other: JobFacts) -> int:
    """Return the states of both jobs and the larger of their least activations."""
    states, activations = [], []
    for job in (one, other):
        states.append(job.model["state_factor"] * sum(s["parameter_bytes"] for s in job.model["segments"]))
        activations.append(memory(job.model, min(job.candidates)) - states[-1])
    return sum(states) + max(activations)
