"""Variables and linear rows that are about one data-parallel job of a plan alone (docs/proofs.md: rows of a plan)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import add
from typing import NamedTuple

from jigsaw_opt.checking.network import ExchangeTerms, RouteFinder
from jigsaw_opt.checking.proofs.facts.cluster_facts import numbers_of_workers
from jigsaw_opt.checking.proofs.facts.job_facts import JobFacts
from jigsaw_opt.checking.terms import transfer_duration
from jigsaw_opt.problem import clock
from jigsaw_opt.problem.depth import FreeDepth

Name = tuple[object, ...]
"""Name of a variable, as its list stands in a proof; lists inside it are tuples."""
Term = tuple[int, int]
"""A coefficient and the number of a variable."""
MOST_ROWS, _MOST_TERMS = 60_000, 600_000
_MOST_SPREADS, _MOST_TRIED = 200, 10_000


class TooManyRowsError(Exception):
    """An instance has more rows than are worth writing out."""


class ResourceUse(NamedTuple):
    """A block or transfer that may use a resource: numbers of variables.

    `present`: 1 where it uses the resource. `order`: what its pairs are named by. `job`: number of its job. A job as a
    whole has no `length`.
    """

    present: int
    start: int
    end: int
    order: tuple[object, ...]
    job: int
    length: int = -1


@dataclass
class PlanRows:
    """Variables with least and largest values, and rows: terms that add up to at most a number.

    `gpus`: name and server of each GPU. `finite, limit, together`: horizon, most that the objective may be, and whether
    one iteration stands for all of its job. `resources`: the operations that may use each GPU and link, in the order of
    each job. `terms`: how many rows have.
    """

    gpus: Sequence[tuple[str, int]] = ()
    finite: bool = True
    limit: int = 0
    together: bool = False

    names: list[Name] = field(default_factory=list)
    low: list[int] = field(default_factory=list)
    high: list[int] = field(default_factory=list)
    rows: list[tuple[tuple[Term, ...], int]] = field(default_factory=list)
    resources: list[list[ResourceUse]] = field(default_factory=list)
    terms: int = 0

    def variable(self, name: Name, low: int, high: int) -> int:
        """Add a variable and return its number."""
        self.names.append(name)
        self.low.append(low)
        self.high.append(high)
        return len(self.names) - 1

    def at_most(self, terms: Sequence[Term], side: int) -> None:
        """Add a row, each of its variables once."""
        clock.check_deadline()
        sums = dict[int, int]()
        for factor, variable in terms:
            sums[variable] = sums.get(variable, 0) + factor
        row = tuple((factor, variable) for variable, factor in sums.items() if factor)
        self.terms += len(row)
        if len(self.rows) >= MOST_ROWS or self.terms > _MOST_TERMS:
            raise TooManyRowsError
        self.rows.append((row, side))

    def no_later(self, before: int, after: int, gap: int = 0) -> None:
        """Add the row that one variable and a gap are at most another."""
        self.at_most([(1, before), (-1, after)], -gap)

    def in_turn(self, begins: Sequence[int], ends: Sequence[int]) -> None:
        """Let intervals follow one another, on the cyclic horizon within one period."""
        for end, begin in zip(ends, begins[1:], strict=False):
            self.no_later(end, begin)
        if not self.finite:
            self.no_later(ends[-1], begins[0], -self.limit)

    def equal(self, terms: Sequence[Term], side: int) -> None:
        """Add two rows that make a sum equal to a number."""
        self.at_most(terms, side)
        self.at_most(negative(terms), -side)


class WorkerSpread(NamedTuple):
    """How many workers of a job are on each server, and what its transfers get there."""

    counts: tuple[int, ...]
    exchange: ExchangeTerms


def negative(terms: Iterable[Term]) -> list[Term]:
    """Return terms of opposite sign."""
    return [(-factor, variable) for factor, variable in terms]


class JobRows:
    """The variables of one job and the rows that are about it alone."""

    def __init__(self, rows: PlanRows, facts: JobFacts, number: int) -> None:
        self.rows, self.facts, self.number, self.job = rows, facts, number, facts.job
        self.cluster, self.terms = facts.shared.cluster.cluster, facts.shared.terms
        self.latest = rows.limit if rows.finite else 2 * rows.limit
        self.depth, self.repeats = self.terms.depth, self.job.iterations if rows.together else 1
        self.iterations = range(1, self.job.iterations // self.repeats + 1)
        self.blocks: dict[tuple[int, int], ResourceUse] = {}
        self.levels: dict[tuple[int, int], list[Term]] = {}
        self.transfers: dict[tuple[int, int], tuple[int, int, int]] = {}
        self.fewest = [facts.shared.contributors(b) for b in range(1, self.depth + 1)]
        self.most = [self.job.workers] * self.depth if facts.limits.fixed is None else self.fewest
        self._place()
        self._times()
        for i in self.iterations:
            self._iteration(i)
        rows.no_later(self.begins[0], self.ends[-1], facts.span)
        self._totals()

    reach = 2
    """Most periods between the first start of the first job and a start or end of an operation."""

    def deepest(self, server: int) -> int:
        """Return the deepest level that a worker may have on a server; 0 where it may not be there."""
        servers = self.cluster.servers
        return self.facts.shared.deepest(servers[server].gpu_memory) if server in self.facts.shared.gpus else 0

    def block_durations(self, gpu: int) -> tuple[int, ...]:
        """Return the duration of a block on a GPU by level."""
        return self.terms.durations[self.cluster.servers[self.rows.gpus[gpu][1]].gpu_type]

    def as_a_whole(self, present: int) -> ResourceUse:
        """Return the job as one operation, from its begin to its end, on a GPU where a variable is 1."""
        return ResourceUse(present, self.begins[0], self.ends[-1], (self.job.name,), self.number)

    def _place(self) -> None:
        rows, job, servers = self.rows, self.job, self.cluster.servers
        allowed = [(g, name) for g, (name, s) in enumerate(rows.gpus) if self.deepest(s)]
        self.on = {g: rows.variable(("on", job.name, name), 0, 1) for g, name in allowed}
        finder = RouteFinder(self.cluster, job.route_policy)
        room = [server.gpus if self.deepest(s) else 0 for s, server in enumerate(servers)]
        self.spreads: list[tuple[int, WorkerSpread]] = []
        for tried, counts in enumerate(numbers_of_workers(room, job.workers)):
            # One worker of a server uses no fabric, and any more use it alike.
            exchange = finder.exchange([s for s, count in enumerate(counts) for _ in range(min(count, 2))])
            if exchange is not None:
                self.spreads.append((rows.variable(("spread", job.name, counts), 0, 1), WorkerSpread(counts, exchange)))
            if len(self.spreads) > _MOST_SPREADS or tried >= _MOST_TRIED:
                raise TooManyRowsError
        rows.equal([(1, m) for m, _ in self.spreads], 1)
        rows.equal([(1, v) for v in self.on.values()], job.workers)
        for s, count in enumerate(room):
            if count:
                here = [(1, v) for g, v in self.on.items() if rows.gpus[g][1] == s]
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
        first = self.job.release_us if rows.finite else 0
        end = latest if self.job.deadline_us is None else min(latest, self.job.deadline_us)
        self.begins = [rows.variable(("begin", name, i), first, end) for i in self.iterations]
        self.ends = [rows.variable(("end", name, i), first, end) for i in self.iterations]
        rows.in_turn(self.begins, self.ends)
        if not rows.finite:
            rows.at_most([(1, self.begins[0])], rows.limit - 1 if self.number else 0)

    def _iteration(self, i: int) -> None:
        rows, name = self.rows, self.job.name
        begin, end = self.begins[i - 1], self.ends[i - 1]
        for g, on in self.on.items():
            durations, (where, server) = self.block_durations(g), rows.gpus[g]
            length = rows.variable(("length", name, i, where), 0, self.repeats * durations[-1])
            self.levels[i, g] = [(self.repeats, on)]
            for d in range(2, self.depth + 1):
                reach = self.repeats if d <= self.deepest(server) else 0
                self.levels[i, g].append((1, rows.variable(("level", name, i, where, d), 0, reach)))
                rows.at_most([self.levels[i, g][-1], *negative(self.levels[i, g][-2:-1])], 0)
            rows.equal([(-1, length), *self.by_level(i, g, durations)], 0)
            start, done = begin, end
            if not rows.together:
                start = rows.variable(("start", name, i, where), 0, self.latest)
                done = rows.variable(("done", name, i, where), 0, self.latest)
                rows.equal([(1, done), (-1, start), (-1, length)], 0)
                rows.no_later(begin, start)
                rows.no_later(done, end)
            self.blocks[i, g] = ResourceUse(on, start, done, (name, i, where), self.number, length)
        for d in range(2, self.depth + 1):
            here = [self.levels[i, g][d - 1] for g in self.on]
            rows.at_most(here, self.repeats * self.most[d - 1])
            rows.at_most(negative(here), -self.repeats * self.fewest[d - 1])
        if self.job.workers == 1:
            rows.at_most([(1, begin), (-1, end), *((1, self.blocks[i, g].length) for g in self.on)], 0)
        elif rows.together:
            self._in_spreads()
        else:
            self._transfers(i)
        rows.no_later(begin, end, self.repeats * self.facts.shared.iteration)
        spans = [(self.repeats * self.iteration_in(spread), m) for m, spread in self.spreads]
        rows.at_most([(1, begin), (-1, end), *spans], 0)

    def iteration_in(self, spread: WorkerSpread) -> int:
        """Return a time that every iteration takes in a spread."""
        found, rest = 0, 0
        for b in range(self.depth, 0, -1):
            rest += self.lengths(b, spread)[0] if self.job.workers > 1 else 0
            ready = [
                self.terms.durations[self.cluster.servers[s].gpu_type][b - 1]
                for s, count in enumerate(spread.counts)
                for _ in range(count)
            ]
            found = max(found, sorted(ready)[self.fewest[b - 1] - 1] + rest)
        return found

    def by_level(self, i: int, g: int, costs: Sequence[int]) -> list[Term]:
        """Return terms that add up to the cost of the level on a GPU; 0 without a worker."""
        steps = zip(costs, (0, *costs), self.levels[i, g], strict=False)
        return [((own - less) * factor, variable) for own, less, (factor, variable) in steps]

    def _in_spreads(self) -> None:
        """Let all iterations of a worker, each with the transfers behind it, fit between begin and end."""
        for m, spread in self.spreads:
            shortest = [self.lengths(b, spread)[0] for b in range(self.depth, 0, -1)]
            tails = [*accumulate(shortest)][::-1]
            for g in self.on:
                if spread.counts[self.rows.gpus[g][1]]:
                    durations = self.block_durations(g)
                    ends = [*map(max, durations, accumulate(map(add, durations, tails), max))]
                    most = self.repeats * ends[-1]
                    room = [(1, self.begins[0]), (-1, self.ends[0]), (most, m)]
                    self.rows.at_most([*room, *self.by_level(1, g, ends)], most)

    def _transfers(self, i: int) -> None:
        rows, name = self.rows, self.job.name
        before = self.begins[i - 1]
        for b in range(1, self.depth + 1):
            longest = max((self.lengths(b, spread)[-1] for _, spread in self.spreads), default=0)
            start = rows.variable(("transfer", name, i, b), 0, self.latest)
            done = rows.variable(("transferred", name, i, b), 0, self.latest)
            length = rows.variable(("lasts", name, i, b), self.shortest(b), longest)
            self.transfers[i, b] = (start, done, length)
            rows.no_later(before, start)
            rows.equal([(1, done), (-1, start), (-1, length)], 0)
            before = done
            for g in self.on:
                ready, (_, reach) = self.block_durations(g)[b - 1], self.levels[i, g][b - 1]
                slack = self.latest if b > 1 else 0
                rows.at_most([(1, self.blocks[i, g].start), (ready + slack, reach), (-1, start)], slack)
            fewest, most = self.fewest[b - 1], self.most[b - 1]
            more = [rows.variable(("contributors", name, i, b, c), 0, 1) for c in range(fewest + 1, most + 1)]
            for low, high in pairwise(more):
                rows.no_later(high, low)
            if more:
                rows.equal([*(self.levels[i, g][b - 1] for g in self.on), *((-1, c) for c in more)], fewest)
            for m, spread in self.spreads:
                own = self.lengths(b, spread)
                growth = [(after - less, c) for c, (less, after) in zip(more, pairwise(own), strict=True)]
                rows.at_most([(-1, length), (own[-1], m), *growth], own[-1] - own[0])
        rows.no_later(before, self.ends[i - 1])

    def _totals(self) -> None:
        """Keep mean depth and balance (specification: mean-depth, balance)."""
        rule = self.job.depth
        if not isinstance(rule, FreeDepth):
            return
        rows, most = self.rows, self.depth * self.job.iterations
        rows.at_most(negative(term for terms in self.levels.values() for term in terms), -self.facts.limits.total)
        for one in self.on if rule.balance is not None else ():
            for other in self.on:
                if one != other:
                    more, less = ([term for i in self.iterations for term in self.levels[i, g]] for g in (one, other))
                    rows.at_most([*more, *negative(less), (most, self.on[other])], (rule.balance or 0) + most)

    @property
    def work(self) -> int:
        """Least time of the blocks of all iterations on all GPUs."""
        return self.facts.work

    @property
    def first_ready(self) -> int:
        """Earliest moment at which bucket 1 is ready."""
        return self.job.release_us + min(self.facts.shared.shortest_blocks, default=0)

    @property
    def tail(self) -> int:
        """Least time between the end of a block and that of the job."""
        return self.facts.shared.tail

    def gpu_work(self, g: int) -> list[Term]:
        """Return terms that add up to the time of the blocks of all iterations on a GPU."""
        return [(1, self.blocks[i, g].length) for i in self.iterations if g in self.on]

    def gpu_uses(self) -> Iterator[tuple[int, ResourceUse]]:
        """Yield each GPU with each block that may be there."""
        return ((g, block) for (_, g), block in self.blocks.items())

    def used_links(self) -> Collection[int]:
        """Return the links that some spread uses."""
        return self.uses.keys()

    def link_work(self, link: int) -> list[Term]:
        """Return a term for the least time of the transfers of all iterations on a link, if they use it."""
        over = [spread for _, spread in self.spreads if link in spread.exchange.links]
        buckets = range(1, self.depth + 1)
        once = sum(min(self.lengths(b, spread)[0] for spread in over) for b in buckets)
        return [(self.job.iterations * once, self.uses[link])]

    def link_uses(self) -> Iterator[tuple[int, ResourceUse]]:
        """Yield each link with each transfer that may use it and always takes time."""
        for link, present in self.uses.items():
            for (i, b), (start, done, length) in self.transfers.items():
                if self.shortest(b):
                    yield link, ResourceUse(present, start, done, (self.job.name, i, b), self.number, length)

    def alike(self, g: int) -> list[tuple[int, int]]:
        """Return the variable `on` of a GPU and of the next one of its server."""
        return [(self.on[g], self.on[g + 1])] if g in self.on else []

    def alike_levels(self, g: int) -> list[tuple[int, int]]:
        """Return the variables `level` of a GPU and of the next one of its server, the deepest ones first."""
        if g not in self.on:
            return []
        pairs = [zip(self.levels[i, g][:0:-1], self.levels[i, g + 1][:0:-1], strict=True) for i in self.iterations]
        return [(one, other) for levels in pairs for (_, one), (_, other) in levels]

    def bytes_on(self, g: int) -> list[tuple[int, int, int]]:
        """Return a variable that is 1 where a worker is on a GPU, its state, and its least activations."""
        return [(self.on[g], *self.facts.shared.least_bytes)] if g in self.on else []
