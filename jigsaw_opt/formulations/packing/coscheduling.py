"""Coschedules: jobs on the same GPUs, and the rates that no timetable of them beats.

A *coschedule* is one job alone at full depth, or two jobs of the same number of workers on the same GPUs, whose
iterations take turns one to one. Each of two takes one of its class's depth rules. Jobs of one model, width and rules
are of one *kind*, and what is said of a coschedule depends on the kinds alone; classes of a kind differ in weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations_with_replacement, product
from typing import NamedTuple

from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.compiled.critical import least_work_us, shortest_transfers, tails_us
from jigsaw_opt.problem.compiled.operations import OperationGraph, compile_instance
from jigsaw_opt.problem.costs import ceil_div, deepest_level, most_bytes
from jigsaw_opt.problem.depth import Depth, FullDepth
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.packing import PackingProblem, ServerType

LEAST_GAIN = Fraction(11, 10)
"""Least sum of the rates of jobs that share GPUs below full depth by choice, each beside its rate alone.

Less does not pay for the restarts, and the efficiency that it follows from is an estimate.
"""
_ALONE = (FullDepth(),)
_LONG = 64
"""Iterations over which the mean work of an iteration under a free depth rule is counted."""


@dataclass(frozen=True, slots=True)
class JobKind:
    """Jobs of one model, number of workers, and depth rules of which each may take one."""

    model: str
    workers: int
    depths: tuple[Depth, ...]


@dataclass(frozen=True, slots=True)
class CoscheduleSite:
    """GPUs that a coschedule takes.

    `servers`: servers of the type that it needs; more than one only where it needs all but the last one wholly.
    """

    servers: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Coschedule:
    """Jobs that share GPUs.

    `kinds`: kind of each job, in the order of the problem's kinds. `depths`: depth rule of each. `references_us`: for
    each job, the time of an iteration alone at full depth on the fastest type of GPU, and `alone_us` that on this type.
    `period_us`: time in which no timetable does more than one iteration of each job. `most_progress`: for each job,
    what no iteration under its depth rule exceeds in progress.
    """

    kinds: tuple[JobKind, ...]
    depths: tuple[Depth, ...]
    site: CoscheduleSite
    references_us: tuple[int, ...]
    alone_us: tuple[int, ...]
    period_us: Fraction
    most_progress: tuple[Fraction, ...]

    @property
    def least_us(self) -> tuple[Fraction, ...]:
        """For each job, in microseconds, a time in which no timetable makes more progress than a whole iteration's."""
        return tuple(self.period_us / progress for progress in self.most_progress)

    def pays(self, whole_us: Sequence[Fraction]) -> bool:
        """Return whether jobs get on at least as fast as in turn, each at full depth, if a whole iteration takes these.

        Depths that are below full by choice, and not because the rules say so, must gain `LEAST_GAIN`.
        """
        gain = sum(alone / own for alone, own in zip(self.alone_us, whole_us, strict=True))
        is_choice = any(len(kind.depths) > 1 for kind in self.kinds) and any(one != FullDepth() for one in self.depths)
        return gain >= (LEAST_GAIN if is_choice else 1)

    def rates(self, whole_us: Sequence[Fraction]) -> tuple[float, ...]:
        """Return the normalised progress of each job in unit time if that of a whole iteration takes `whole_us`."""
        return tuple(float(known / own) for known, own in zip(self.references_us, whole_us, strict=True))


def mean_progress(model: Model, levels: Sequence[Sequence[int]]) -> Fraction | None:
    """Return the mean progress of iterations beside one at full depth, exactly; None below full depth where unknown.

    `levels`: level of each worker, by iteration.
    """
    if all(level == model.depth for iteration in levels for level in iteration):
        return Fraction(1)
    if model.efficiency is None:
        return None
    return Fraction(sum(map(model.efficiency.progress, levels)), len(levels) * model.efficiency.most)


