"""The variables and rows of a data-parallel job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations

from .common import memory, need, transfer_us
from .facts import JobFacts
from .routes import channel, joined, routes
from .table import Gpu, Name, Operation, Table, Term


class JobRows:
    """The variables and rows of one job."""

    ordered, turns = False, 2

    def __init__(self, rows: Table, number: int, facts: JobFacts) -> None:
        self.rows, self.number, self.facts, self.job = rows, number, facts, facts.job
        self.name, self.w, self.D = facts.job["name"], facts.w, facts.D
        self.times = 1 if rows.each else facts.n
        self.iterations, self.buckets = range(1, facts.n // self.times + 1), range(1, self.D + 1)
        self.state = facts.model["state_factor"] * sum(one["parameter_bytes"] for one in facts.model["segments"])
        self.allowed = [gpu for gpu in rows.gpus if gpu.server["name"] in facts.usable]
        self.least_activations = memory(facts.model, min(facts.candidates)) - self.state
        self.takes_time, self.peaks = facts.span >= 1, dict[str, Name]()
        types = {gpu.server["gpu_type"] for gpu in self.allowed}
        self.block = {t: [facts.p(t, d) for d in self.buckets] for t in types}
        self.fewest = dict(enumerate(facts.contributors, 1))
        self.largest = self.fewest if facts.fixed is not None else dict.fromkeys(self.buckets, self.w)
        self.spreads = self._spreads()
        self.links = set().union(*(links for links, _, _ in self.spreads.values())) if self.w > 1 else set[str]()
        self.least = {b: min((self.lasts(m, b, self.fewest[b]) for m in self.spreads), default=0) for b in self.buckets}
        self.quickest = [min((facts.p(t, d) for t, _ in facts.taking(d)), default=0) for d in self.buckets]
        self.head, self.tail = (0, 0) if rows.cyclic else (self.job["release_us"], facts.tail)
        self.link_head = 0 if rows.cyclic else self.job["release_us"] + self.quickest[0]
        self.begin, self.end = self.of("begin", 1), self.of("end", self.iterations[-1])
        self._add_placement()
        for i in self.iterations:
            self._add_iteration(i)
        rows.most([(1, self.begin), (-1, self.end)], -facts.span)
        if facts.fixed is None:
            self._add_depth()

    def of(self, what: str, *rest: object) -> Name:
        """Return the name of a variable of the job."""
        return (what, self.name, *rest)

    def level(self, i: int, gpu: Gpu, d: int) -> Term:
        """Return in how many iterations the worker there has at least a level."""
        return (self.times, self.of("on", gpu.name)) if d == 1 else (1, self.of("level", i, gpu.name, d))

    def steps(self, i: int, gpu: Gpu, cost: Sequence[int]) -> list[Term]:
        """Return the sum of what the levels of a worker there cost, where level 0 costs nothing."""
        more = [after - before for before, after in pairwise([0, *cost])]
        return [
            (step * factor, name) for step, (factor, name) in zip(more, (self.level(i, gpu, d) for d in self.buckets))
        ]

    def lasts(self, spread: Name, bucket: int, contributors: int) -> int:
        """Return the duration of a transfer in a spread."""
        _, rate, latency = self.spreads[spread]
        return transfer_us(self.job, self.facts.model, bucket, contributors, rate, latency)

    def work_on(self, gpu: Gpu) -> list[Term]:
        """Return the time of all blocks on a GPU."""
        return [(1, self.of("length", i, gpu.name)) for i in self.iterations]

    @property
    def least_work(self) -> int:
        """The least time of all blocks."""
        return self.facts.least_work(self.quickest) if self.facts.kinds else 0

    def work_on_link(self, link: str) -> list[Term]:
        """Return the least time of all transfers on a link."""
        spreads = [spread for spread, (links, _, _) in self.spreads.items() if link in links]
        load = self.facts.n * sum(min(self.lasts(m, b, self.fewest[b]) for m in spreads) for b in self.buckets)
        return [(load, self.of("uses", link))]

    def ons(self, gpu: Gpu) -> list[Name]:
        """Return the variables that say what is on a GPU."""
        return [self.of("on", gpu.name)]

    def levels(self, gpu: Gpu) -> list[Name]:
        """Return the variables of the levels of a worker on a GPU, from the most to the least important digit."""
        return [self.of("level", i, gpu.name, d) for i in self.iterations for d in range(self.D, 1, -1)]

    def states(self, gpu: Gpu) -> list[Term]:
        """Return the memory on a GPU that lasts as long as the job is present."""
        return [(self.state, self.of("on", gpu.name))]

    def activations(self, gpu: Gpu) -> list[list[Term]]:
        """Return the activations on a GPU in each iteration."""
        sizes = [memory(self.facts.model, d) - self.state for d in self.buckets]
        return [self.steps(i, gpu, sizes) for i in self.iterations]

    def _behind(self, spread: Name, bucket: int) -> int:
        """Return the time of the transfers from a bucket on, with the fewest contributors."""
        return sum(self.lasts(spread, b, self.fewest[b]) for b in self.buckets if b >= bucket) if self.w > 1 else 0

    def _spreads(self) -> dict[Name, tuple[frozenset[str], int, int]]:
        servers = self.rows.cluster["servers"]
        route = routes(self.rows.cluster, self.job)
        room = [sum(gpu.server is server for gpu in self.allowed) for server in servers]

        def numbers(k: int, left: int) -> Iterator[Name]:
            if k == len(servers):
                yield ()
            elif left <= sum(room[k:]):
                for count in range(max(0, left - sum(room[k + 1 :])), min(left, room[k]) + 1):
                    yield from ((count, *rest) for rest in numbers(k + 1, left - count))

        found = {}
        for tried, spread in enumerate(numbers(0, self.w), 1):
            need(tried <= 10000, f"job {self.name} has more than 10000 numbers of workers by server")
            counts = {server["name"]: count for server, count in zip(servers, spread)}
            if not joined([name for name, count in counts.items() if count], route):
                continue
            found[spread] = channel(self.rows.cluster, counts, route)
            need(len(found) <= 200, f"job {self.name} has more than 200 spreads")
        return found

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
        rows, T, K = self.rows, self.rows.limit, self.times
        begin, end = self.of("begin", i), self.of("end", i)
        last = rows.horizon if rows.cyclic else min(rows.horizon, self.job.get("deadline_us", rows.horizon))
        rows.values[begin] = rows.values[end] = (0 if rows.cyclic else self.job["release_us"], last)
        if i > 1:
            rows.most([(1, self.of("end", i - 1)), (-1, begin)], 0)
        if rows.cyclic and i == 1:
            rows.most([(1, self.end), (-1, begin)], T)
            rows.most([(1, begin)], T - 1 if self.number else 0)
        for gpu in self.allowed:
            self._add_block(i, gpu)
        for d in range(2, self.D + 1):
            those = [self.of("level", i, gpu.name, d) for gpu in self.allowed]
            rows.most([(-1, name) for name in those], -K * self.fewest[d])
            rows.most([(1, name) for name in those], K * self.largest[d])
        if self.w == 1:
            lengths = [(1, self.of("length", i, gpu.name)) for gpu in self.allowed]
            rows.most([(1, begin), *lengths, (-1, end)], 0)
        elif rows.each:
            for b in self.buckets:
                self._add_transfer(i, b)
            rows.most([(1, self.of("transferred", i, self.D)), (-1, end)], 0)
        else:
            self._add_spreads(i)
        rows.most([(1, begin), (-1, end)], -K * self.facts.iteration)
        times = [(K * self._iteration(spread), self.of("spread", spread)) for spread in self.spreads]
        rows.most([(1, begin), *times, (-1, end)], 0)

    def _iteration(self, spread: Name) -> int:
        workers = list(zip(spread, self.rows.cluster["servers"]))
        found = []
        for b in self.buckets:
            times = sorted(
                time for count, one in workers if count for time in [self.block[one["gpu_type"]][b - 1]] * count
            )
            found.append(times[self.fewest[b] - 1] + self._behind(spread, b))
        return max(found)

    def _add_spreads(self, i: int) -> None:
        for spread in self.spreads:
            behind = [self._behind(spread, b) for b in self.buckets]
            workers = dict(zip((server["name"] for server in self.rows.cluster["servers"]), spread))
            for gpu in self.allowed:
                if workers[gpu.server["name"]]:
                    p = self.block[gpu.server["gpu_type"]]
                    x = [max(p[d], *(p[b] + behind[b] for b in range(d + 1))) for d in range(self.D)]
                    most = self.times * x[-1]
                    terms = [(1, self.of("begin", i)), *self.steps(i, gpu, x), (-1, self.of("end", i))]
                    self.rows.most([*terms, (most, self.of("spread", spread))], most)

    def _add_block(self, i: int, gpu: Gpu) -> None:
        rows, values = self.rows, self.rows.values
        times, deepest = self.block[gpu.server["gpu_type"]], self.facts.deepest(gpu.server["gpu_memory"])
        length = self.of("length", i, gpu.name)
        values[length] = (0, self.times * times[-1])
        for d in range(2, self.D + 1):
            factor, below = self.level(i, gpu, d - 1)
            values[self.of("level", i, gpu.name, d)] = (0, self.times if d <= deepest else 0)
            rows.most([(1, self.of("level", i, gpu.name, d)), (-factor, below)], 0)
        rows.equal([(-1, length), *self.steps(i, gpu, times)], 0)
        if rows.each:
            start, done = self.of("start", i, gpu.name), self.of("done", i, gpu.name)
            values[start] = values[done] = (0, rows.horizon)
            rows.equal([(1, done), (-1, start), (-1, length)], 0)
            rows.most([(1, self.of("begin", i)), (-1, start)], 0)
            rows.most([(1, done), (-1, self.of("end", i))], 0)
            operation = Operation(self.number, i, gpu.name, self.of("on", gpu.name), start, done, length)
            rows.resources[f"gpu {gpu.name}"].append(operation)

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
            ready, (factor, level) = self.block[gpu.server["gpu_type"]][b - 1] + slack, self.level(i, gpu, b)
            rows.most([(1, self.of("start", i, gpu.name)), (ready * factor, level), (-1, start)], slack)
        more = {c: self.of("contributors", i, b, c) for c in range(few + 1, many + 1)}
        values.update(dict.fromkeys(more.values(), (0, 1)))
        for c in range(few + 2, many + 1):
            rows.most([(1, more[c]), (-1, more[c - 1])], 0)
        if more:
            rows.equal([*(self.level(i, gpu, b) for gpu in self.allowed), *((-1, name) for name in more.values())], few)
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
            gpu.name: [self.level(i, gpu, d) for i in self.iterations for d in self.buckets] for gpu in self.allowed
        }
        total = self.facts.coverage_and_total[1]
        self.rows.most([(-f, name) for terms in levels.values() for f, name in terms], -total)
        if "balance" in self.job["depth"]:
            most, balance = self.facts.n * self.D, self.job["depth"]["balance"]
            for one, other in permutations(levels, 2):
                less = [(-f, name) for f, name in levels[other]]
                self.rows.most([*levels[one], *less, (most, self.of("on", other))], balance + most)
