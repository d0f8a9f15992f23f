"""Column generation: patterns are priced into the master program until none pays.

First every coschedule is taken at the rates that no timetable of it beats; the value of that program bounds every
packing of coschedules, and so does, at any moment, the value of its prices with the best pattern of every type added
(Lagrange). Then the coschedules of the patterns that are used get timetables, one after the other, and the program is
solved with the rates that these give.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import NamedTuple

from jigsaw_opt.formulations.packing.cheapest_levels import with_cheapest_levels
from jigsaw_opt.formulations.packing.coscheduling import (
    Coschedule,
    JobKind,
    coschedule_instance,
    coschedules,
    kinds,
    mean_progress,
    references_us,
)
from jigsaw_opt.formulations.packing.master import (
    Column,
    CoscheduledClasses,
    Prices,
    Pricing,
    ServerPattern,
    column,
    master,
)
from jigsaw_opt.problem.compiled.operations import Operations, compile_instance
from jigsaw_opt.problem.depth import Depth, FreeDepth, FullDepth, StaircaseDepth
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.packing import PackingProblem
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.correct import require_correct
from jigsaw_opt.solvers.engines.highs import HighsEngine
from jigsaw_opt.solvers.greedy.heuristic import timetables
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import StoppedBy
from jigsaw_opt.solvers.solve_state import SolveState

ITERATIONS = 32
"""Iterations of each job in a period: with more of them the levels of a GPU even out further."""


@dataclass(slots=True)
class Timetables:
    """Timetables of coschedules, by what they depend on.

    `found`: number of timetables that were searched for.
    """

    found: int = field(default=0, init=False)
    _speeds: dict[tuple[object, ...], tuple[MeanIteration, ...] | None] = field(default_factory=dict, init=False)

    def whole_us(self, problem: PackingProblem, number: int, coschedule: Coschedule) -> tuple[Fraction, ...] | None:
        """Return for each job of a coschedule the time in which it makes the progress of a whole iteration.

        In microseconds; None without a plan. `coschedule`: kinds of jobs that share GPUs.
        """
        if len(coschedule.kinds) == 1:
            return (coschedule.period_us,)  # Alone at full depth there is nothing to decide, and the period is exact.
        own = problem.types[number]
        members = [
            (kind, depth, problem.models[kind.model])
            for kind, depth in zip(coschedule.kinds, coschedule.depths, strict=True)
        ]
        who = tuple((kind.model, kind.workers, depth) for kind, depth, _ in members)
        iterations = iterations_of(coschedule.depths)
        key = (who, coschedule.site, altered(own.server, name="", gpus=1), own.bandwidth, own.latency_us)
        if key not in self._speeds:
            self._speeds[key] = fastest_iterations(coschedule_instance(own, members, coschedule.site, iterations))
            self.found += 1
        found = self._speeds[key]
        return None if found is None else tuple(one.whole_us for one in found)


def iterations_of(depths: Sequence[Depth]) -> int:
    """Return how many iterations of each job a period has: one where workers keep their levels for ever.

    Under full depth and the plain staircase they do.
    """
    return 1 if all(depth in (FullDepth(), StaircaseDepth()) for depth in depths) else ITERATIONS


class MeanIteration(NamedTuple):
    """The iterations of a job in a timetable.

    `us`: mean time of one, in microseconds. `progress`: mean progress of one beside an iteration at full depth; None
    where some are below full depth and nobody knows what these are worth.
    """

    us: Fraction
    progress: Fraction | None

    @property
    def whole_us(self) -> Fraction:
        """Time in which the job makes the progress of an iteration at full depth; unknown ones count as whole."""
        return self.us if self.progress is None else self.us / self.progress


def fastest_iterations(instance: Instance) -> tuple[MeanIteration, ...] | None:
    """Return the iterations of each job in the best plan of a cyclic instance that was found; None where none was.

    The best one has the greatest sum of the jobs' rates of progress, so the shortest period where all count as whole.
    List scheduling begins from levels near the staircase. Where a rule is free it begins also from the staircase
    itself, which the plain free rule allows, and from the levels that keep GPUs busy least.
    """
    plans = [plan for plan in map(partial(cyclic_plan, instance), _variants(instance)) if plan is not None]
    found = [tuple(_mean_iterations(instance, plan)) for plan in plans]
    return max(found, key=lambda jobs: sum(1 / job.whole_us for job in jobs), default=None)


def _mean_iterations(instance: Instance, plan: Plan) -> Iterator[MeanIteration]:
    levels = {planned.name: planned.levels for planned in plan.jobs}
    for job in instance.data_parallel:
        progress = mean_progress(instance.models[job.model], levels[job.name])
        yield MeanIteration(Fraction(plan.objective, job.iterations), progress)


def cyclic_plan(instance: Instance, operations: Operations) -> Plan | None:
    """Return a checked plan of a cyclic instance by list scheduling; None where none was found."""
    timetable = next(timetables(operations), None)
    if timetable is None:
        return None
    solve_state = SolveState("greedy", compile_instance(instance), Options(), lambda event: None)
    solve_state.offer(timetable)
    plan = solve_state.result(StoppedBy.COMPLETED).plan
    assert plan is not None
    require_correct(instance, plan, "list scheduling")
    return plan


def _variants(instance: Instance) -> Iterator[Operations]:
    operations = compile_instance(instance)
    yield operations
    plain = tuple(altered(j, depth=StaircaseDepth()) if j.depth == FreeDepth() else j for j in instance.data_parallel)
    if plain != instance.jobs:
        yield compile_instance(altered(instance, jobs=plain))
    gpu_type = instance.cluster.servers[0].gpu_type
    cheapest = tuple(with_cheapest_levels(job, gpu_type) for job in operations.jobs)
    if cheapest != operations.jobs:
        yield replace(operations, jobs=cheapest)


class MasterSolution(NamedTuple):
    """A solution of the linear program: its value, how much of each column, and the prices of the rows."""

    value: float
    columns: list[float]
    prices: Prices


class RelaxedMaster:
    """The master program without integrality."""

    def __init__(self, problem: PackingProblem) -> None:
        self._types = len(problem.types)
        self._engine = HighsEngine(master(problem), {"solver": "simplex", "presolve": "off"})

    def add(self, column: Column) -> None:
        """Add a pattern."""
        self._engine.add_column(-column.value, column.rows, column.coefficients)

    def limit(self, upper: Sequence[float]) -> None:
        """Change the right-hand sides of all rows."""
        self._engine.limit_rows(upper)

    def solve(self) -> MasterSolution:
        """Solve it, starting from the last basis."""
        found = self._engine.run()
        # The engine minimises, so a price is what the objective falls by.
        prices = (-found.duals).clip(min=0.0).tolist()
        return MasterSolution(
            -found.objective, found.values.tolist(), Prices(prices[: self._types], prices[self._types :])
        )


_PAYS = 1e-6
"""Least excess of a pattern's worth over the price of its servers, as a share of what a server is worth."""
_ENOUGH = 2e-3
"""No more timetables are made once their program is this close to the bound."""

