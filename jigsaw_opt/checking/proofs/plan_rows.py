"""Linear rows over named integers that every correct plan within a limit satisfies (docs/proofs.md: rows of a plan).

They are about data-parallel jobs that keep their GPUs: what holds of all jobs holds of some.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations, pairwise
from math import ceil
from typing import NamedTuple

from jigsaw_opt.checking.network import ExchangeTerms, RouteFinder
from jigsaw_opt.checking.terms import exchanged, model_terms, transfer_duration
from jigsaw_opt.problem.depth import FreeDepth, FullDepth, StaircaseDepth
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job

Name = tuple[object, ...]
"""Name of a variable, as its list stands in a proof; lists inside it are tuples."""
Term = tuple[int, int]
"""A coefficient and the number of a variable."""
_MOST_SPREADS, _MOST_ROWS = 200, 60_000


class TooManyRowsError(Exception):
    """An instance has more rows than are worth writing out."""


class ResourceUse(NamedTuple):
    """A block or transfer that may use a resource: numbers of variables.

    `present`: 1 where it uses the resource. `order`: what its pairs are named by. `job`: number of its job.
    """

    present: int
    start: int
    end: int
    length: int
    order: tuple[object, ...]
    job: int


@dataclass
class PlanRows:
    """Variables with least and largest values, and rows: terms that add up to at most a number.

    `resources`: the operations that may use each GPU and link, in the order of each job.
    """

    names: list[Name] = field(default_factory=list)
    low: list[int] = field(default_factory=list)
    high: list[int] = field(default_factory=list)
    rows: list[tuple[tuple[Term, ...], int]] = field(default_factory=list)
    resources: list[list[ResourceUse]] = field(default_factory=list)

    def variable(self, name: Name, low: int, high: int) -> int:
        """Add a variable and return its number."""
        self.names.append(name)
        self.low.append(low)
        self.high.append(high)
        return len(self.names) - 1

    def at_most(self, terms: Sequence[Term], side: int) -> None:
        """Add a row."""
        if len(self.rows) >= _MOST_ROWS:
            raise TooManyRowsError
        self.rows.append((tuple(term for term in terms if term[0]), side))

    def equal(self, terms: Sequence[Term], side: int) -> None:
        """Add two rows that make a sum equal to a number."""
        self.at_most(terms, side)
        self.at_most([(-a, v) for a, v in terms], -side)


class WorkerSpread(NamedTuple):
    """How many workers of a job are on each server, and what its transfers get there."""

    counts: tuple[int, ...]
    exchange: ExchangeTerms


class _JobRows:
    """The variables of one job and the rows that are about it alone."""

    def __init__(self, rows: PlanRows, instance: Instance, number: int, job: Job, limit: int, latest: int) -> None:
        self.rows, self.cluster, self.number, self.job, self.latest = rows, instance.cluster, number, job, latest
        self.terms = exchanged(model_terms(instance.models[job.model]), job.exchange)
        self.finite, self.limit = instance.horizon == "finite", limit
        self.depth, self.iterations = self.terms.depth, range(1, job.iterations + 1)
        self.blocks: dict[tuple[int, int], ResourceUse] = {}
        self.levels: dict[tuple[int, int, int], int] = {}
        self.transfers: dict[tuple[int, int], tuple[int, int, int]] = {}
        self.fewest, self.most = self._contributors()
        self._place()
        self._times()
        for i in self.iterations:
            self._iteration(i)
        self._totals()

    def deepest(self, server: int) -> int:
        """Return the deepest level that a worker alone may have on a server; 0 where it may not be there."""
        kind = self.cluster.servers[server]
        if kind.gpu_type not in self.terms.durations:
            return 0
        return sum(self.terms.state_bytes + size <= kind.gpu_memory for size in self.terms.activation_bytes)

    def lasts(self, gpu: int) -> tuple[int, ...]:
        """Return the duration of a block on a GPU by level."""
        return self.terms.durations[self.cluster.servers[self.server_of[gpu]].gpu_type]

    def _contributors(self) -> tuple[list[int], list[int]]:
        """Return the fewest and the most contributors of each bucket."""
        workers, rule, deepest = self.job.workers, self.job.depth, self.depth
        if isinstance(rule, FullDepth):
            levels: Sequence[int] = [deepest] * workers
        elif isinstance(rule, StaircaseDepth):
            own = [-(-deepest * k // workers) for k in range(1, workers + 1)]
            levels = own if rule.levels is None else rule.levels
        else:
            assert isinstance(rule, FreeDepth), "jobs with other rules have no rows"
            fewest = min(rule.min_contributors, workers)
            return [workers] + [fewest] * (deepest - 1), [workers] * deepest
        counts = [sum(level >= b for level in levels) for b in range(1, deepest + 1)]
        return counts, counts

    def _place(self) -> None:
        rows, job, servers = self.rows, self.job, self.cluster.servers
        self.server_of = [s for s, server in enumerate(servers) for _ in range(server.gpus)]
        names = [f"{server.name}/{k}" for server in servers for k in range(server.gpus)]
        self.on = {
            g: rows.variable(("on", job.name, names[g]), 0, 1) for g, s in enumerate(self.server_of) if self.deepest(s)
        }
        self.names = names
        finder = RouteFinder(self.cluster, job.route_policy)
        room = [server.gpus if self.deepest(s) else 0 for s, server in enumerate(servers)]
        self.spreads: list[tuple[int, WorkerSpread]] = []
        for counts in _spreads(room, job.workers):
            exchange = finder.exchange([s for s, count in enumerate(counts) for _ in range(count)])
            if exchange is not None:
                self.spreads.append((rows.variable(("spread", job.name, counts), 0, 1), WorkerSpread(counts, exchange)))
            if len(self.spreads) > _MOST_SPREADS:
                raise TooManyRowsError
        rows.equal([(1, m) for m, _ in self.spreads], 1)
        rows.equal([(1, v) for v in self.on.values()], job.workers)
        for s, count in enumerate(room):
            if count:
                here = [(1, v) for g, v in self.on.items() if self.server_of[g] == s]
                rows.equal([*here, *((-spread.counts[s], m) for m, spread in self.spreads)], 0)
        used = sorted({link for _, spread in self.spreads for link in spread.exchange.links})
        self.uses: dict[int, int] = {}
        for link in used if job.workers > 1 else ():
            self.uses[link] = rows.variable(("uses", job.name, self.cluster.links[link].name), 0, 1)
            over = [(1, m) for m, spread in self.spreads if link in spread.exchange.links]
            rows.equal([*over, (-1, self.uses[link])], 0)

    def lengths(self, bucket: int, spread: WorkerSpread) -> list[int]:
        """Return the durations of a transfer, from the fewest to the most contributors."""
        payload, channel = self.terms.bucket_bytes[bucket - 1], spread.exchange
        counts = range(self.fewest[bucket - 1], self.most[bucket - 1] + 1)
        return [transfer_duration(payload, c, self.job.workers, channel.rate, channel.latency_us) for c in counts]

    def shortest(self, bucket: int) -> int:
        """Return the least duration of a transfer."""
        return min((self.lengths(bucket, spread)[0] for _, spread in self.spreads), default=0)

    def _times(self) -> None:
        rows, name, latest = self.rows, self.job.name, self.latest
        first = self.job.release_us if self.finite else 0
        end = latest if self.job.deadline_us is None else min(latest, self.job.deadline_us)
        self.begins = [rows.variable(("begin", name, i), first, end) for i in self.iterations]
        self.ends = [rows.variable(("end", name, i), first, end) for i in self.iterations]
        for before, after in zip(self.ends, self.begins[1:], strict=False):
            rows.at_most([(1, before), (-1, after)], 0)
        if not self.finite:
            rows.at_most([(1, self.ends[-1]), (-1, self.begins[0])], self.limit)
            rows.at_most([(1, self.begins[0])], self.limit - 1 if self.number else 0)

    def _iteration(self, i: int) -> None:
        rows, name = self.rows, self.job.name
        begin, end = self.begins[i - 1], self.ends[i - 1]
        for g, on in self.on.items():
            lasts, where = self.lasts(g), self.names[g]
            start = rows.variable(("start", name, i, where), 0, self.latest)
            done = rows.variable(("done", name, i, where), 0, self.latest)
            length = rows.variable(("length", name, i, where), 0, lasts[-1])
            self.levels[i, g, 1] = on
            for d in range(2, self.depth + 1):
                reach = d <= self.deepest(self.server_of[g])
                self.levels[i, g, d] = rows.variable(("level", name, i, where, d), 0, int(reach))
                rows.at_most([(1, self.levels[i, g, d]), (-1, self.levels[i, g, d - 1])], 0)
            parts = zip(range(1, self.depth + 1), lasts, (0, *lasts), strict=False)
            rows.equal([(-1, length), *((own - less, self.levels[i, g, d]) for d, own, less in parts)], 0)
            rows.equal([(1, done), (-1, start), (-1, length)], 0)
            rows.at_most([(1, begin), (-1, start)], 0)
            rows.at_most([(1, done), (-1, end)], 0)
            self.blocks[i, g] = ResourceUse(on, start, done, length, (name, i, where), self.number)
        for d in range(2, self.depth + 1):
            here = [(1, self.levels[i, g, d]) for g in self.on]
            rows.at_most(here, self.most[d - 1])
            rows.at_most([(-1, v) for _, v in here], -self.fewest[d - 1])
        if self.job.workers == 1:
            rows.at_most([(1, begin), (-1, end), *((1, self.blocks[i, g].length) for g in self.on)], 0)
        else:
            self._transfers(i)
        rows.at_most([(1, begin), (-1, end)], -self.least_span())

    def least_span(self) -> int:
        """Return a time that every iteration takes: a bucket on the fastest type, and the transfers from it on."""
        types = {self.cluster.servers[self.server_of[g]].gpu_type for g in self.on}
        fastest = [min((self.terms.durations[t][d] for t in types), default=0) for d in range(self.depth)]
        if self.job.workers == 1:
            return fastest[-1]
        tails = [self.shortest(b) for b in range(1, self.depth + 1)]
        return max(ready + sum(tails[d:]) for d, ready in enumerate(fastest))

    def _transfers(self, i: int) -> None:
        rows, name = self.rows, self.job.name
        before = self.begins[i - 1]
        for b in range(1, self.depth + 1):
            longest = max((self.lengths(b, spread)[-1] for _, spread in self.spreads), default=0)
            start = rows.variable(("transfer", name, i, b), 0, self.latest)
            done = rows.variable(("transferred", name, i, b), 0, self.latest)
            length = rows.variable(("lasts", name, i, b), self.shortest(b), longest)
            self.transfers[i, b] = (start, done, length)
            rows.at_most([(1, before), (-1, start)], 0)
            rows.equal([(1, done), (-1, start), (-1, length)], 0)
            before = done
            for g in self.on:
                ready, reach = self.lasts(g)[b - 1], self.levels[i, g, b]
                slack = self.latest if b > 1 else 0
                rows.at_most([(1, self.blocks[i, g].start), (ready + slack, reach), (-1, start)], slack)
            fewest, most = self.fewest[b - 1], self.most[b - 1]
            more = [rows.variable(("contributors", name, i, b, c), 0, 1) for c in range(fewest + 1, most + 1)]
            for low, high in pairwise(more):
                rows.at_most([(1, high), (-1, low)], 0)
            if more:
                rows.equal([*((1, self.levels[i, g, b]) for g in self.on), *((-1, c) for c in more)], fewest)
            for m, spread in self.spreads:
                own = self.lengths(b, spread)
                growth = [(after - less, c) for c, (less, after) in zip(more, pairwise(own), strict=True)]
                rows.at_most([(-1, length), (own[-1], m), *growth], own[-1] - own[0])
        rows.at_most([(1, before), (-1, self.ends[i - 1])], 0)

    def _totals(self) -> None:
        """Keep mean depth and balance (specification: mean-depth, balance)."""
        rule = self.job.depth
        if not isinstance(rule, FreeDepth):
            return
        every = [(-1, v) for v in self.levels.values()]
        rows = self.rows
        rows.at_most(every, -self.least_total(rule))
        for one in self.on if rule.balance is not None else ():
            for other in self.on:
                if one != other:
                    more = [(1, v) for (_, g, _), v in self.levels.items() if g == one]
                    less = [(-1, v) for (_, g, _), v in self.levels.items() if g == other]
                    most = self.depth * self.job.iterations
                    rows.at_most([*more, *less, (most, self.on[other])], (rule.balance or 0) + most)

    def least_total(self, rule: FreeDepth) -> int:
        """Return the least sum of all levels of the job."""
        workers = self.job.workers
        default = Fraction(workers + 1, 2 * workers) if rule.min_progress is None else Fraction(0)
        share = default if rule.mean_depth is None else Fraction(rule.mean_depth)
        return ceil(share * self.depth * workers * self.job.iterations)

    def least_work(self) -> int:
        """Return a time that the blocks of all iterations take on all GPUs."""
        kinds = [self.lasts(g) for g in self.on]
        if not kinds:
            return 0
        fastest = [min(kind[d] for kind in kinds) for d in range(self.depth)]
        growth = [min(kind[d] - kind[d - 1] for kind in kinds) for d in range(1, self.depth)]
        workers, iterations = self.job.workers, self.job.iterations
        work = workers * fastest[0] + sum(few * more for few, more in zip(self.fewest[1:], growth, strict=True))
        rule = self.job.depth
        extra = self.least_total(rule) - iterations * sum(self.fewest) if isinstance(rule, FreeDepth) else 0
        return iterations * work + max(0, extra) * min(growth, default=0)

    def first_ready(self) -> int:
        """Return the earliest moment at which bucket 1 is ready."""
        return self.job.release_us + min((self.lasts(g)[0] for g in self.on), default=0)

    def least_load(self, link: int) -> int:
        """Return a time that the transfers of all iterations take where they use a link."""
        over = [spread for _, spread in self.spreads if link in spread.exchange.links]
        buckets = range(1, self.depth + 1)
        return self.job.iterations * sum(min(self.lengths(b, spread)[0] for spread in over) for b in buckets)

    def links(self) -> Iterator[tuple[int, ResourceUse]]:
        """Yield each link with each transfer that may use it and always takes time."""
        for link, present in self.uses.items():
            for (i, b), (start, done, length) in self.transfers.items():
                if self.shortest(b):
                    yield link, ResourceUse(present, start, done, length, (self.job.name, i, b), self.number)


def _spreads(room: Sequence[int], workers: int) -> Iterator[tuple[int, ...]]:
    """Yield how many of some workers are on each server, for all ways that leave room."""
    if not room:
        yield from [()] if workers == 0 else []
        return
    for count in range(max(0, workers - sum(room[1:])), min(room[0], workers) + 1):
        for rest in _spreads(room[1:], workers - count):
            yield (count, *rest)


def plan_rows(instance: Instance, limit: int) -> PlanRows:
    """Return the rows that every correct plan with an objective of at most `limit` satisfies."""
    rows, finite = PlanRows(), instance.horizon == "finite"
    latest = limit if finite else 2 * limit
    known = (FullDepth, StaircaseDepth, FreeDepth)
    jobs = [job for job in instance.data_parallel_jobs if job.restart_us is None and isinstance(job.depth, known)]
    all_rows = [_JobRows(rows, instance, number, job, limit, latest) for number, job in enumerate(jobs)]
    gpus: dict[int, list[ResourceUse]] = {}
    links: dict[int, list[ResourceUse]] = {}
    for each in all_rows:
        for (_, g), block in each.blocks.items():
            gpus.setdefault(g, []).append(block)
        for link, transfer in each.links():
            links.setdefault(link, []).append(transfer)
    rows.resources = [*gpus.values(), *links.values()]
    if instance.objective == "weighted_completion":
        rows.at_most([(job.weight, each.ends[-1]) for job, each in zip(jobs, all_rows, strict=True)], limit)
    else:
        _loads(rows, all_rows, gpus, limit)
    orders: dict[tuple[object, ...], int] = {}
    for users in rows.resources:
        for one, other in combinations(users, 2):
            if one.job != other.job:
                (_finite_order if finite else _cyclic_order)(rows, orders, one, other, limit)
    _monotone(rows, orders)
    _alike(rows, all_rows, instance)
    if not finite:
        _memory(rows, all_rows, instance)
    return rows


def _loads(rows: PlanRows, jobs: Sequence[_JobRows], gpus: dict[int, list[ResourceUse]], limit: int) -> None:
    """Fit the work on each GPU between the least heads and tails, and the work of all jobs into all GPUs."""
    ends = {
        each.number: (each.job.release_us, each.shortest(each.depth) if each.job.workers > 1 else 0) for each in jobs
    }
    finite = bool(jobs) and jobs[0].finite
    total = []
    for users in gpus.values():
        own = [ends[block.job] if finite else (0, 0) for block in users]
        load = rows.variable(("load", users[0].order[2]), 0, limit - min(h for h, _ in own) - min(t for _, t in own))
        total.append(load)
        rows.equal([(-1, load), *((1, block.length) for block in users)], 0)
        for head in sorted({head for head, _ in own}):
            for tail in sorted({tail for _, tail in own}):
                here = [(1, block.length) for block, (h, t) in zip(users, own, strict=True) if h >= head and t >= tail]
                if here:
                    rows.at_most(here, limit - head - tail)
    rows.at_most([(-1, load) for load in total], -sum(each.least_work() for each in jobs))
    for link in sorted({link for each in jobs for link in each.uses}):
        sharing = [each for each in jobs if link in each.uses]
        firsts = [each.first_ready() if finite else 0 for each in sharing]
        for head in sorted(set(firsts)):
            here = [(e.least_load(link), e.uses[link]) for e, h in zip(sharing, firsts, strict=True) if h >= head]
            rows.at_most(here, limit - head)


def _finite_order(
    rows: PlanRows, orders: dict[tuple[object, ...], int], one: ResourceUse, other: ResourceUse, limit: int
) -> None:
    """Let one of two operations on a resource end before the other starts."""
    name = ("order", *one.order, *other.order)
    if name not in orders:
        orders[name] = rows.variable(name, 0, 1)
    first, both = orders[name], [(limit, one.present), (limit, other.present)]
    rows.at_most([(1, one.end), (-1, other.start), (limit, first), *both], 3 * limit)
    rows.at_most([(1, other.end), (-1, one.start), (-limit, first), *both], 2 * limit)


def _cyclic_order(
    rows: PlanRows, orders: dict[tuple[object, ...], int], one: ResourceUse, other: ResourceUse, limit: int
) -> None:
    """Let a repetition of the other operation start after the end of one, and end before one starts again."""
    name = ("order", *one.order, *other.order)
    if name not in orders:
        orders[name] = rows.variable(name, -1, 2)
    turns, both = orders[name], [(4 * limit, one.present), (4 * limit, other.present)]
    rows.at_most([(1, one.end), (-1, other.start), (-limit, turns), *both], 8 * limit)
    rows.at_most([(1, other.end), (-1, one.start), (limit, turns), *both], 9 * limit)


def _monotone(rows: PlanRows, orders: dict[tuple[object, ...], int]) -> None:
    """Let what follows an operation in its job follow all that the operation follows."""
    for name, number in orders.items():
        _, job, i, where, other, k, there = name
        sign = 1 if rows.low[number] == 0 else -1
        assert isinstance(i, int) and isinstance(k, int)
        later = orders.get(("order", job, i, where, other, k + 1, there))
        if later is not None:
            rows.at_most([(sign, number), (-sign, later)], 0)
        sooner = orders.get(("order", job, i - 1, where, other, k, there))
        if sooner is not None:
            rows.at_most([(sign, number), (-sign, sooner)], 0)


def _alike(rows: PlanRows, jobs: Sequence[_JobRows], instance: Instance) -> None:
    """Order the GPUs of each server, which are alike: who is there and at which levels, as a binary number, falls."""
    first = 0
    for server in instance.cluster.servers:
        for g in range(first, first + server.gpus - 1):
            digits = [(each.on[g], each.on[g + 1]) for each in jobs if g in each.on]
            digits += [
                (each.levels[i, g, d], each.levels[i, g + 1, d])
                for each in jobs
                if g in each.on
                for i in each.iterations
                for d in range(each.depth, 1, -1)
            ]
            weights = [1 << n for n in range(len(digits))][::-1]
            terms = [pair for w, (a, b) in zip(weights, digits, strict=True) for pair in ((-w, a), (w, b))]
            rows.at_most(terms, 0)
        first += server.gpus


def _memory(rows: PlanRows, jobs: Sequence[_JobRows], instance: Instance) -> None:
    """Fit states and the largest activations of all workers into each GPU (specification: memory)."""
    server_of = [s for s, server in enumerate(instance.cluster.servers) for _ in range(server.gpus)]
    for g, s in enumerate(server_of):
        memory, here = instance.cluster.servers[s].gpu_memory, [each for each in jobs if g in each.on]
        largest = rows.variable(("activations", g), 0, memory)
        rows.at_most([(1, largest), *((each.terms.state_bytes, each.on[g]) for each in here)], memory)
        for each in here:
            sizes = each.terms.activation_bytes
            for i in each.iterations:
                steps = zip(range(1, each.depth + 1), sizes, (0, *sizes), strict=False)
                rows.at_most([(-1, largest), *((own - less, each.levels[i, g, d]) for d, own, less in steps)], 0)
