"""Decide whether all workers find a place without too much work on a GPU or link: a CP-SAT model without starts.

A relaxation of both exact models, for lower bounds: within an objective of `limit`, every GPU has time for its
blocks, every link for its transfers, every job for its iterations one after the other where it sits, and
every GPU the memory for its workers, of each alone or of all together. When operations run is left out, so its size
does not grow with the iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from jigsaw_opt.formulations.cpsat_model import CpSatRows, add_gpu_memory, new_model
from jigsaw_opt.formulations.timetable.placement import add_depth_rule
from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.compiled import critical
from jigsaw_opt.problem.compiled.critical import candidate_levels, exchange_over, tails_us
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.costs import EXACT_IN_64_BITS, deepest_level, most_bytes

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    Terms = list[cp_model.LinearExprT]

_MOST_VARIABLES = 20_000
"""In a larger model, by about its number of variables, the engine decides nothing in time."""
_LARGEST_NUMBER = 2**26
"""Larger times and memories are counted in coarser units, rounded down, so that what fits still fits."""
_MOST_ORDERED = 24
"""Jobs by which the GPUs of a server are ordered, so that the weights of their literals stay small."""
_MOST_ENDS = 12
"""Most different heads, and tails, of the work on a resource that are told apart."""


class ServerGroups(Protocol):
    """Groups of servers of which no two share a link: the group of each server, and the links that leave each."""

    @property
    def group(self) -> Sequence[int]:
        """Number of the group of each server."""

    @property
    def leaving(self) -> Mapping[int, frozenset[int]]:
        """Indices of the links that leave each group."""


def fits(operations: Operations) -> bool:
    """Return whether the model is small enough, and memories stay within the engine's integers."""
    states = sum(job.state_bytes + max(job.activation_bytes) for job in operations.jobs)
    variables = operations.cluster.gpu_count * sum(len(candidate_levels(job)) for job in operations.jobs)
    return variables <= _MOST_VARIABLES and states < EXACT_IN_64_BITS


