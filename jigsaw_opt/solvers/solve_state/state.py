"""One solve under way: incumbent, bound, stop rules and the progress stream.

`solve` hands a solver a `SolveState`; it offers it every plan and every bound, asks it when to stop, and
ends with its `result`. A solver may let others work for it: what they find and prove counts for the same solve. Engines
that block run under `SolveState.run`, so Ctrl-C, time and every other stop rule work the same for all of them.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from importlib.metadata import version
from typing import TypeVar

from jigsaw_opt import __version__
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.errors import EngineDiedError, OutOfTimeError, UsageError
from jigsaw_opt.problem import clock
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import Timetable, lateness_us, objective_of
from jigsaw_opt.problem.plan import Plan, PlanStatus
from jigsaw_opt.solvers.bounds import Bound, Deadlines, Proof
from jigsaw_opt.solvers.correct import require_correct
from jigsaw_opt.solvers.engines.stoppable import run_all_stoppable
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import (
    Accepted,
    Conflict,
    Event,
    ExactModel,
    LiveEvent,
    MoveRecord,
    Report,
    Result,
    Status,
    StoppedBy,
    proof_of,
    relative_gap,
)
from jigsaw_opt.solvers.solve_state.proofs import Proofs, searched_part
from jigsaw_opt.solvers.solve_state.request import Condition, Opening, Solver

T = TypeVar("T")
_SECONDS_OF_BLOCK = 3e-5
"""Seconds that a slow core needs to check and write a block of a plan."""


class SolveState:
    """The state of one solve. Safe to use from the engine's threads.

    Parameters
    ----------
    name
        Name of the solver.
    operations
        The compiled instance.
    options
        Limits, seed, cancel flag.
    report
        Receives the progress stream.
    part
        Which plans the solver looks at, as `searched_part` says; None for a solver that says nothing.
    openings
        What offers first plans.
    conditions
        What judges every plan.
    whole
        The solve that this is a part of, and reports to; None for none.
    known
        A bound that is known already; None to find one first.
    """

    def __init__(
        self,
        name: str,
        operations: Operations,
        options: Options,
        report: Report,
        part: str | None = None,
        openings: Sequence[Opening] = (),
        conditions: Sequence[Condition] = (),
        whole: SolveState | None = None,
        known: Bound | None = None,
    ) -> None:
        self.name, self.operations, self.options, self.conditions = name, operations, options, conditions
        self.openings, self._whole, self._report = openings, whole, report
        self._clock = clock.current() or clock.Clock(options.time_limit, options.cancel, options.grace)
        # What went before within the same limit, such as cutting the instance, counts.
        self.started = self.improved = self._clock.started
        self.objective: int | None = None if whole is None else whole.objective
        self.best: Timetable | None = None if whole is None else whole.best
        self.phased: Plan | None = None if whole is None else whole.phased
        # The best of all plans, where that lists all iterations.
        self._leading: Timetable | None = None if whole is None else whole._leading
        self.trajectory: list[Event] = []
        self._lock = threading.RLock()
        self.ended = False
        self._after = max(0.0, _SECONDS_OF_BLOCK * operations.blocks - options.grace)
        self.moves: dict[str, MoveRecord] = {}
        self._without_plan = math.inf
        self.part = searched_part(None, operations) if part is None else part
        of_whole = None if whole is None else whole._proofs
        self._proofs: Proofs = Proofs(operations, options, self.part, of_whole, known)
        self._parts: list[Result] = []
        self._exact_model: ExactModel | None = None
        if whole is None:
            self._emit()
        elif self.objective is not None:
            self._clock.has_plan(self.kept)

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
            if self._whole is not None:
                self._whole._take(timetable, objective, name)
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
            if self._whole is not None:
                self._whole.offer_phased(plan)
            self._tell(known, "phased", None)

    def _tell(self, known: int | None, name: str, timetable: Timetable | None) -> None:
        """Tell of a plan if it is better than the best one known before of either kind."""
        if self.least != known:
            self.improved, self.name, self._leading = time.monotonic(), name, timetable
            if self._whole is None:
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
        if timetable is not None and not self.ended and self._clock.left < _SECONDS_OF_BLOCK * self.operations.blocks:
            return None
        plan = self._plan(timetable, phased, event)
        if plan is not None:
            require_correct(self.operations.instance, plan, f"solver {self.name!r}")
        return plan

    @property
    def remaining(self) -> float | None:
        """Seconds left of the time limit, at least 0; None without a limit."""
        return None if self.limit is None else max(0.0, self.limit - self.seconds)

    @property
    def limit(self) -> float | None:
        """Seconds after the start at which a solver ends; None without a limit."""
        return None if self.options.time_limit is None else self.options.time_limit - self.kept

    @property
    def kept(self) -> float:
        """Seconds of the time limit kept back for checking and writing the plan, at most half of it."""
        if self.objective is None or self.options.time_limit is None:
            return 0.0
        return min(self._after, self.options.time_limit / 2)

    @property
    def bound(self) -> int:
        """Return a bound of the plans that the solver looks at."""
        return self._proofs.bound

    @property
    def proven(self) -> Bound:
        """Return the bound of all plans, which results and events state, with its proof."""
        return self._proofs.proven

    def raise_bound(
        self, bound: int, proof: Proof | None = None, deadlines: Deadlines | None = None, engine: str = ""
    ) -> None:
        """Record a proven lower bound if it is better than the one so far.

        Parameters
        ----------
        bound
            The bound.
        proof
            Its proof, which holds for all plans; by default the solver's own search has proven it, for those that it
            looks at.
        deadlines
            What the proof says of single jobs; None where it says nothing.
        engine
            Name of the engine whose search is the proof, as ``CP-SAT``; by default the solver is named.
        """
        engine = engine or f"the solver {self.name}"
        with self._lock:
            if self.ended or not self._proofs.raise_bound(bound, proof, deadlines, self.name, engine):
                return
            if self._whole is None:
                self._emit()
            else:
                self._whole.raise_bound(bound, self.proven.proof, deadlines)

    def credit(self, record: MoveRecord) -> None:
        """Add what calls of a move of the search came to."""
        with self._lock:
            old = self.moves.get(record.name)
            self.moves[record.name] = record if old is None else old + record

    def credited(self) -> list[MoveRecord]:
        """Return what calls of moves came to since this was asked last."""
        with self._lock:
            records = list(self.moves.values())
            self.moves.clear()
        return records

    def spend(self, work: float) -> None:
        """Take work that was done before the method off the limit of work."""
        if self.options.work_limit is not None:
            self.options = replace(self.options, work_limit=max(0.0, self.options.work_limit - work))

    def end_without_plan(self, seconds: float) -> None:
        """End the solve so many seconds after its start, unless there is a plan by then."""
        self._clock.end_without_plan(seconds)
        self._without_plan = seconds

    def deadlines(self, limit: int) -> Mapping[int, int]:
        """Return deadlines of jobs in plans within `limit`, in microseconds by index, by the last proof with any."""
        return self._proofs.deadlines(limit) if self._proofs.deadlines is not None else {}

    def refute(self, conflict: Callable[[], Conflict]) -> None:
        """Take the proof that there is no plan among those that the solver looks at.

        Parameters
        ----------
        conflict
            Returns why, which takes work; called only if these are all plans.
        """
        if self._whole is None or self.part:
            self._proofs.refute(conflict)
        else:
            self._whole.refute(conflict)

    def carry_out(self, method: Solver) -> Result:
        """Offer first plans of the kind that a method makes, then let it work; return its result.

        Parameters
        ----------
        method
            The solver. One that chooses among others leaves first plans to them.
        """
        ended, kinds = None, (None, getattr(method, "phased", False))
        for opening in () if getattr(method, "chooses", False) else self.openings:
            if opening.phased in kinds:
                try:
                    ended = opening.offer(self) or ended
                except OutOfTimeError:
                    ended = StoppedBy.TIME if opening.keeps else ended
        return method.run(self) if ended is None else self.conclude(lambda: ended)

    def delegate(self, method: Solver, options: Options | None = None, without_plan: float = 1.0) -> Result:
        """Let a method work for this solve: its plans, and what it proves of all plans, count here.

        Parameters
        ----------
        method
            The solver.
        options
            Its own limits; None for those of this solve.
        without_plan
            The share of its time limit after which it ends as long as there is no plan.
        """
        own, part = options or self.options, searched_part(method, self.operations)
        limit = self._clock if options is None else clock.Clock(own.time_limit, own.cancel, own.grace)
        with clock.limited(limit):
            asked = self.openings, self.conditions
            made = SolveState(method.name, self.operations, own, self._report, part, *asked, whole=self)
            if own.time_limit is not None and without_plan < 1 and self.least is None:
                made.end_without_plan(without_plan * own.time_limit)
            if self.least is None:
                self.name = made.name
            found = made.carry_out(method)
        self._parts.append(found)
        return found

    def leave_out_model(self, reason: str = "the solve ended before its turn came") -> None:
        """Record why the exact model of this solver has not been built, unless it has been.

        Parameters
        ----------
        reason
            Why not. A solver that has such a model begins with the default.
        """
        with self._lock:
            if not self.model_built:
                self._exact_model = ExactModel(False, reason)

    def record_model(self) -> None:
        """Record that the exact model has been built."""
        self._exact_model = ExactModel(True)

    @property
    def model_built(self) -> bool:
        """Return whether the exact model has been built."""
        return self._exact_model is not None and self._exact_model.built

    def reason(self) -> StoppedBy | None:
        """Return why the solve should stop now, or None."""
        ended = self._proofs.ends(self.least) or self._reached()
        return ended if ended is not None or self._whole is None else self._whole.reason()

    def _reached(self) -> StoppedBy | None:
        """Return the first of the limits that the options state and that is reached."""
        options, least = self.options, self.least
        if options.cancel.is_set():
            return StoppedBy.INTERRUPT
        if least is not None:
            if options.target is not None and least <= options.target:
                return StoppedBy.TARGET
            if options.gap is not None and relative_gap(least, self.proven.value) <= options.gap:
                return StoppedBy.GAP
            if options.no_improvement is not None and time.monotonic() - self.improved >= options.no_improvement:
                return StoppedBy.NO_IMPROVEMENT
        limit = min(
            math.inf if self.limit is None else self.limit, math.inf if least is not None else self._without_plan
        )
        return StoppedBy.TIME if self.seconds >= limit else None

    def run(self, call: Callable[[], T], cancel: Callable[[], None], until: float = math.inf) -> T:
        """Run a blocking engine in a thread of its own; call `cancel` as soon as there is a reason to stop.

        So does the time `until`, in seconds after the start.

        Parameters
        ----------
        call
            Blocks until the engine has ended.
        cancel
            Makes the engine end soon.
        until
            Time at which it is cancelled, too, in seconds after the start.

        Raises
        ------
        OutOfTimeError
            The engine did not end then. It is left behind, and nothing that it does reaches a solve that has ended.
        """
        return self.run_all([call], cancel, until=until)[0]

    def run_all(
        self, calls: Sequence[Callable[[], T]], cancel: Callable[[], None], threads: int = 1, until: float = math.inf
    ) -> list[T]:
        """Run several blocking engines in threads of their own, and return what they return.

        Parameters
        ----------
        calls
            Each blocks until an engine has ended.
        cancel
            Makes the engines end soon.
        threads
            Number of engines that run at once.
        until
            Time at which they are cancelled, too, in seconds after the start.
        """

        def stopped() -> bool:
            return self.reason() is not None or self.seconds >= until

        return run_all_stoppable(calls, cancel, self.name, stopped, threads)

    @property
    def engine_listener(self) -> Callable[[str], None] | None:
        """Return the listener as in `Options`, as long as the solve is under way."""
        listen = self.options.engine_listener
        if listen is None:
            return None
        return lambda text: None if self.ended else listen(text)

    def conclude(self, run: Callable[[], StoppedBy | None], engines: Sequence[str] = ()) -> Result:
        """Return the outcome of `run`, also where the clock, an engine's death or a lack of memory ends it halfway.

        Parameters
        ----------
        run
            Offers plans and bounds; returns why it ended, or None where it ran to its end.
        engines
            Distributions whose versions are recorded.

        Raises
        ------
        EngineDiedError
            An engine died, and no plan was known before.
        MemoryError
            There is not enough memory, and no plan was known before.
        UsageError
            This solve has ended before.
        """
        if self.ended:
            told = f"this solve_state of {self.name!r} has ended and takes nothing any more; make a new one"
            raise UsageError(told, code="wrong-order")
        try:
            ended = run()
        except OutOfTimeError:
            ended = StoppedBy.TIME
        except (EngineDiedError, MemoryError) as error:
            if self.least is None:
                raise
            died = isinstance(error, EngineDiedError)
            return self.result(StoppedBy.FAILURE, engines, str(error) if died else "out of memory")
        return self.result(self.reason() or ended or StoppedBy.COMPLETED, engines)

    def result(self, stopped_by: StoppedBy, engines: Sequence[str] = (), failure: str = "") -> Result:
        """Return the outcome: status and plan follow from the incumbent, the bound and the proof that there is no plan.

        Parameters
        ----------
        stopped_by
            Why it ended; a closed gap or a refutation makes it ``proof``.
        engines
            Distributions whose versions are recorded.
        failure
            What an engine died of.
        """
        with self._lock:  # from here on whatever an engine that was left behind finds comes too late
            self.ended = True
        least, proven, parts = self.least, self.proven, self._parts
        closed = least is not None and least <= proven.value
        conflict = self._proofs.explained_conflict() if least is None else None
        refuted = conflict is not None
        if parts:  # All together looked at what any of them did.
            self.part = "" if any(not found.part for found in parts) else parts[0].part
        empty = self._proofs.part_is_empty or any(found.ruled_out for found in parts)
        versions = {engine: version(engine) for engine in engines}
        for found in parts:
            versions |= found.versions
        seconds = self.seconds
        return Result(
            status=self._status(closed, refuted),
            stopped_by=StoppedBy.PROOF if closed or refuted else stopped_by,
            objective=least,
            bound=proven.value,
            proof=proven.proof,
            bound_proof=proof_of(self.operations.instance, self._proofs.argued),
            plan=self._plan(self._leading, self.phased, Event(seconds, least, proven.value)),
            trajectory=tuple(self.trajectory),
            conflicts=() if conflict is None else (conflict,),
            failure=failure or next((found.failure for found in parts if found.failure), ""),
            part=self.part,
            ruled_out=self.part if least is None and empty else "",
            exact_model=self._exact_model or next((found.exact_model for found in parts if found.exact_model), None),
            moves=tuple(self.moves.values()) or tuple(move for found in parts for move in found.moves),
            solver=self.name,
            seconds=seconds,
            seed=self.options.seed,
            threads=self.options.threads,
            versions=versions,
        )

    def _status(self, closed: bool, refuted: bool) -> Status:
        if self.least is None:
            return Status.INFEASIBLE if refuted else Status.UNKNOWN
        return Status.OPTIMAL if closed else Status.FEASIBLE