def kinds(problem: PackingProblem) -> tuple[tuple[JobKind, ...], tuple[int, ...]]:
    """Return the kinds of a problem, and for each class the number of its kind."""
    numbers: dict[JobKind, int] = {}
    of_class = [numbers.setdefault(JobKind(c.model, c.workers, c.depths), len(numbers)) for c in problem.classes]
    return tuple(numbers), tuple(of_class)


def coschedule_instance(
    server_type: ServerType,
    members: Sequence[tuple[JobKind, Depth, Model]],
    place: CoscheduleSite,
    iterations: int,
) -> Instance:
    """Return the cyclic instance whose plan is a timetable of a coschedule."""
    models = {kind.model: model for kind, _, model in members}
    jobs = tuple(
        Job(f"j{k}", kind.model, kind.workers, iterations, depth=depth) for k, (kind, depth, _) in enumerate(members)
    )
    return Instance("coschedule", server_type.group(place.servers, place.gpus), models, jobs, "cyclic", "period")


def coschedules(problem: PackingProblem, number: int, references: Mapping[JobKind, int]) -> Iterator[Coschedule]:
    """Yield all coschedules on servers of one type.

    `references`: time of an iteration alone at full depth on the reference type, by kind; see `references_us`.
    """
    server_type = problem.types[number]
    measured = {kind: _KindOnType(problem, server_type, kind) for kind in references}
    able = [m for m in measured.values() if m.fits]
    for own in able:
        assert own.site is not None
        whole = (Fraction(1),)
        yield Coschedule(
            (own.kind,),
            _ALONE,
            own.site,
            (references[own.kind],),
            (own.alone_us,),
            Fraction(own.alone_us),
            whole,
        )
    for first, second in combinations_with_replacement(able, 2):
        if first.kind.workers == second.kind.workers and _have_room(server_type, first, second):
            yield from _pair(first, second, references)


def references_us(problem: PackingProblem, known: Iterable[JobKind]) -> dict[JobKind, int]:
    """Return the least time of an iteration alone at full depth over all types of servers, in microseconds.

    By kind; kinds that no type can run are left out.
    """
    return {kind: min(one.alone_us for one in able) for kind, able in _able(problem, known)}


def busy_shares(problem: PackingProblem, known: Iterable[JobKind]) -> dict[JobKind, float]:
    """Return the least share of the GPUs' time that a job keeps busy while it makes the progress that it makes alone.

    By kind, the least over all types of servers and its depth rules; without kinds that no type can run.
    """
    return {
        kind: min(
            float(own.work_us / (kind.workers * one.alone_us * own.progress)) for one in able for own in one.at_depths
        )
        for kind, able in _able(problem, known)
    }


def _able(problem: PackingProblem, known: Iterable[JobKind]) -> Iterator[tuple[JobKind, list[_KindOnType]]]:
    """Yield kinds with the types of servers that can run them, where there are any."""
    for kind in known:
        if able := [measured for t in problem.types if (measured := _KindOnType(problem, t, kind)).fits]:
            yield kind, able


class _AtDepth(NamedTuple):
    """A kind of jobs under a depth rule, on servers of one type; times are in microseconds.

    `iteration_us`: least time of an iteration. `work_us, links_us`: least mean time of one on all of its GPUs, and on
    its busiest link. `progress`: what no iteration exceeds beside one at full depth; 1 where nobody knows.
    """

    depth: Depth
    iteration_us: int
    work_us: Fraction
    links_us: Fraction
    progress: Fraction


