"""The plans of a solve under way: the best of each kind, what judges them, and the progress stream."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial

from jigsaw_opt import __version__
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.problem import clock
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import Timetable, lateness_us, objective_of
from jigsaw_opt.problem.plan import Plan, PlanStatus
from jigsaw_opt.solvers.bounds import Bound
from jigsaw_opt.solvers.correct import require_correct
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Accepted, Event, LiveEvent, Report
from jigsaw_opt.solvers.solve_state.request import Condition

SECONDS_OF_BLOCK = 3e-5
"""Seconds that a slow core needs to check and write a block of a plan."""


class BestPlans(ABC):
    """The best plans of a solve so far. Safe to use from the engine's threads.

    `whole`: the solve that this is a part of, whose plans are known here, and which gets better ones; None for none.
    """

    def __init__(
        self,
        name: str,
        operations: Operations,
        options: Options,
        report: Report,
        conditions: Sequence[Condition],
        whole: BestPlans | None,
    ) -> None:
        self.name, self.operations, self.options, self.conditions = name, operations, options, conditions
        self._clock = clock.current() or clock.Clock(options.time_limit, options.cancel, options.grace)
        # What went before within the same limit, such as cutting the instance, counts.
        self.started = self.improved = self._clock.started
        self.objective: int | None = None if whole is None else whole.objective
        self.best: Timetable | None = None if whole is None else whole.best
        self.phased: Plan | None = None if whole is None else whole.phased
        # The best of all plans, where that lists all iterations.
        self._leading: Timetable | None = None if whole is None else whole._leading
        self._to, self._report = whole, report
        self.trajectory: list[Event] = []
        self._lock = threading.RLock()
        self.ended = False

    @property
    @abstractmethod
    def kept(self) -> float:
        """Seconds of the time limit kept back for checking and writing the plan."""

    @property
    @abstractmethod
    def proven(self) -> Bound:
        """Return the bound of all plans, with its proof."""

    @cached_property
    def _sha256(self) -> str:
        return instance_sha256(self.operations.instance)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def least(self) -> int | None:
        """Return the objective of the best plan so far, whether it lists all iterations or has phases."""
        with_phases = None if self.phased is None else self.phased.objective
        return min((value for value in (self.objective, with_phases) if value is not None), default=None)

    @property
    def incumbent(self) -> tuple[int, Timetable] | None:
        """Return objective and timetable of the best plan so far; None before there is any."""
        with self._lock:
            return None if self.objective is None or self.best is None else (self.objective, self.best)

    def offer(self, timetable: Timetable) -> Accepted | None:
        """Take a plan as the new incumbent if it is better; says by how much it was, or None where it was not.

        One that breaks a guarantee is no plan, and never taken; nor is one against a condition of the request.
        """
        if not self.keeps_guarantees(timetable):
            return None
        objective = objective_of(self.operations, timetable.jobs, timetable.period_us, timetable.task_graph_jobs)
        if not self._meets_conditions(timetable, objective):
            return None
        return self._take(timetable, objective, self.name)

    def _take(self, timetable: Timetable, objective: int, name: str) -> Accepted | None:
        """Take a plan that lists all iterations if it is better, here and in the solve that this is a part of."""
        with self._lock:
            if self.ended or (self.objective is not None and objective >= self.objective):
                return None
            known, before, self.objective, self.best = self.least, self.objective, objective, timetable
            if before is None:
                self._clock.has_plan(self.kept)
            if self._to is not None:
                self._to._take(timetable, objective, name)
            self._tell(known, name, timetable)
            return Accepted(0 if before is None else before - objective)

    def offer_phased(self, plan: Plan) -> None:
        """Take a phased plan as the new incumbent of its kind if it is better.

        Parameters
        ----------
        plan
            Phases that keep all rules and guarantees; what it says of bound and status does not count.
        """
        with self._lock:
            if self.ended or (self.phased is not None and plan.objective >= self.phased.objective):
                return
            known, self.phased = self.least, plan
            if self._to is not None:
                self._to.offer_phased(plan)
            self._tell(known, "phased", None)

    def _tell(self, known: int | None, name: str, timetable: Timetable | None) -> None:
        """Tell of a plan if it is better than the best one known before of either kind."""
        if self.least != known:
            self.improved, self.name, self._leading = time.monotonic(), name, timetable
            if self._to is None:
                self._emit()

    def _meets_conditions(self, timetable: Timetable, objective: int) -> bool:
        """Return whether a plan meets all conditions; only better plans are asked about, since it may take long."""
        known = self.objective
        better = known is None or objective < known
        return not self.conditions or (better and all(met(self.operations, timetable) for met in self.conditions))

    def keeps_guarantees(self, timetable: Timetable) -> bool:
        """Return whether a plan keeps all guarantees (specification: deadline, pace)."""
        if not self.operations.instance.guaranteed_jobs:
            return True
        return lateness_us(self.operations, timetable.ends, timetable.period_us) == 0

    def _plan(self, timetable: Timetable | None, phased: Plan | None, event: Event) -> Plan | None:
        if timetable is None and phased is None:
            return None
        assert event.objective is not None
        status: PlanStatus = "optimal" if event.objective <= event.bound else "feasible"
        made_by = {
            "name": self.name,
            "version": __version__,
            "seconds": round(event.seconds, 3),
            "seed": self.options.seed,
            "threads": self.options.threads,
        }
        if timetable is None:
            assert phased is not None
            own = {**made_by, **phased.solver}
            return replace(phased, instance_sha256=self._sha256, status=status, bound=event.bound, solver=own)
        return Plan.of_jobs(
            instance=self.operations.instance.name,
            instance_sha256=self._sha256,
            status=status,
            objective=event.objective,
            bound=event.bound,
            period_us=timetable.period_us,
            jobs=timetable.plans_of(self.operations.instance),
            solver=made_by,
        )

    def _emit(self) -> None:
        event = Event(round(self.seconds, 3), self.least, self.proven.value)
        self.trajectory.append(event)
        self._report(LiveEvent.of(event, partial(self._checked_plan, self._leading, self.phased, event)))

    def _checked_plan(self, timetable: Timetable | None, phased: Plan | None, event: Event) -> Plan | None:
        """Return the plan at an event; None where there is none, or where the time limit leaves none to check it."""
        if timetable is not None and not self.ended and self._clock.left < SECONDS_OF_BLOCK * self.operations.blocks:
            return None
        plan = self._plan(timetable, phased, event)
        if plan is not None:
            require_correct(self.operations.instance, plan, f"solver {self.name!r}")
        return plan