def build(
    operations: Operations, known: int, most: int, places: Sequence[ServerGroups], all_present: bool
) -> LoadsModel:
    """Build a model that has a solution for every plan of makespan or period at most `most`, and minimises it.

    `known`: a lower bound. `all_present`: whether all jobs take their memory all the time; else each only has room
    alone (specification: memory).
    """
    model = new_model()
    unit = -(-most // _LARGEST_NUMBER) or 1
    clock = Limit(model.new_int_var(known // unit, most // unit, "limit"), unit, most)
    model.minimize(clock.variable)
    counts = [_WorkerCounts(model, operations, clock, job) for job in operations.jobs]
    for each in counts:
        each.add_levels()
        each.add_mode()
        each.add_iterations()
    for server, gpus in zip(operations.cluster.servers, operations.cluster.gpus.of_server, strict=True):
        _add_order(model, counts, gpus)
        for gpu in gpus:
            present = [each for each in counts if gpu in each.assigned]
            _add_work(model, clock, present, gpu)
            if all_present:
                _add_memory(model, present, gpu, server.gpu_memory)
    for place in places:
        _add_transfers(model, operations, clock, counts, place)
    return LoadsModel(model, clock)


@dataclass(frozen=True, slots=True)
class LoadsModel:
    """A model and its limit."""

    model: cp_model.CpModel
    limit: Limit


@dataclass(frozen=True, slots=True)
class Limit:
    """What no load exceeds, as a variable that counts units of microseconds, and the most that it may be.

    Times are rounded down to units, so sums that fit still fit, and a value of the variable times the unit is at most
    the objective that it stands for.
    """

    variable: cp_model.IntVar
    unit: int
    most: int

    def of(self, time: int) -> int:
        """Return the number of whole units in a time in microseconds."""
        return time // self.unit

    def least(self, bound: float) -> int:
        """Return the least objective that a bound on the variable, which is an integer as a float, stands for."""
        return round(bound) * self.unit


@dataclass
class _WorkerCounts:
    """The GPUs of a job's workers, and the number of iterations that each spends at each level.

    `assigned`: literal that a worker is on a GPU. `count`: number of iterations that it spends there at a level, by
    (GPU, level). `inside`: literal that all workers are on one server, by server.
    """

    model: cp_model.CpModel
    operations: Operations
    clock: Limit
    job: OperationGraph
    assigned: dict[int, cp_model.IntVar] = field(default_factory=dict)
    count: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)
    inside: dict[int, cp_model.IntVar] = field(default_factory=dict)

    @cached_property
    def gpus(self) -> dict[int, int]:
        """Number of usable GPUs by server."""
        return critical.usable_gpus(self.operations, self.job)

    @cached_property
    def ring(self) -> Channel | None:
        """Best channel over several servers."""
        return self.operations.crossing(self.job, self.gpus)

    @cached_property
    def crossing(self) -> cp_model.IntVar:
        """Literal that the workers sit on several servers."""
        return self.model.new_bool_var(f"{self.job.name} crosses")

    @property
    def modes(self) -> list[tuple[int | None, cp_model.IntVar, Channel]]:
        """Server or None for several, the literal, and the channel that is at best used."""
        servers = self.operations.cluster.servers
        alone: list[tuple[int | None, cp_model.IntVar, Channel]] = [
            (s, literal, Channel((), servers[s].fabric_bandwidth, servers[s].fabric_latency_us))
            for s, literal in self.inside.items()
        ]
        return alone if self.ring is None else [*alone, (None, self.crossing, self.ring)]

    def times(self, server: int) -> tuple[int, ...]:
        """Return the duration of a block by level on a GPU of a server, as far as its memory allows the level."""
        kind = self.operations.cluster.servers[server]
        deepest = deepest_level(self.job, kind.gpu_memory)
        return self.job.blocks[0].duration_us[kind.gpu_type][:deepest]

    def add_levels(self) -> None:
        """Give workers GPUs of their own, and levels over all iterations together."""
        job, model = self.job, self.model
        n = job.iterations
        for gpu, s in enumerate(self.operations.cluster.gpus.server_of):
            if s in self.gpus:
                self.assigned[gpu] = model.new_bool_var(f"{job.name} on {gpu}")
                for level in candidate_levels(job):
                    if level <= len(self.times(s)):
                        self.count[gpu, level] = model.new_int_var(0, n, f"{job.name} on {gpu} at {level}")
                # Every iteration has one level where the worker is, and none elsewhere.
                model.add(sum(self._counts(gpu)) == n * self.assigned[gpu])
        model.add(sum(self.assigned.values()) == job.slots)
        self._add_routes()
        # Summed over the iterations; who has which level in which of them is left open, so this is a relaxation.
        rows = {gpu: {d: count for (g, d), count in self.count.items() if g == gpu} for gpu in self.assigned}
        add_depth_rule(CpSatRows(model), job, [rows], self.assigned, n)

    def _add_routes(self) -> None:
        """Keep workers of one job off servers that no route joins (specification: route-policies)."""
        for first, second in self.operations.routes.under(self.job.route_policy).apart(self.gpus):
            # One new literal stands between the two groups, so the clauses are linear in number.
            here = self.model.new_bool_var("")
            for literal in self._on_server(first):
                self.model.add_implication(literal, here)
            for literal in self._on_server(second):
                self.model.add_implication(literal, ~here)

    def _counts(self, gpu: int) -> Terms:
        return [count for (g, _), count in self.count.items() if g == gpu]

    def add_mode(self) -> None:
        """Choose one server or several, where the least span of the job allows it (specification: ring)."""
        job, model = self.job, self.model
        if job.slots == 1:
            return
        for s, room in self.gpus.items():
            span = critical.least_span_us(job, critical.sites(self.operations, job, {s: room}))
            # A server is a mode only where all workers have room and the least span there ends in time.
            if room >= job.slots and job.release_us + span <= self.clock.most:
                self.inside[s] = model.new_bool_var(f"{job.name} inside {s}")
                model.add(sum(self._on_server(s)) == job.slots).only_enforce_if(self.inside[s])
                self._add_end(span, self.inside[s])
        apart = critical.crossing_span_us(self.operations, job, self.gpus)
        if apart is not None:
            self._add_end(apart, self.crossing)
        model.add_exactly_one(literal for _, literal, _ in self.modes)

    def _add_end(self, span: int, literal: cp_model.IntVar) -> None:
        """Let the job end within the limit where a literal holds."""
        end = self.clock.of(self.job.release_us + span)
        self.model.add(self.clock.variable >= end).only_enforce_if(literal)

    def _on_server(self, server: int) -> list[cp_model.IntVar]:
        return [self.assigned[gpu] for gpu in self.operations.cluster.gpus.of_server[server] if gpu in self.assigned]

    def add_iterations(self) -> None:
        """Let each iteration last from a block here to the end of what waits for it (specification: barrier)."""
        room = self.clock.variable - self.clock.of(self.job.release_us)
        server_of = self.operations.cluster.gpus.server_of
        for gpu in self.assigned:
            s = server_of[gpu]
            times = self.times(s)
            for server, literal, channel in self.modes if self.job.slots > 1 else ():
                # In a mode, all iterations of the worker with their tails over its best channel fit behind the release.
                # The mode of another server excludes a worker here.
                if server in (s, None):
                    shortest = exchange_over(self.job, channel).shortest
                    self.model.add(self._sum(gpu, tails_us(times, shortest)) <= room).only_enforce_if(literal)
            if self.job.slots == 1:
                self.model.add(self._sum(gpu, tails_us(times, ())) <= room)

    def _sum(self, gpu: int, cost: Sequence[int]) -> cp_model.LinearExprT:
        """Return the sum over the iterations of the worker on a GPU of a cost by level."""
        levels = range(1, len(cost) + 1)
        return sum(self.clock.of(cost[d - 1]) * self.count[gpu, d] for d in levels if (gpu, d) in self.count)

    def work(self, gpu: int) -> cp_model.LinearExprT:
        """Return the time that the worker on a GPU keeps it busy."""
        return self._sum(gpu, self.times(self.operations.cluster.gpus.server_of[gpu]))

    @cached_property
    def least_tail(self) -> int:
        """Least time from the end of a block of the last iteration to the job's end, in microseconds."""
        tails = [
            tails[level - 1] - times[level - 1]
            for _, _, channel in self.modes
            for times in {self.times(s) for s in self.gpus}
            for tails in [tails_us(times, exchange_over(self.job, channel).shortest)]
            for level in candidate_levels(self.job)
            if level <= len(times)
        ]
        return min(tails, default=0)

    @cached_property
    def first_ready(self) -> int:
        """Least moment at which bucket 1 is ready, in microseconds."""
        return self.job.release_us + min((self.times(s)[0] for s in self.gpus), default=0)


def _add_order(model: cp_model.CpModel, counts: Sequence[_WorkerCounts], gpus: Sequence[int]) -> None:
    """Order the GPUs of a server, which are alike: who sits on them, read as a binary number, falls."""
    jobs = [each for each in counts if gpus and gpus[0] in each.assigned]
    jobs.sort(key=lambda each: -each.job.slots * each.job.state_bytes)
    weights = [(1 << n, each.assigned) for n, each in enumerate(reversed(jobs[:_MOST_ORDERED]))]
    for before, after in pairwise(gpus):
        model.add(sum(weight * (assigned[before] - assigned[after]) for weight, assigned in weights) >= 0)


def _add_work(model: cp_model.CpModel, clock: Limit, present: Sequence[_WorkerCounts], gpu: int) -> None:
    """Fit the blocks of all workers on a GPU between releases and tails (specification: exclusive)."""
    finite = bool(present) and present[0].operations.horizon == "finite"
    ends = [(each.job.release_us, each.least_tail) if finite else (0, 0) for each in present]
    _add_windows(model, clock, ends, [each.work(gpu) for each in present], 1)


def _add_windows(
    model: cp_model.CpModel, clock: Limit, ends: Sequence[tuple[int, int]], work: Terms, capacity: int
) -> None:
    """Fit all work with at least some head and tail between them: Jackson's bound for each such set.

    `model`: the CP-SAT model, which receives the rows. `ends`: head and tail of each part of the work, in microseconds.
    """
    for head in _thinned({head for head, _ in ends}):
        for tail in _thinned({tail for _, tail in ends}):
            inside = [amount for (h, t), amount in zip(ends, work, strict=True) if h >= head and t >= tail]
            if inside:
                # What was rounded down of the limit is less than one unit for each resource.
                room = capacity * clock.variable + (capacity - 1 if clock.unit > 1 else 0)
                model.add(sum(inside) <= room - clock.of(capacity * (head + tail)))


def _thinned(values: set[int]) -> list[int]:
    """Return some of the values, the least among them, evenly by rank."""
    # Fewer windows are fewer rows; what is left out only weakens the relaxation.
    ordered = sorted(values)
    return ordered[:: -(-len(ordered) // _MOST_ENDS) or 1]


def _add_memory(model: cp_model.CpModel, present: Sequence[_WorkerCounts], gpu: int, memory: int) -> None:
    """Fit the states of all workers and the largest activations into the memory (specification: memory)."""
    if most_bytes(each.job for each in present) <= memory:
        return
    # Rounded-down sizes add up to no more than the rounded-down memory wherever the exact ones fit.
    unit = -(-memory // _LARGEST_NUMBER) or 1
    states = (each.job.state_bytes // unit * each.assigned[gpu] for each in present)
    add_gpu_memory(model, gpu, memory // unit, states, _activations(model, present, gpu, unit))


def _activations(
    model: cp_model.CpModel, present: Sequence[_WorkerCounts], gpu: int, unit: int
) -> Iterator[cp_model.LinearExprT]:
    """Yield the activations of the levels that are in use on a GPU."""
    for each in present:
        job = each.job
        for level in candidate_levels(job):
            if (gpu, level) in each.count:
                used = model.new_bool_var(f"{job.name} reaches {level} on {gpu}")
                # A level that any iteration has is in use, and then its activations count.
                model.add(each.count[gpu, level] <= job.iterations * used)
                yield job.activation_bytes[level - 1] // unit * used


def _add_transfers(
    model: cp_model.CpModel,
    operations: Operations,
    clock: Limit,
    counts: Sequence[_WorkerCounts],
    places: ServerGroups,
) -> None:
    """Give a job that sits in several groups a link that leaves each of them (specification: exclusive)."""
    uses: dict[int, list[tuple[_WorkerCounts, cp_model.IntVar]]] = {group: [] for group in places.leaving}
    for each in counts:
        if each.ring is not None:
            for group, literal in _leaves(model, each, places).items():
                uses[group].append((each, literal))
    for group, users in uses.items():
        links = [operations.cluster.links[k] for k in places.leaving[group]]
        if users and links:
            # All links that leave the group count as one resource, each as good as the best of them.
            rate, latency = max(link.bandwidth for link in links), min(link.latency_us for link in links)
            loads: Terms = [clock.of(_least_transfers(each, rate, latency)) * literal for each, literal in users]
            heads = [each.first_ready if operations.horizon == "finite" else 0 for each, _ in users]
            _add_windows(model, clock, [(head, 0) for head in heads], loads, len(links))


def _leaves(model: cp_model.CpModel, each: _WorkerCounts, places: ServerGroups) -> dict[int, cp_model.IntVar]:
    """Return the literal that a job uses a link that leaves a group, by group."""
    groups = sorted({places.group[s] for s in each.gpus})
    on = {group: model.new_bool_var(f"{each.job.name} in {group}") for group in groups}
    for gpu, literal in each.assigned.items():
        model.add_implication(literal, on[places.group[each.operations.cluster.gpus.server_of[gpu]]])
    several = model.new_bool_var(f"{each.job.name} in several")
    leaves = {group: model.new_bool_var(f"{each.job.name} leaves {group}") for group in groups}
    for group in groups:
        model.add_bool_or([leaves[group], ~on[group], ~several])
        model.add_bool_or([~leaves[group], on[group]])
    model.add(sum(on.values()) <= 1).only_enforce_if(~several)
    return leaves


def _least_transfers(each: _WorkerCounts, rate: int, latency: int) -> int:
    ring = each.ring
    assert ring is not None, "only jobs that may sit on several servers leave one"
    # No transfer beats the best ring of the job, nor the best link that leaves the group.
    channel = Channel((), min(ring.rate, rate), max(ring.latency_us, latency))
    return critical.least_transfer_us(each.job, exchange_over(each.job, channel))
