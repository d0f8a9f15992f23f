"""Rows of a plan: variables with their least and largest values, and linear rows that every good plan keeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import combinations, pairwise, permutations, product
from typing import NamedTuple

from .common import Document, block_us, fraction, memory, need, runs_on, transfer_us, up
from .routes import channel, joined, routes

Name = tuple
"""A name of a variable, with tuples in place of lists."""
Terms = dict[Name, int]


class Operation(NamedTuple):
    """A block or a transfer that may use a resource."""

    job: int
    iteration: int
    part: str | int  # GPU or bucket
    present: Name
    start: Name
    done: Name
    length: Name


class Gpu(NamedTuple):
    """A GPU of the cluster."""

    name: str
    server: Document


class Rows:
    """The variables of an instance and a limit with their values, the rows, and the operations by resource."""

    def __init__(self, instance: Document, limit: int) -> None:
        self.limit, self.cyclic = limit, instance["horizon"] == "cyclic"
        self.horizon = 2 * limit if self.cyclic else limit
        self.weighted = instance["objective"] == "weighted_completion"
        self.cluster = instance["cluster"]
        self.gpus = [
            Gpu(f"{server['name']}/{k}", server) for server in self.cluster["servers"] for k in range(server["gpus"])
        ]
        self.values: dict[Name, tuple[int, int]] = {}
        self.rows: list[tuple[Terms, int]] = []
        self.resources: defaultdict[str, list[Operation]] = defaultdict(list)
        self.jobs = [
            JobRows(self, number, job, instance["models"][job["model"]])
            for number, job in enumerate(
                job
                for job in instance["jobs"]
                if "model" in job and "restart_us" not in job and job["depth"]["rule"] in ("full", "staircase", "free")
            )
        ]
        if self.weighted:
            self.most([(job.weight, job.of("end", job.n)) for job in self.jobs], limit)
        else:
            self._loads()
            self._links()
        for resource in list(self.resources):
            self._orders(resource)
        self._earlier_orders()
        self._gpus_alike()
        if self.cyclic:
            self._memory()
        need(len(self.rows) <= 60000, "there are more than 60000 rows")

    def most(self, terms: Iterable[tuple[int, Name]], most: int) -> None:
        """Add the row that a sum is at most a number."""
        row: Terms = defaultdict(int)
        for factor, name in terms:
            row[name] += factor
        self.rows.append(({name: factor for name, factor in row.items() if factor}, most))

    def equal(self, terms: Iterable[tuple[int, Name]], value: int) -> None:
        """Add the two rows that a sum is a number."""
        terms = list(terms)
        self.most(terms, value)
        self.most([(-factor, name) for factor, name in terms], -value)

    def _loads(self) -> None:
        for gpu in self.gpus:
            jobs = [job for job in self.jobs if gpu in job.allowed]
            if not jobs:
                continue
            heads, tails = {job.head for job in jobs}, {job.tail for job in jobs}
            load = ("load", gpu.name)
            self.values[load] = (0, self.limit - min(heads) - min(tails))
            blocks = {job.number: [(1, job.of("length", i, gpu.name)) for i in job.iterations] for job in jobs}
            self.equal([(-1, load), *(term for terms in blocks.values() for term in terms)], 0)
            for head, tail in product(sorted(heads), sorted(tails)):
                those = [job for job in jobs if job.head >= head and job.tail >= tail]
                if those:
                    terms = [term for job in those for term in blocks[job.number]]
                    self.most(terms, self.limit - head - tail)
        loads = [(-1, name) for name in self.values if name[0] == "load"]
        self.most(loads, -sum(job.least_work() for job in self.jobs))

    def _links(self) -> None:
        for link in self.cluster["links"]:
            jobs = [job for job in self.jobs if link["name"] in job.links]
            for head in sorted({job.link_head for job in jobs}):
                terms = [
                    (job.link_load(link["name"]), job.of("uses", link["name"])) for job in jobs if job.link_head >= head
                ]
                self.most(terms, self.limit - head)

    def _orders(self, resource: str) -> None:
        T = self.limit
        for one, other in combinations(self.resources[resource], 2):
            if one.job == other.job:
                continue
            order = self._order(one, other)
            self.values[order] = (-1, 2) if self.cyclic else (0, 1)
            both = [one.present, other.present]
            first, second = [(1, one.done), (-1, other.start)], [(1, other.done), (-1, one.start)]
            if self.cyclic:
                self.most([*first, (-T, order), *((4 * T, name) for name in both)], 8 * T)
                self.most([*second, (T, order), *((4 * T, name) for name in both)], 9 * T)
            else:
                self.most([*first, (T, order), *((T, name) for name in both)], 3 * T)
                self.most([*second, (-T, order), *((T, name) for name in both)], 2 * T)

    def _order(self, one: Operation, other: Operation) -> Name:
        names = [self.jobs[operation.job].name for operation in (one, other)]
        return ("order", names[0], one.iteration, one.part, names[1], other.iteration, other.part)

    def _earlier_orders(self) -> None:
        for order in [name for name in self.values if name[0] == "order"]:
            _, one, i, x, other, k, y = order
            for later in (("order", one, i, x, other, k + 1, y), ("order", one, i - 1, x, other, k, y)):
                if later in self.values:
                    sign = -1 if self.cyclic else 1
                    self.most([(sign, order), (-sign, later)], 0)

    def _gpus_alike(self) -> None:
        for gpu, following in pairwise(self.gpus):
            if gpu.server is following.server:
                names = [self._digits(one) for one in (gpu, following)]
                if names[0]:
                    powers = [2**k for k in reversed(range(len(names[0])))]
                    self.most([*zip((-power for power in powers), names[0]), *zip(powers, names[1])], 0)

    def _digits(self, gpu: Gpu) -> list[Name]:
        jobs = [job for job in self.jobs if gpu in job.allowed]
        return [job.level(1, gpu, 1) for job in jobs] + [
            job.level(i, gpu, d) for job in jobs for i in job.iterations for d in range(job.D, 1, -1)
        ]

    def _memory(self) -> None:
        for number, gpu in enumerate(self.gpus):
            most = ("activations", number)
            self.values[most] = (0, gpu.server["gpu_memory"])
            jobs = [job for job in self.jobs if gpu in job.allowed]
            states = [(job.state, job.level(1, gpu, 1)) for job in jobs]
            self.most([(1, most), *states], gpu.server["gpu_memory"])
            for job in jobs:
                more = {d: job.activations(d) - job.activations(d - 1) for d in job.buckets}
                for i in job.iterations:
                    self.most([*((more[d], job.level(i, gpu, d)) for d in job.buckets), (-1, most)], 0)


class JobRows:
    """The variables and rows of one job."""

    def __init__(self, rows: Rows, number: int, job: Document, model: Document) -> None:
        self.rows, self.number, self.job, self.model = rows, number, job, model
        self.name, self.weight = job["name"], job["weight"]
        self.w, self.n, self.D = job["workers"], job["iterations"], len(model["levels"])
        self.iterations, self.buckets = range(1, self.n + 1), range(1, self.D + 1)
        self.state = memory(model, 1) - self.activations(1)
        self.allowed = [gpu for gpu in rows.gpus if self._deepest(gpu) >= 1]
        types = {gpu.server["gpu_type"] for gpu in self.allowed}
        self.block = {t: [0, *(block_us(job, model, t, d) for d in self.buckets)] for t in types}
        self.fewest, self.largest = self._contributors()
        self.spreads = self._spreads()
        self.links: set[str] = set().union(*(links for links, _, _ in self.spreads.values())) if self.w > 1 else set()
        self.least = {b: min((self.lasts(m, b, self.fewest[b]) for m in self.spreads), default=0) for b in self.buckets}
        self.quickest = [min((times[d] for times in self.block.values()), default=0) for d in range(self.D + 1)]
        self.head = 0 if rows.cyclic else job["release_us"]
        self.tail = 0 if rows.cyclic or self.w == 1 else self.least[self.D]
        self.link_head = 0 if rows.cyclic else job["release_us"] + self.quickest[1]
        self._add_placement()
        for i in self.iterations:
            self._add_iteration(i)
        if job["depth"]["rule"] == "free":
            self._add_depth()

    def of(self, what: str, *rest: object) -> Name:
        """Return the name of a variable of the job."""
        return (what, self.name, *rest)

    def level(self, i: int, gpu: Gpu, d: int) -> Name:
        """Return the variable whether a worker there has at least a level."""
        return self.of("on", gpu.name) if d == 1 else self.of("level", i, gpu.name, d)

    def activations(self, d: int) -> int:
        """Return the activations of a level; level 0 has none."""
        parameters = sum(segment["parameter_bytes"] for segment in self.model["segments"])
        return memory(self.model, d) - self.model["state_factor"] * parameters if d else 0

    def lasts(self, spread: Name, bucket: int, contributors: int) -> int:
        """Return the duration of a transfer in a spread."""
        _, rate, latency = self.spreads[spread]
        return transfer_us(self.job, self.model, bucket, contributors, rate, latency)

    def least_work(self) -> int:
        """Return the least work of all blocks."""
        if not self.allowed:
            return 0
        step = [min(times[d] - times[d - 1] for times in self.block.values()) for d in self.buckets]
        work = self.n * (self.w * step[0] + sum(self.fewest[d] * step[d - 1] for d in self.buckets if d > 1))
        if self.job["depth"]["rule"] == "free" and self.D > 1:
            more = self._least_levels() - self.n * sum(self.fewest.values())
            work += max(0, more) * min(step[1:])
        return work

    def link_load(self, link: str) -> int:
        """Return the least time of all transfers on a link, if they use it."""
        spreads = [spread for spread, (links, _, _) in self.spreads.items() if link in links]
        return self.n * sum(min(self.lasts(m, b, self.fewest[b]) for m in spreads) for b in self.buckets)

    def _deepest(self, gpu: Gpu) -> int:
        if not runs_on(self.model, gpu.server["gpu_type"]):
            return 0
        return max((d for d in self.buckets if memory(self.model, d) <= gpu.server["gpu_memory"]), default=0)

    def _contributors(self) -> tuple[dict[int, int], dict[int, int]]:
        rule, w, D = self.job["depth"], self.w, self.D
        if rule["rule"] == "free":
            fewest = min(rule["min_contributors"], w)
            return {b: w if b == 1 else fewest for b in self.buckets}, dict.fromkeys(self.buckets, w)
        stairs = rule.get("levels", [up(Fraction(D * k, w)) for k in range(1, w + 1)])
        levels = stairs if rule["rule"] == "staircase" else [D] * w
        fixed = {b: sum(level >= b for level in levels) for b in self.buckets}
        return fixed, fixed

    def _spreads(self) -> dict[Name, tuple[frozenset[str], int, int]]:
        servers = self.rows.cluster["servers"]
        route = routes(self.rows.cluster, self.job)
        room = [sum(gpu.server is server for gpu in self.allowed) for server in servers]

        def numbers(k: int, left: int, used: list[str]) -> Iterator[Name]:
            if k == len(servers):
                if left == 0:
                    yield ()
            elif left <= sum(room[k:]):
                for count in range(min(left, room[k]) + 1):
                    names = [*used, servers[k]["name"]] if count else used
                    if not count or joined(names, route):
                        yield from ((count, *rest) for rest in numbers(k + 1, left - count, names))

        found = {}
        for spread in numbers(0, self.w, []):
            counts = {server["name"]: count for server, count in zip(servers, spread)}
            found[spread] = channel(self.rows.cluster, counts, route)
            need(len(found) <= 200, f"job {self.name} has more than 200 spreads")
        return found

    def _least_levels(self) -> int:
        rule = self.job["depth"]
        mean = rule.get("mean_depth", 0 if "min_progress" in rule else Fraction(self.w + 1, 2 * self.w))
        return up(fraction(mean) * self.D * self.w * self.n)

    def _add_placement(self) -> None:
        rows, values = self.rows, self.rows.values
        values.update({self.of("on", gpu.name): (0, 1) for gpu in self.allowed})
        values.update({self.of("spread", spread): (0, 1) for spread in self.spreads})
        rows.equal([(1, self.of("spread", spread)) for spread in self.spreads], 1)
        rows.equal([(1, self.of("on", gpu.name)) for gpu in self.allowed], self.w)
        for k, server in enumerate(rows.cluster["servers"]):
            there = [(1, self.of("on", gpu.name)) for gpu in self.allowed if gpu.server is server]
            if there:
                rows.equal([*there, *((-spread[k], self.of("spread", spread)) for spread in self.spreads)], 0)
        for link in sorted(self.links):
            values[self.of("uses", link)] = (0, 1)
            those = [(-1, self.of("spread", spread)) for spread, used in self.spreads.items() if link in used[0]]
            rows.equal([(1, self.of("uses", link)), *those], 0)

    def _add_iteration(self, i: int) -> None:
        rows, T = self.rows, self.rows.limit
        begin, end = self.of("begin", i), self.of("end", i)
        last = rows.horizon if rows.cyclic else min(rows.horizon, self.job.get("deadline_us", rows.horizon))
        rows.values[begin] = rows.values[end] = (0 if rows.cyclic else self.job["release_us"], last)
        if i > 1:
            rows.most([(1, self.of("end", i - 1)), (-1, begin)], 0)
        if rows.cyclic and i == 1:
            rows.most([(1, self.of("end", self.n)), (-1, begin)], T)
            rows.most([(1, begin)], T - 1)
            if self.number == 0:
                rows.most([(1, begin)], 0)
        for gpu in self.allowed:
            self._add_block(i, gpu)
        for d in range(2, self.D + 1):
            those = [self.level(i, gpu, d) for gpu in self.allowed]
            rows.most([(-1, name) for name in those], -self.fewest[d])
            rows.most([(1, name) for name in those], self.largest[d])
        if self.w == 1:
            lengths = [(1, self.of("length", i, gpu.name)) for gpu in self.allowed]
            rows.most([(1, begin), *lengths, (-1, end)], 0)
        else:
            for b in self.buckets:
                self._add_transfer(i, b)
            rows.most([(1, self.of("transferred", i, self.D)), (-1, end)], 0)
        least = 0
        if self.allowed and self.w == 1:
            least = self.quickest[self.D]
        elif self.allowed:
            least = max(self.quickest[b] + sum(self.least[k] for k in self.buckets if k >= b) for b in self.buckets)
        rows.most([(1, begin), (-1, end)], -least)

    def _add_block(self, i: int, gpu: Gpu) -> None:
        rows, values, deepest = self.rows, self.rows.values, self._deepest(gpu)
        times = self.block[gpu.server["gpu_type"]]
        start, done, length = (self.of(what, i, gpu.name) for what in ("start", "done", "length"))
        values[start] = values[done] = (0, rows.horizon)
        values[length] = (0, times[-1])
        for d in range(2, self.D + 1):
            values[self.level(i, gpu, d)] = (0, int(d <= deepest))
            rows.most([(1, self.level(i, gpu, d)), (-1, self.level(i, gpu, d - 1))], 0)
        steps = [(times[d - 1] - times[d], self.level(i, gpu, d)) for d in self.buckets]
        rows.equal([(1, length), *steps], 0)
        rows.equal([(1, done), (-1, start), (-1, length)], 0)
        rows.most([(1, self.of("begin", i)), (-1, start)], 0)
        rows.most([(1, done), (-1, self.of("end", i))], 0)
        on = self.level(i, gpu, 1)
        rows.resources[f"gpu {gpu.name}"].append(Operation(self.number, i, gpu.name, on, start, done, length))

    def _add_transfer(self, i: int, b: int) -> None:
        rows, values = self.rows, self.rows.values
        few, many = self.fewest[b], self.largest[b]
        start, done, lasts = (self.of(what, i, b) for what in ("transfer", "transferred", "lasts"))
        values[start] = values[done] = (0, rows.horizon)
        values[lasts] = (self.least[b], max((self.lasts(m, b, many) for m in self.spreads), default=0))
        before = self.of("transferred", i, b - 1) if b > 1 else self.of("begin", i)
        rows.most([(1, before), (-1, start)], 0)
        rows.equal([(1, done), (-1, start), (-1, lasts)], 0)
        slack = rows.horizon if b > 1 else 0
        for gpu in self.allowed:
            ready = self.block[gpu.server["gpu_type"]][b]
            terms = [(1, self.of("start", i, gpu.name)), (ready + slack, self.level(i, gpu, b)), (-1, start)]
            rows.most(terms, slack)
        more = {c: self.of("contributors", i, b, c) for c in range(few + 1, many + 1)}
        values.update(dict.fromkeys(more.values(), (0, 1)))
        for c in range(few + 2, many + 1):
            rows.most([(1, more[c]), (-1, more[c - 1])], 0)
        if more:
            levels = [(1, self.level(i, gpu, b)) for gpu in self.allowed]
            rows.equal([*levels, *((-1, name) for name in more.values())], few)
        for m in self.spreads:
            top, low = self.lasts(m, b, many), self.lasts(m, b, few)
            steps = [(self.lasts(m, b, c) - self.lasts(m, b, c - 1), name) for c, name in more.items()]
            rows.most([(top, self.of("spread", m)), *steps, (-1, lasts)], top - low)
        if self.least[b] > 0:
            for link in self.links:
                uses = self.of("uses", link)
                rows.resources[f"link {link}"].append(Operation(self.number, i, b, uses, start, done, lasts))

    def _add_depth(self) -> None:
        levels = {
            gpu.name: [(1, self.level(i, gpu, d)) for i in self.iterations for d in self.buckets]
            for gpu in self.allowed
        }
        self.rows.most([(-f, name) for terms in levels.values() for f, name in terms], -self._least_levels())
        if "balance" in self.job["depth"]:
            most, balance = self.n * self.D, self.job["depth"]["balance"]
            for one, other in permutations(levels, 2):
                less = [(-f, name) for f, name in levels[other]]
                self.rows.most([*levels[one], *less, (most, self.of("on", other))], balance + most)