Recipe = tuple[int, int, tuple[tuple[tuple[str, ...], int], ...]]
"""A pattern as type, servers and names of the classes of its teams: what stays the same from round to round."""


@dataclass(slots=True)
class Memory:
    """Timetables and patterns that one packing leaves to the next of the same types and models.

    `catalogues`: coschedules by kinds of jobs and types of servers, with the type of each.
    """

    timetables: Timetables = field(default_factory=Timetables)
    recipes: dict[Recipe, None] = field(default_factory=dict)
    catalogues: dict[object, list[tuple[int, Coschedule]]] = field(default_factory=dict)


class Generation:
    """Column generation for one problem.

    `memory`: of packings before; it is added to. `coschedules, on_type`: all coschedules, and the type of servers of
    each. `rates`: rates of the jobs of each coschedule: from its timetable where there is one, else those that none
    beats. `bound`: no packing of these coschedules is worth more.
    """

    def __init__(self, problem: PackingProblem, memory: Memory) -> None:
        self.problem, self.memory = problem, memory
        found, of_class = kinds(problem)
        members: dict[JobKind, list[int]] = {}
        for number, kind in enumerate(of_class):
            members.setdefault(found[kind], []).append(number)
        catalogue = _catalogue(problem, found, memory)
        self.coschedules, self.on_type = [each for _, each in catalogue], [number for number, _ in catalogue]
        self.rates = [coschedule.rates(coschedule.least_us) for coschedule in self.coschedules]
        self.counts = [c.count for c in problem.classes]
        self.bound = float("inf")
        self.columns: dict[ServerPattern, None] = {}
        numbers, weights = range(len(self.on_type)), [c.weight for c in problem.classes]
        self.pricings = []
        for t, own in enumerate(problem.types):
            on_type = [g for g in numbers if self.on_type[g] == t]
            self.pricings.append(Pricing(t, own.server.gpus, self.coschedules, on_type, members, weights))
        self._timetabled = [len(coschedule.kinds) == 1 for coschedule in self.coschedules]

    def relax(self) -> list[ServerPattern]:
        """Solve the program at rates that no timetable beats, for the bound; return the patterns that it uses."""
        program, patterns = RelaxedMaster(self.problem), dict.fromkeys(self._remembered())
        for pattern in patterns:
            program.add(column(self.problem, pattern, self.rates))
        solution = program.solve()
        while entering := self._entering(solution, patterns, bounding=True):
            for pattern in entering:
                patterns[pattern] = None
                program.add(column(self.problem, pattern, self.rates))
            solution = program.solve()
        return [pattern for pattern, taken in zip(patterns, solution.columns, strict=True) if taken > 0.0]

    def with_timetables(self, used: Iterable[ServerPattern]) -> tuple[RelaxedMaster, MasterSolution]:
        """Return the program over patterns with timetables, beginning with those that are `used`, and its solution."""
        program = RelaxedMaster(self.problem)
        for pattern in dict.fromkeys((*used, *self._remembered())):
            self._take(program, pattern)
        solution = program.solve()
        while solution.value < self.bound * (1.0 - _ENOUGH) and (
            entering := self._entering(solution, self.columns, bounding=False)
        ):
            for pattern in entering:
                self._take(program, pattern)
            solution = program.solve()
        self._remember(solution)
        return program, solution

    def _entering(
        self, solution: MasterSolution, known: Container[ServerPattern], bounding: bool
    ) -> dict[ServerPattern, None]:
        """Return patterns not yet known that pay at the prices of a solution; lower the bound with optimistic rates."""
        prices, entering = solution.prices, dict[ServerPattern, None]()
        bound = sum(price * count for price, count in zip(prices.jobs, self.counts, strict=True))
        scale = _PAYS * max(solution.value, 1e-300) / sum(t.count for t in self.problem.types)
        for number, pricing in enumerate(self.pricings):
            best = 0.0
            for priced in pricing.patterns(prices, self.rates, self.counts):
                each = priced.value / priced.pattern.servers
                best = max(best, each)
                if each > scale and priced.pattern not in known:
                    entering[priced.pattern] = None
            bound += self.problem.types[number].count * (prices.servers[number] + best)
        if bounding:
            self.bound = min(self.bound, bound)
        return entering

    def timetabled_rates(self) -> list[tuple[float, ...]]:
        """Return the rates of all coschedules, zeros for those without a timetable."""
        return [
            rates if known else (0.0,) * len(rates) for rates, known in zip(self.rates, self._timetabled, strict=True)
        ]

    def _take(self, program: RelaxedMaster, pattern: ServerPattern) -> None:
        for team, _ in pattern.teams:
            self.timetable(team.coschedule)
        self.columns[pattern] = None
        program.add(column(self.problem, pattern, self.rates))

    def timetable(self, number: int) -> bool:
        """Give a coschedule the rates of its timetable, zeros where it has none; return whether they were unknown."""
        if self._timetabled[number]:
            return False
        coschedule = self.coschedules[number]
        whole_us = self.memory.timetables.whole_us(self.problem, self.on_type[number], coschedule)
        pays = whole_us is not None and coschedule.pays(whole_us)
        self.rates[number] = coschedule.rates(whole_us) if whole_us and pays else (0.0,) * len(coschedule.kinds)
        self._timetabled[number] = True
        return True

    def _remember(self, solution: MasterSolution) -> None:
        names = [c.name for c in self.problem.classes]
        self.memory.recipes.clear()
        for pattern, taken in zip(self.columns, solution.columns, strict=True):
            if taken > 0.0:
                teams = tuple((tuple(names[c] for c in team.classes), copies) for team, copies in pattern.teams)
                self.memory.recipes[pattern.type, pattern.servers, teams] = None

    def _remembered(self) -> Iterator[ServerPattern]:
        number = {c.name: k for k, c in enumerate(self.problem.classes)}
        # Of coschedules of the same kinds, that of the greatest rates: these are the last.
        order = sorted(range(len(self.rates)), key=lambda k: sum(self.rates[k]))
        coschedule_of = {(self.on_type[k], self.coschedules[k].kinds): k for k in order}
        for on, servers, recipe in self.memory.recipes:
            teams = []
            for own, copies in recipe:
                classes = tuple(number[name] for name in own if name in number)
                coschedule = coschedule_of.get((on, tuple(self._kind(c) for c in classes)))
                if coschedule is None or len(classes) < len(own):
                    break
                teams.append((CoscheduledClasses(coschedule, classes), copies))
            else:
                yield ServerPattern(on, servers, tuple(sorted(teams)))

    def _kind(self, number: int) -> JobKind:
        own = self.problem.classes[number]
        return JobKind(own.model, own.workers, own.depths)


def _catalogue(problem: PackingProblem, found: tuple[JobKind, ...], memory: Memory) -> list[tuple[int, Coschedule]]:
    key = (problem.types, found, tuple(problem.models))
    if key not in memory.catalogues:
        known = references_us(problem, found)
        memory.catalogues[key] = [
            (t, coschedule) for t in range(len(problem.types)) for coschedule in coschedules(problem, t, known)
        ]
    return memory.catalogues[key]
