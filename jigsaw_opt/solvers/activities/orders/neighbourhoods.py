"""Large neighbourhood search over the orders of a plan: CP-SAT reorders a window of time, all else keeps its order.

Only orders are kept, not times: everything may move. Placements stay. On the cyclic horizon the blocks of a GPU, and
the transfers of a link, stay within one period of one another, as in what `repeating` makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING

from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.solvers.activities.orders.current import CurrentPlan, adopted, offer_times
from jigsaw_opt.solvers.activities.stepwise import StepwiseSearch
from jigsaw_opt.solvers.engines.cpsat import SECONDS_OF_EFFORT, configure, new_solver

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_FIRST_SIZE, _MOST_SIZE, _LEAST_SIZE = 30, 400, 8
"""Numbers of activities of a window: the first, the largest, the smallest."""
_EFFORT = 0.3
"""Deterministic seconds for a window."""
_PATIENCE = 300
"""Windows in a row without a better plan after which it ends."""


class WindowSearch(StepwiseSearch):
    """Reorders one window of the incumbent after the other."""

    chance = "windows"
    current: CurrentPlan | None = None
    size, idle = float(_FIRST_SIZE), 0

    def step(self, work: float, seconds: float) -> None:
        """Reorder one window."""
        from ortools.sat.python import cp_model

        self.current = current = adopted(self.solve_state, self.operations, self.current)
        if current is None:
            self.exhausted = True
            return
        model = _WindowModel(self.operations, current, self._window(current))
        solver = new_solver(1, self.solve_state.options.seed + self.random.randrange(10**6))
        effort = min(_EFFORT, work)
        solver.parameters.max_deterministic_time = effort
        if self.solve_state.options.work_limit is None:
            seconds = min(seconds, SECONDS_OF_EFFORT * effort)
        left = self.solve_state.remaining
        solver.parameters.max_time_in_seconds = min(seconds, 1e6 if left is None else left)
        solver.parameters.cp_model_probing_level = 0
        solver.parameters.linearization_level = 0
        configure(solver, self.solve_state.options.engine_parameters, self.solve_state.engine_listener)
        status = self.solve_state.run(lambda: solver.solve(model.proto), solver.stop_search)
        self.spent += max(1e-4, solver.response_proto.deterministic_time)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            self._take(current, model, solver)
        self._resize(status == cp_model.OPTIMAL or status == cp_model.INFEASIBLE, len(current.starts))

    def _window(self, current: CurrentPlan) -> set[int]:
        """Return activities that may be reordered: those that start in a window of time, on some or all resources."""
        flat, order = current.flat, sorted(range(len(current.starts)), key=lambda a: (current.starts[a], a))
        order = [activity for activity in order if flat.resources[activity]]
        size = int(self.size)
        if self.random.random() < 0.3:
            used = sorted({resource for activity in order for resource in flat.resources[activity]})
            first = self.random.choice(used)
            some = {r for r in used if abs(r - first) <= self.random.randrange(1, 4)}
            order = [activity for activity in order if some & set(flat.resources[activity])]
        # Windows may reach out at both ends, or activities there would be in fewer of them than others.
        begin = self.random.randrange(-size // 2, max(1, len(order) - size // 2))
        return set(order[max(0, begin) : begin + size])

    def _take(self, current: CurrentPlan, model: _WindowModel, solver: cp_model.CpSolver) -> None:
        starts = [int(solver.value(start)) for start in model.starts]
        period = int(solver.value(model.period)) if model.period is not None else None
        if offer_times(self.solve_state, self.offer, self.operations, current, starts, period):
            self.idle = 0

    def _resize(self, proven: bool, most: int) -> None:
        """Enlarge the window where it was solved to its optimum soon, else make it smaller."""
        largest = min(_MOST_SIZE, most)
        self.idle += 1
        self.exhausted = self.idle > _PATIENCE or (proven and self.size >= most and self.idle > 3)
        self.size = min(largest, self.size * 1.1) if proven else max(_LEAST_SIZE, self.size / 1.15)


class _WindowModel:
    """The CP-SAT model of a window."""

    def __init__(self, operations: Operations, current: CurrentPlan, window: set[int]) -> None:
        from jigsaw_opt.formulations.cpsat_model import new_model

        self.proto, self.flat, self.operations = new_model(), current.kept(), operations
        ends = [start + length for start, length in zip(current.starts, self.flat.duration_us, strict=True)]
        self.limit = max(ends)
        self.starts = [self.proto.new_int_var(min(r, self.limit), self.limit, "") for r in self.flat.release_us]
        cyclic = operations.horizon == "cyclic"
        self.period = self.proto.new_int_var(1, current.objective, "period") if cyclic else None
        for start, value in zip(self.starts, current.starts, strict=True):
            self.proto.add_hint(start, value)
        for before, after, length, periods in self.flat.arcs:
            later = periods * self.period if self.period is not None else 0
            self.proto.add(self.starts[after] + later >= self.starts[before] + length)
        self._add_orders(current.starts, window)

    def _add_orders(self, starts: Sequence[int], window: set[int]) -> None:
        """Add the order on each GPU and link, free within the window, with the memory and the objective."""
        on: dict[int, list[int]] = {}
        for activity in sorted(range(len(starts)), key=lambda a: (starts[a], a)):
            for resource in self.flat.resources[activity]:
                on.setdefault(resource, []).append(activity)
        firsts, lasts = [], []
        for resource, own in sorted(on.items()):
            free = [place for place, activity in enumerate(own) if activity in window]
            # What is between the first and the last that may move may move as well.
            begin, end = (free[0], free[-1] + 1) if free else (1, 1)
            self._add_order(own[:begin], own[begin:end], own[end:])
            if free and resource < len(self.flat.room):
                self._add_memory(resource, own, begin, end)
            firsts.append(self._before_all(own[:1] if begin else own[:end]))
            lasts.append(self._behind_all(own[-1:] if end < len(own) else own[begin - 1 if begin else 0 :]))
        self._add_objective(firsts, lasts)

    def _end(self, activity: int) -> cp_model.LinearExpr:
        return self.starts[activity] + self.flat.duration_us[activity]

    def _add_order(self, before: Sequence[int], free: Sequence[int], behind: Sequence[int]) -> None:
        """Add the order of the activities before and behind the window; the free ones take any order in between."""
        joined = [*before, *behind] if not free else None
        for chain in [joined] if joined is not None else [before, behind]:
            for one, other in pairwise(chain):
                self.proto.add(self.starts[other] >= self._end(one))
        for activity in free:
            if before:
                self.proto.add(self.starts[activity] >= self._end(before[-1]))
            if behind:
                self.proto.add(self.starts[behind[0]] >= self._end(activity))
        lengths = self.flat.duration_us
        self.proto.add_no_overlap(self.proto.new_fixed_size_interval_var(self.starts[a], lengths[a], "") for a in free)

    def _add_memory(self, gpu: int, own: Sequence[int], begin: int, end: int) -> None:
        """Add the memory intervals that reach into the free part; what is before and behind it stays as it was."""
        place = {activity: number for number, activity in enumerate(own)}
        room, intervals, demands = self.flat.room[gpu], [], []
        for first in own:
            for where, amount, last in self.flat.opens[first]:
                if where != gpu or place[first] >= end or place[last] < begin:
                    continue
                one, other = place[first], place[last]
                # The interval wraps around the period, and its end that is in the free part stays on the same side of
                # the other one.
                if other < one and (other >= end or one < begin):
                    continue
                if one < begin and other >= end:
                    room -= amount
                    continue
                length, stop = self.proto.new_int_var(0, self.limit, ""), self.proto.new_int_var(0, 2 * self.limit, "")
                self.proto.add(length >= self._end(last) - self.starts[first])
                intervals.append(self.proto.new_interval_var(self.starts[first], length, stop, ""))
                demands.append(amount)
        if intervals:
            # What is held is a multiple of the unit, so that a smaller rest of the room is never used.
            unit = gcd(*demands)
            self.proto.add_cumulative(intervals, [amount // unit for amount in demands], room // unit)

    def _before_all(self, activities: Sequence[int]) -> cp_model.IntVar:
        moment = self.proto.new_int_var(0, self.limit, "")
        for activity in activities:
            self.proto.add(moment <= self.starts[activity])
        return moment

    def _behind_all(self, activities: Sequence[int]) -> cp_model.IntVar:
        moment = self.proto.new_int_var(0, 2 * self.limit, "")
        for activity in activities:
            self.proto.add(moment >= self._end(activity))
        return moment

    def _add_objective(self, firsts: Sequence[cp_model.IntVar], lasts: Sequence[cp_model.IntVar]) -> None:
        """Add the objective and, among equal ones, prefer the shortest use of all GPUs and links."""
        if self.period is not None:
            spans = [last - first for first, last in zip(firsts, lasts, strict=True)]
            for span in spans:
                self.proto.add(self.period >= span)
            self.proto.minimize(len(spans) * self.period + sum(spans))
            return
        ends: dict[int, cp_model.IntVar] = {}
        for activity, job in enumerate(self.flat.job):
            if job not in ends:
                deadline = self.operations.deadlines[job]
                ends[job] = self.proto.new_int_var(0, self.limit if deadline is None else min(self.limit, deadline), "")
            self.proto.add(ends[job] >= self._end(activity))
        if self.operations.objective == "weighted_completion":
            weights = self.operations.weights
            self.proto.minimize(sum(weights[job] * end for job, end in ends.items()))
            return
        latest = self.proto.new_int_var(0, self.limit, "")
        self.proto.add_max_equality(latest, ends.values())
        self.proto.minimize(len(lasts) * latest + sum(lasts))
