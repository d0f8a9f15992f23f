"""Cuts, order of passes, memory and micro-batches of a pipeline, decided together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

from jigsaw_opt.errors import InfeasibleError, OutOfTimeError, UsageError, argument
from jigsaw_opt.planning.joint.chain_bound import ChainBound
from jigsaw_opt.planning.joint.choices import PipelineChoices, PipelineConfiguration, configurations
from jigsaw_opt.planning.joint.cut_bound import NEVER, cut_bound_us
from jigsaw_opt.planning.joint.cut_search import ScheduledCut, balanced_cut, pass_units, schedule_balanced, search_cuts
from jigsaw_opt.planning.joint.less_memory import with_less_memory
from jigsaw_opt.planning.joint.stage_table import Cut, StageTable, stage_tables
from jigsaw_opt.planning.joint.virtual_bound import VirtualBound
from jigsaw_opt.planning.limits import Limits
from jigsaw_opt.planning.partition.positions import positions_of
from jigsaw_opt.planning.pipeline.orders import Orders
from jigsaw_opt.planning.pipeline.schedule import plan_of_orders
from jigsaw_opt.planning.pipeline.search import search_schedule
from jigsaw_opt.planning.pipeline.stages import PipelineProblem, peak_bytes
from jigsaw_opt.planning.pipeline.stated import orders_of
from jigsaw_opt.planning.planned import Planned
from jigsaw_opt.problem import clock
from jigsaw_opt.problem.measured.layers import LayerGraph
from jigsaw_opt.solvers.bounds import Proof
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Event, Status

_BOUNDS_UNTIL = 0.6
"""Share of the limits that is left once bounds are proven for the first time."""
_CUTS_UNTIL = 0.5
"""Share of what is left then that remains for the orders of passes once cuts are searched for."""
_MOST_CUTS, _LIMITS = 300, 16
"""Cuts of a configuration that are solved one by one at most, and how often a limit that leaves more is lowered."""
_CUT_SHARES, _ROUNDS = 3, 2
"""Equal shares of what is left of the limits that one of these cuts may take, and how often they are gone through."""
_CANDIDATES, _CANDIDATE_SHARE = 3, 0.5
"""Best cuts whose orders are searched for in any case, and the share of what is left for each."""
_PASSES_A_SECOND = 5_000
"""Passes of a step that are timed, written down and checked in a second of the limit; each has one second more."""
_MEMORY_SHARE, _MEMORY_SECONDS = 0.02, 0.5
"""For orders that are as short and hold less: a share of the limits beside these, and seconds at most."""


@dataclass(frozen=True)
class CutPipeline:
    """The cuts of a pipeline and the order of its passes.

    `table`: costs of all stages of the configuration that was chosen. `baseline_us`: step of the schedule that it is
    compared with, in microseconds; None where that does not fit into the memory, or there is none.
    """

    table: StageTable
    cut: Cut
    pipeline: PipelineProblem
    orders: Orders
    baseline_us: int | None = None


def plan_pipeline(
    graph: LayerGraph,
    choices: PipelineChoices,
    options: Options,
    *,
    name: str = "pipeline",
    report: Callable[[Event], None] | None = None,
) -> Planned[CutPipeline]:
    """Cut a model into the stages of a pipeline, and order their passes, so that a step with a flush is shortest.

    The best that was found. No cut, number of micro-batches, placement and schedule that was allowed is below its
    bound.
    """
    # A first plan is made however long it takes: that depends on the size of the model alone.
    with clock.limited(clock.Clock(None, options.cancel)):
        planner = _Planner(graph, choices, options, name, report)
        planner.plan_first()
    planner.prove_bounds(_BOUNDS_UNTIL)
    planner.search_cuts()
    planner.search_orders()
    planner.prove_bounds(0.0)
    planner.lower_memory()
    return planner.plan()


class _Planner:
    """Searches one after the other on one budget.

    `bounds`: for each configuration, its bound; the least first. `solved`: for each configuration and cut, what is
    proven of its schedules. `best`: the cut with the shortest schedule so far.
    """

    def __init__(
        self,
        graph: LayerGraph,
        choices: PipelineChoices,
        options: Options,
        name: str,
        report: Callable[[Event], None] | None,
    ) -> None:
        self.options, self.name, self.report = options, name, report
        self.budget = Limits(options)
        self.memory = choices.memory
        allowed = list(configurations(choices, graph))
        _require_time(allowed, options.time_limit)
        tables = stage_tables(positions_of(graph), choices, allowed)
        self._set_bounds(
            ChainBound(table) if table.configuration.layout.chunks == 1 else VirtualBound(table) for table in tables
        )
        self.candidates: list[ScheduledCut] = []
        self.solved: dict[tuple[PipelineConfiguration, Cut], int] = {}
        self.best: ScheduledCut | None = None

    def _set_bounds(self, bounds: Iterable[ChainBound | VirtualBound]) -> None:
        """Keep bounds, the least first, without those of configurations that no cut of fits."""
        found = [(bound.least_us, bound) for bound in bounds if bound.least_us is not None]
        if not found:
            memory = "" if self.memory is None else " that fit into the memory"
            raise InfeasibleError(f"the model cannot be cut into so many stages{memory}")
        self.bounds = sorted(found, key=lambda bound: bound[0])

    def plan_first(self) -> None:
        """Schedule the balanced cut of the first configuration that has one within the memory."""
        for _, bound in self.bounds:
            clock.check_deadline()
            found = schedule_balanced(bound, self.budget)
            if found is not None:
                self._offer(found)
                return

    def prove_bounds(self, until: float) -> None:
        """Raise bounds, the least first, in equal parts of the limits, until only a share of these is left."""
        open_ones = [bound for _, bound in self.bounds if not bound.proven]
        for number, bound in enumerate(open_ones):
            left = self.budget.left()
            if left <= until or self._proven():
                break
            self.budget.spend(bound.prove(self.budget.part_of_left((1 - until / left) / (len(open_ones) - number))))
            self._set_bounds([each for _, each in self.bounds])

    def search_cuts(self) -> None:
        """Search for cuts of each configuration, those with the least bounds first, in equal shares of the limits."""
        begin = self.budget.left()
        for number, (least, bound) in enumerate(self.bounds, 1):
            if self.best is not None and least >= self.best.makespan_us:
                break
            until = begin - (1 - _CUTS_UNTIL) * begin * number / len(self.bounds)
            self.candidates += search_cuts(bound, self.budget, until, self.options.seed)
            self.candidates.sort(key=lambda candidate: candidate.makespan_us)
            if self.candidates:
                self._offer(self.candidates[0])
        if self.best is None:
            self._search_any()

    def search_orders(self) -> None:
        """Search for orders of the best cuts; where few may still be better, of each of these."""
        cuts = {id(each.table): balanced_cut(each.table) for each in self.candidates}
        balanced = [each for each in self.candidates if each.cut == cuts[id(each.table)]]
        # The balanced cut is among them, so that no order of it is better for want of a search.
        for candidate in [*self.candidates[:1], *balanced[:1], *self.candidates[1:_CANDIDATES]]:
            if self._proven() or self.budget.over:
                return
            if (candidate.table.configuration, candidate.cut) not in self.solved:
                self._solve(candidate.table, candidate.cut, candidate.orders, _CANDIDATE_SHARE)
        for _ in range(_ROUNDS):
            left = sorted(self._open_cuts()[1], key=lambda entry: entry[0])
            for number, (least, table, cut) in enumerate(left):
                if self._proven() or self.budget.over:
                    return
                if least < self._makespan_us() and (table.configuration, cut) not in self.solved:
                    self._solve(table, cut, None, min(_CANDIDATE_SHARE, _CUT_SHARES / (len(left) - number)))

    def _search_any(self) -> None:
        """Solve the cuts that may fit one by one, until one does: no list schedule of a cut that was tried does."""
        left = self._cuts_below(NEVER // 4)
        for _, table, cut in sorted(left or (), key=lambda entry: entry[0]):
            if self.best is not None or self.budget.over:
                break
            self._solve(table, cut, None, _CANDIDATE_SHARE)
        if self.best is not None:
            return
        if left is not None and all(self.solved.get((table.configuration, cut)) == NEVER for _, table, cut in left):
            raise InfeasibleError("no schedule of any cut fits into the memory")
        raise OutOfTimeError("no schedule of a cut that was tried fits into the memory; others may")

    def lower_memory(self) -> None:
        """Keep, of the cuts with the shortest schedules and of orders that are as short, what holds least at once."""
        assert self.best is not None, "cuts were searched for"
        shortest, budget = self.best.makespan_us, Limits(self._memory_options())
        others = [each for each in self.candidates if each.makespan_us == shortest and each.cut != self.best.cut]
        found = list[tuple[int, int, ScheduledCut]]()
        for candidate in [self.best, *others][:_CANDIDATES]:
            pipeline = candidate.table.problem(candidate.cut)
            orders = with_less_memory(pipeline, candidate.orders, partial(budget.is_spent_by, pass_units(pipeline)))
            found.append((max(peak_bytes(pipeline, orders)), len(found), candidate._replace(orders=orders)))
        self.best = min(found)[2]

    def _memory_options(self) -> Options:
        """Return limits of its own for this search, as those of the search are used up by then as a rule."""
        seconds, work = self.options.time_limit, self.options.work_limit
        return replace(
            self.options,
            time_limit=None if seconds is None else min(_MEMORY_SECONDS, _MEMORY_SHARE * seconds),
            work_limit=None if work is None else _MEMORY_SHARE * work,
        )

    def plan(self) -> Planned[CutPipeline]:
        """Return the best plan with what is proven."""
        assert self.best is not None, "cuts were searched for"
        best, bound = self.best, self._bound_us()
        pipeline = best.table.problem(best.cut)
        made = plan_of_orders(pipeline, best.orders, self.name, "finite", "list")
        plan = made.plan
        assert plan is not None, "orders have a plan"
        own = min(plan.objective, self.solved.get((best.table.configuration, best.cut), 0))
        if own > plan.bound:
            plan = replace(plan, bound=own, status="optimal" if own == plan.objective else "feasible")
        sentence = f"No cut and order of passes that was allowed has a step below {bound} us."
        details = CutPipeline(best.table, best.cut, pipeline, best.orders)
        return Planned(made.instance, plan, bound, Proof(sentence, relaxation="pipeline cuts"), details)

    def _makespan_us(self) -> int:
        assert self.best is not None, "cuts were searched for"
        return self.best.makespan_us

    def _proven(self) -> bool:
        return self.best is not None and self.bounds[0][0] >= self.best.makespan_us

    def _offer(self, candidate: ScheduledCut) -> None:
        """Keep a cut with its schedule if that is the shortest."""
        if self.best is None or candidate.makespan_us < self.best.makespan_us:
            self.best = candidate

    def _solve(self, table: StageTable, cut: Cut, orders: Orders | None, share: float) -> None:
        """Search for the orders of a cut, and keep what is proven, and the plan if it is the best."""
        options = replace(self.budget.take(share), target=self.bounds[0][0])
        pipeline = table.problem(cut)
        first = () if orders is None else (orders,)
        instance, result = search_schedule(pipeline, self.name, "finite", options, self.report, first)
        infeasible = result.status == Status.INFEASIBLE
        # A cut without any schedule counts as one whose step never ends.
        self.solved[table.configuration, cut] = NEVER if infeasible else result.bound
        if result.plan is not None:
            self._offer(ScheduledCut(result.plan.objective, table, cut, orders_of(instance, result.plan)))

    def _open_cuts(self) -> tuple[int, list[tuple[int, StageTable, Cut]]]:
        """Return the cuts that may have a step up to a limit as high as can be, with what is proven of each.

        No cut that may be better than the best plan is missing where the limit is just below that plan. Else the limit
        leaves few enough of them, as far as it was lowered in time.
        """
        # Only cuts that may be better than the best plan are of interest, hence the 1.
        least, limit = self.bounds[0][0], self._makespan_us() - 1
        # Time that is over still has its grace: a bound that is nearly there is worth more than none.
        end = clock.Clock(self.budget.part_of_left(1.0).time_limit, self.options.cancel, self.options.grace)
        with suppress(OutOfTimeError), clock.limited(end):
            for _ in range(_LIMITS):
                found = self._cuts_below(limit)
                if found is not None:
                    return limit, found
                # A lower limit leaves fewer cuts, and still raises the bound to one above it.
                limit = (least - 1 + limit) // 2
        return least - 1, []

    def _cuts_below(self, limit: int) -> list[tuple[int, StageTable, Cut]] | None:
        found: list[tuple[int, StageTable, Cut]] = []
        for least, bound in self.bounds:
            if least > limit:
                break
            table, cuts = bound.table, bound.open_cuts(limit, _MOST_CUTS)
            if cuts is None:
                return None
            for cut in cuts:
                proven = max(cut_bound_us(table.problem(cut)), self.solved.get((table.configuration, cut), 0))
                if proven <= limit:
                    found.append((proven, table, cut))
        return found

    def _bound_us(self) -> int:
        """Return what is proven: of each cut up to a limit, and of all others together."""
        limit, left = self._open_cuts()
        # Cuts above the limit have a step of at least one more than it. Each of the others has its own bound, which is
        # at most the limit.
        return min((least for least, _, _ in left), default=limit + 1)


def _require_time(allowed: Sequence[PipelineConfiguration], seconds: float | None) -> None:
    """Refuse more micro-batches than there is time to write a plan for, whatever is found."""
    if seconds is None:
        return
    for layout in (choice.layout for choice in allowed):
        once = layout.stages * (3 if layout.split else 2)
        most, passes = int(_PASSES_A_SECOND * (1 + seconds)), once * layout.micro_batches
        if passes > most:
            needed = ceil(passes / _PASSES_A_SECOND) - 1
            raise UsageError(
                f"{layout.micro_batches:,} micro-batches through {layout.stages} stages are {passes:,} passes; in "
                f"{seconds:g} s, at most {most // once:,} micro-batches are planned ({argument('time_limit', needed)})",
                code="too-large",
                path="micro_batches",
            )
