"""Facts of data-parallel jobs (docs/proofs.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from itertools import pairwise
from math import gcd

from .common import Document, block_us, fraction, memory, parts, runs_on, transfer_us, up

Kind = tuple[str, int]
"""A type of GPUs and their memory."""


def envelope(values: Sequence[int], first: int) -> list[tuple[int, int]]:
    """Return the corners of the largest convex function that is nowhere above values at first, first + 1, ..."""
    corners: list[tuple[int, int]] = []
    for x, y in enumerate(values, first):
        while len(corners) > 1:
            (a, fa), (b, fb) = corners[-2:]
            if (fb - fa) * (x - a) < (y - fa) * (b - a):
                break
            corners.pop()
        corners.append((x, y))
    return corners


def at(corners: list[tuple[int, int]], x: Fraction) -> Fraction:
    """Return the value of an envelope."""
    for (a, fa), (b, fb) in pairwise(corners):
        if a <= x <= b:
            return fa + Fraction(fb - fa, b - a) * (x - a)
    return Fraction(corners[0][1])


def counted(instance: Document) -> dict[str, int]:
    """Return with how many GPUs each server counts."""
    slots = sum(job["workers"] if "model" in job else len(job["shape"]["slots"]) for job in instance["jobs"])
    return {server["name"]: min(server["gpus"], max(1024, slots)) for server in instance["cluster"]["servers"]}


@dataclass(frozen=True, eq=False)
class Site:
    """A set of usable GPUs with a channel, and a type of the deepest level there."""

    gpus: dict[Kind, int]
    first: str
    rate: int
    latency: int


class JobFacts:
    """Facts of one job of an instance."""

    def __init__(self, instance: Document, job: Document) -> None:
        self.cluster, self.job, self.model = instance["cluster"], job, instance["models"][job["model"]]
        self.w, self.n, self.D = job["workers"], job["iterations"], len(self.model["levels"])
        self.counted = counted(instance)
        self.release, self.rule = job["release_us"], job["depth"]["rule"]
        self.known_rule = self.rule in ("full", "staircase", "free")
        self.known = self.known_rule and self.w <= 10**6
        self.p, self.deepest, self.taking = cache(self._p), cache(self._deepest), cache(self._taking)
        self.ready, self.ends = cache(self._ready), cache(self._ends)

    # Levels

    @cached_property
    def fixed(self) -> list[int] | None:
        """The levels of an iteration in ascending order; None under `free`."""
        if self.rule == "free":
            return None
        if self.rule == "full":
            return [self.D] * self.w
        return self.job["depth"].get("levels", [up(Fraction(self.D * k, self.w)) for k in range(1, self.w + 1)])

    @cached_property
    def coverage_and_total(self) -> tuple[int, int]:
        """The least coverage and total of levels under `free`."""
        depth, w, n, D = self.job["depth"], self.w, self.n, self.D
        c = min(depth["min_contributors"], w)
        progress = depth.get("min_progress")
        default = Fraction(w + 1, 2 * w) if progress is None else 0
        m = fraction(depth.get("mean_depth", default)) * D * w
        if progress is not None:
            worth = self.model["efficiency"]
            g = [weight // gcd(*worth["weight"]) for weight in worth["weight"]]

            def lost(b: int, c: int) -> int:
                noise = worth["noise_scale"][b - 1]
                return g[b - 1] * (10**6 - 10**6 * c * (1000 * w + noise) // (w * (1000 * c + noise)))

            whole = 10**6 * n * sum(g)
            spare = whole - up(fraction(progress) * whole)
            c = max(c, next((k for k in range(1, w) if lost(D, k) <= spare), w))
            if spare < 0:
                m = max(m, w * D + Fraction(1, n))
            else:
                curves = [envelope([lost(b, k) for k in range(c, w + 1)], c) for b in range(2, D + 1)]
                m = max(m, w + _least_sum(curves, Fraction(spare, n)))
        return c, n * m // 1 if "restart_us" in self.job else up(n * m)

    @cached_property
    def contributors(self) -> list[int]:
        """The least contributors of buckets 1, 2, ..."""
        if self.fixed is not None:
            return [sum(level >= b for level in self.fixed) for b in range(1, self.D + 1)]
        return [self.w] + [self.coverage_and_total[0]] * (self.D - 1)

    @cached_property
    def candidates(self) -> list[int]:
        """The candidate levels."""
        return sorted(set(self.fixed)) if self.fixed is not None else list(range(1, self.D + 1))

    @cached_property
    def least_levels(self) -> list[int]:
        """The least levels of an iteration."""
        if self.fixed is not None:
            return self.fixed
        c = self.coverage_and_total[0]
        return [self.D] * c + [1] * (self.w - c)

    def least_work(self, cost: Sequence[int]) -> int:
        """Return the least sum over all blocks of what levels 1, 2, ... cost."""
        if self.fixed is not None:
            return self.n * sum(cost[level - 1] for level in self.fixed)
        (c, total), n, D = self.coverage_and_total, self.n, self.D
        N = n * (self.w - c)
        if N == 0:
            return n * c * cost[-1]
        Y = min(max(total - n * c * D, N), N * D)
        return n * c * cost[-1] + up(N * at(envelope(cost, 1), Fraction(Y, N)))

    # GPUs

    def _p(self, gpu_type: str, level: int) -> int:
        """Return the time of a block."""
        return block_us(self.job, self.model, gpu_type, level)

    def _deepest(self, size: int) -> int:
        """Return the deepest level on GPUs of a memory."""
        return max((d for d in range(1, self.D + 1) if memory(self.model, d) <= size), default=0)

    @cached_property
    def links(self) -> list[Document]:
        """The links that routes may use."""
        links: list[Document] = self.cluster["links"]
        if "route_policy" not in self.job:
            return links
        policy = self.cluster["route_policies"][self.job["route_policy"]]
        closed = {name for name in policy.get("avoid", []) if name in self.cluster["switches"]}
        avoided = policy.get("avoid_links", [])
        return [link for link in links if link["name"] not in avoided and closed.isdisjoint(link["ends"])]

    def parts(self, links: list[Document]) -> list[list[Document]]:
        """Return the servers of the parts that links join."""
        nodes = [*(server["name"] for server in self.cluster["servers"]), *self.cluster["switches"]]
        return [[s for s in self.cluster["servers"] if s["name"] in part] for part in parts(nodes, links)]

    @cached_property
    def usable(self) -> dict[str, int]:
        """The number of usable GPUs of each server that has some."""
        counts = {}
        for server in self.cluster["servers"]:
            caps = [cap["watts"] for cap in self.cluster.get("power_caps", []) if server["name"] in cap["servers"]]
            if (
                runs_on(self.model, server["gpu_type"])
                and self.deepest(server["gpu_memory"]) >= min(self.candidates)
                and all(self.model.get("power_w", {}).get(server["gpu_type"], 0) <= watts for watts in caps)
            ):
                counts[server["name"]] = self.counted[server["name"]]
        sizes = {}
        for part in self.parts(self.links):
            if sum(counts.get(server["name"], 0) for server in part) >= self.w:
                sizes.update({s["name"]: counts[s["name"]] for s in part if s["name"] in counts})
        return sizes

    @cached_property
    def kinds(self) -> list[Kind]:
        """The usable kinds."""
        kinds = {(s["gpu_type"], s["gpu_memory"]) for s in self.cluster["servers"] if s["name"] in self.usable}
        return sorted(kinds) if any(self.deepest(size) == self.D for _, size in kinds) else []

    def _taking(self, level: int) -> list[Kind]:
        """Return the usable kinds that take a level."""
        return [kind for kind in self.kinds if level <= self.deepest(kind[1])]

    # Channels and sites

    @cached_property
    def channel(self) -> tuple[int, int] | None:
        """The best rate and latency."""
        if self.w < 2:
            return None
        servers = self.cluster["servers"]
        rates = {link["bandwidth"] for link in self.links} | {server["fabric_bandwidth"] for server in servers}
        latencies = {link["latency_us"] for link in self.links} | {server["fabric_latency_us"] for server in servers}
        rate = max((least for least in rates if self._reached(least, max(latencies))), default=None)
        latency = min((most for most in latencies if self._reached(0, most)), default=None)
        return None if rate is None or latency is None else (rate, latency)

    def _reached(self, least: int, most: int) -> bool:
        """Return whether some part has room with channels of at least a rate and at most a latency."""
        links = [one for one in self.links if one["bandwidth"] >= least and one["latency_us"] <= most]
        for part in self.parts(links):
            here = [server for server in part if server["name"] in self.usable]
            slow = [s["fabric_bandwidth"] < least or s["fabric_latency_us"] > most for s in here]
            room = sum(1 if one else self.usable[server["name"]] for server, one in zip(here, slow))
            if len(here) >= 2 and room >= self.w:
                return True
        return False

    @cached_property
    def sites(self) -> list[Site]:
        """All sites."""
        found = []
        for server in self.cluster["servers"]:
            if self.usable.get(server["name"], 0) >= self.w:
                found += self._sites([server], server["fabric_bandwidth"], server["fabric_latency_us"])
        if self.channel is not None:
            for part in self.parts(self.links):
                here = [server for server in part if server["name"] in self.usable]
                if len(here) >= 2:
                    found += self._sites(here, *self.channel)
        return found

    def _sites(self, servers: list[Document], rate: int, latency: int) -> Iterator[Site]:
        gpus: dict[Kind, int] = {}
        for server in servers:
            kind = server["gpu_type"], server["gpu_memory"]
            gpus[kind] = gpus.get(kind, 0) + self.usable[server["name"]]
        for first in sorted({kind[0] for kind in gpus if kind in self.taking(self.D)}):
            site = Site(gpus, first, rate, latency)
            if all(self._ready_at(site, b) is not None for b in range(1, self.D + 1)):
                yield site

    def _ready_at(self, site: Site, b: int) -> int | None:
        times = [(self.p(kind[0], b), count) for kind, count in site.gpus.items() if b <= self.deepest(kind[1])]
        for least in sorted(time for time, _ in times):
            if sum(count for time, count in times if time <= least) >= self.contributors[b - 1]:
                return max(self.p(site.first, b), least)
        return None

    def _ready(self, site: Site) -> list[int]:
        """Return when buckets 1, 2, ... are ready at the earliest."""
        return [self._ready_at(site, b) or 0 for b in range(1, self.D + 1)]

    def transfers(self, rate: int, latency: int) -> list[int]:
        """Return the times of the transfers of buckets 1, 2, ... with the least contributors."""
        if self.w < 2:
            return [0] * self.D
        return [transfer_us(self.job, self.model, b, c, rate, latency) for b, c in enumerate(self.contributors, 1)]

    def _ends(self, site: Site) -> list[int]:
        """Return, for buckets 1, 2, ..., the time of all transfers from this one on."""
        times = self.transfers(site.rate, site.latency)
        return [sum(times[b:]) for b in range(self.D)]

    def slopes(self, rate: int, latency: int) -> list[int]:
        """Return how much one more contributor adds to each transfer, in parts of a microsecond."""
        slopes = []
        for b, (least, time) in enumerate(zip(self.contributors, self.transfers(rate, latency)), 1):
            more = range(least + 1, self.w + 1)
            times = {c: transfer_us(self.job, self.model, b, c, rate, latency) for c in more}
            slopes.append(min((2**16 * (times[c] - time) // (c - least) for c in more), default=0))
        return slopes

    def longer(self, slopes: list[int]) -> list[int]:
        """Return by how much the least total of levels makes the transfers from buckets 1, 2, ... on longer."""
        if self.fixed is not None or self.w < 2:
            return [0] * self.D
        c = self.coverage_and_total[0]
        found = []
        for b in range(self.D):
            cost = [sum(slopes[b:d]) for d in range(1, self.D + 1)]
            found.append(up(Fraction(self.least_work(cost) - self.n * c * cost[-1], 2**16)))
        return found

    def all_transfers(self, rate: int, latency: int) -> int:
        """Return the least time of all transfers of the job at a channel."""
        return self.n * sum(self.transfers(rate, latency)) + self.longer(self.slopes(rate, latency))[0]

    # Times

    def _at_once(self, site: Site) -> int:
        ready = self.ready(site)
        return max(ready[-1], *(r + e for r, e in zip(ready, self.ends(site))))

    @cached_property
    def iteration(self) -> int:
        """The least time of an iteration."""
        return min(map(self._at_once, self.sites), default=0)

    @cached_property
    def span(self) -> int:
        """The least time from the first start to the end."""
        if not self.sites:
            return 0
        slopes = map(min, zip(*(self.slopes(site.rate, site.latency) for site in self.sites)))
        ends = map(min, zip(*(map(sum, zip(self.ready(site), self.ends(site))) for site in self.sites)))
        later = (self.n * end + longer for end, longer in zip(ends, self.longer(list(slopes))))
        return max(self.n * self.iteration, *later)

    @property
    def completion(self) -> int:
        """The least completion time."""
        return self.release + self.span

    def longest(self, gpu_type: str, level: int, site: Site) -> int:
        """Return the time from a start of a block of a level to the end of the transfers behind its buckets."""
        return max(self.p(gpu_type, b) + end for b, end in enumerate(self.ends(site)[:level], 1))

    def tail_of(self, level: int) -> int:
        """Return the least time from the end of a block of a level to the end of its iteration."""
        kinds = sorted({kind[0] for kind in self.taking(level)})
        tails = (max(0, self.longest(t, level, s) - self.p(t, level)) for t in kinds for s in self.sites)
        return min(tails, default=0)

    @property
    def tail(self) -> int:
        """The least tail of all candidate levels."""
        return min(map(self.tail_of, self.candidates))

    def shortest(self, level: int) -> int:
        """Return the least duration of a block of a level on a usable kind that takes it."""
        return min((self.p(t, level) for t, _ in self.taking(level)), default=0)

    def offset(self, work: Sequence[tuple[int, int]]) -> int:
        """Return the mean-busy-time offset of amounts with twice the distances of their middles from the end."""
        u = sum(amount for amount, _ in work)
        return self.n * sum(amount * twice for amount, twice in work) + self.iteration * self.n * (self.n - 1) * u


def _least_sum(curves: list[list[tuple[int, int]]], most: Fraction) -> Fraction:
    """Return the least sum of places whose values on falling envelopes add up to at most a number."""
    place, value = Fraction(sum(curve[0][0] for curve in curves)), Fraction(sum(curve[0][1] for curve in curves))
    steps = [(fb - fa, b - a) for curve in curves for (a, fa), (b, fb) in pairwise(curve)]
    for rise, run in sorted(steps, key=lambda step: Fraction(*step)):
        if value <= most:
            break
        part = min(Fraction(1), (value - most) / -rise)
        place, value = place + part * run, value + part * rise
    return place