class _KindOnType:
    """A kind of jobs on servers of one type."""

    def __init__(self, problem: PackingProblem, server_type: ServerType, kind: JobKind) -> None:
        self.kind, self.type = kind, server_type
        self.model = problem.models[kind.model]
        servers = ceil_div(kind.workers, server_type.server.gpus)
        is_there = servers <= server_type.count and (servers == 1 or server_type.bandwidth)
        self.site = CoscheduleSite(servers, kind.workers) if is_there else None

    @property
    def fits(self) -> bool:
        """Whether a job of this kind can run alone at full depth."""
        server = self.type.server
        return (
            self.site is not None
            and server.gpu_type in self.model.gpu_types
            and deepest_level(self.full, server.gpu_memory) == self.full.levels
        )

    @cached_property
    def full(self) -> OperationGraph:
        return self._graph(FullDepth())

    @cached_property
    def alone_us(self) -> int:
        """Time of an iteration alone at full depth, in microseconds."""
        return self._iteration_us(self.full)

    @cached_property
    def at_depths(self) -> tuple[_AtDepth, ...]:
        """The kind at full depth, if it may be, and under the rule below with most progress for its GPU time."""
        full, below = list[_AtDepth](), list[_AtDepth]()
        for own in map(self._at, self.kind.depths):
            (full if own.depth == FullDepth() else below).append(own)
        return (*full, *sorted(below, key=lambda own: own.work_us / own.progress)[:1])

    def _at(self, depth: Depth) -> _AtDepth:
        job = self._graph(depth)
        levels = job.rule.multiset
        known = None if levels is None else mean_progress(self.model, [levels])
        busy = sum(shortest_transfers(job, self._channel)) if self._channel.links else 0
        work = Fraction(least_work_us(job, self._table), job.iterations)
        return _AtDepth(depth, self._iteration_us(job), work, Fraction(busy), known or Fraction(1))

    @cached_property
    def _table(self) -> tuple[int, ...]:
        return self.full.blocks[0].duration_us[self.type.server.gpu_type]

    @cached_property
    def _channel(self) -> Channel:
        assert self.site is not None
        instance = coschedule_instance(self.type, [(self.kind, FullDepth(), self.model)], self.site, 1)
        found = compile_instance(instance).routes.channel({k: s.gpus for k, s in enumerate(instance.cluster.servers)})
        assert found is not None
        return found

    def _graph(self, depth: Depth) -> OperationGraph:
        place = CoscheduleSite(1, self.kind.workers)
        return compile_instance(coschedule_instance(self.type, [(self.kind, depth, self.model)], place, _LONG)).jobs[0]

    def _iteration_us(self, job: OperationGraph) -> int:
        return tails_us(self._table, shortest_transfers(job, self._channel))[job.levels - 1]


def _have_room(server_type: ServerType, first: _KindOnType, second: _KindOnType) -> bool:
    """Return whether two jobs fit into the memory of the same GPUs with any levels (specification: memory)."""
    return most_bytes((first.full, second.full)) <= server_type.server.gpu_memory


def _pair(first: _KindOnType, second: _KindOnType, references: Mapping[JobKind, int]) -> Iterator[Coschedule]:
    """Yield the coschedules of two jobs, each under one of its depth rules, of which none is better for both.

    One iteration of each takes at least the mean time of both on their GPUs, on their links, and of each alone. None
    where taking turns in longer stretches at full depth does as well.
    """
    assert first.site is not None
    known, workers = (references[first.kind], references[second.kind]), first.kind.workers
    found: list[tuple[tuple[Fraction, Fraction], Coschedule]] = []
    for one, other in product(first.at_depths, second.at_depths):
        period = max(
            Fraction(one.iteration_us),
            Fraction(other.iteration_us),
            (one.work_us + other.work_us) / workers,
            one.links_us + other.links_us,
        )
        progress = one.progress, other.progress
        kinds, alone = (first.kind, second.kind), (first.alone_us, second.alone_us)
        depths, rates = (one.depth, other.depth), (one.progress / period, other.progress / period)
        made = Coschedule(kinds, depths, first.site, known, alone, period, progress)
        # Longer stretches in turn reach the sum of both times, without any coschedule.
        if sum(made.alone_us[k] * rates[k] for k in range(2)) > 1 and made.pays(made.least_us):
            found.append((rates, made))
    # Of two that are alike the earlier one counts.
    order = sorted(found, key=lambda rated: rated[0], reverse=True)
    best = Fraction(-1)
    for (_, rate), coschedule in order:
        if rate > best:
            best = rate
            yield coschedule
