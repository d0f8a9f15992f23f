"""One solve under way: incumbent, bound, stop rules and the progress stream.

`solve` hands a solver a `SolveState`; it offers it every plan and every bound, asks it when to stop, and
ends with its `result`. Engines that block run under `SolveState.run`, so Ctrl-C, time and every other
stop rule work the same for all of them.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from importlib.metadata import version
from typing import TypeVar

from jigsaw_opt import __version__
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.errors import EngineDiedError, OutOfTimeError, UsageError
from jigsaw_opt.problem import clock
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import Timetable, lateness_us, objective_of
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import JobPlan, Plan, TaskGraphJobPlan
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.solvers.bounds import Bound, Deadlines, Proof
from jigsaw_opt.solvers.correct import require_correct
from jigsaw_opt.solvers.engines.stoppable import run_all_stoppable
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.proofs import Proofs, searched_part
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
)
from jigsaw_opt.solvers.stop import no_plan, stop_rules

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
    """

    def __init__(
        self, name: str, operations: Operations, options: Options, report: Report, part: str | None = None
    ) -> None:
        self.name, self.operations, self.options = name, operations, options
        self._clock = clock.current() or clock.Clock(options.time_limit, options.cancel, options.grace)
        # What went before within the same limit, such as cutting the instance, counts.
        self.started = self.improved = self._clock.started
        self._after = max(0.0, _SECONDS_OF_BLOCK * operations.blocks - options.grace)
        self.objective: int | None = None
        self.best: Timetable | None = None
        self.trajectory: list[Event] = []
        self.moves: dict[str, MoveRecord] = {}
        self._report = report
        self._lock = threading.RLock()
        self._rules = stop_rules(options)
        self.part = searched_part(None, operations) if part is None else part
        self._proofs = Proofs(operations, options, self.part)
        self._exact_model: ExactModel | None = None
        self.ended = False
        self._emit()

    @cached_property
    def _sha256(self) -> str:
        return instance_sha256(self.operations.instance)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

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

    @property
    def incumbent(self) -> tuple[int, Timetable] | None:
        """Return objective and timetable of the best plan so far; None before there is any."""
        with self._lock:
            return None if self.objective is None or self.best is None else (self.objective, self.best)

    def offer(self, timetable: Timetable) -> Accepted | None:
        """Take a plan as the new incumbent if it is better; says by how much it was, or None where it was not.

        One that breaks a guarantee is no plan, and never taken; nor is one against the condition of the options.
        """
        if not self.keeps_guarantees(timetable):
            return None
        objective = objective_of(self.operations, timetable.jobs, timetable.period_us, timetable.task_graph_jobs)
        if not self._meets_condition(timetable, objective):
            return None
        with self._lock:
            if self.ended or (self.objective is not None and objective >= self.objective):
                return None
            before, self.objective, self.best = self.objective, objective, timetable
            if before is None:
                self._clock.has_plan(self.kept)
            self.improved = time.monotonic()
            self._emit()
            return Accepted(0 if before is None else before - objective)

    def _meets_condition(self, timetable: Timetable, objective: int) -> bool:
        """Return whether a plan meets the condition of the options.

        Only better plans are asked about, since it may take long.
        """
        condition, known = self.options.condition, self.objective
        return condition is None or ((known is None or objective < known) and condition(self.operations, timetable))

    def keeps_guarantees(self, timetable: Timetable) -> bool:
        """Return whether a plan keeps all guarantees (specification: deadline, pace)."""
        if not self.operations.instance.guaranteed_jobs:
            return True
        return lateness_us(self.operations, timetable.ends, timetable.period_us) == 0

    def raise_bound(self, bound: int, proof: Proof | None = None, deadlines: Deadlines | None = None) -> None:
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
        """
        with self._lock:
            if not self.ended and self._proofs.raise_bound(bound, proof, deadlines, self.name):
                self._emit()

    def credit(self, record: MoveRecord) -> None:
        """Add what calls of a move of the search came to."""
        with self._lock:
            old = self.moves.get(record.name)
            self.moves[record.name] = record if old is None else old + record

    def end_without_plan(self, seconds: float) -> None:
        """End the solve so many seconds after its start, unless there is a plan by then."""
        self._clock.end_without_plan(seconds)
        self._rules = (*self._rules, no_plan(seconds))

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
        self._proofs.refute(conflict)

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
        by_rule = (rule.reason for rule in self._rules if rule.holds(self))
        return self._proofs.ends(self.objective) or next(by_rule, None)

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
            if self.best is None:
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
        closed = self.objective is not None and self.objective <= self.proven.value
        conflict = self._proofs.explained_conflict() if self.best is None else None
        refuted = conflict is not None
        seconds = self.seconds
        return Result(
            status=self._status(closed, refuted),
            stopped_by=StoppedBy.PROOF if closed or refuted else stopped_by,
            objective=self.objective,
            bound=self.proven.value,
            proof=self.proven.proof,
            plan=self._plan(self.best, Event(seconds, self.objective, self.proven.value)),
            trajectory=tuple(self.trajectory),
            conflicts=() if conflict is None else (conflict,),
            failure=failure,
            part=self.part,
            ruled_out=self.part if self.best is None and self._proofs.part_is_empty else "",
            exact_model=self._exact_model,
            moves=tuple(self.moves.values()),
            solver=self.name,
            seconds=seconds,
            seed=self.options.seed,
            threads=self.options.threads,
            versions={engine: version(engine) for engine in engines},
        )

    def _status(self, closed: bool, refuted: bool) -> Status:
        if self.best is None:
            return Status.INFEASIBLE if refuted else Status.UNKNOWN
        return Status.OPTIMAL if closed else Status.FEASIBLE

    def _plan(self, timetable: Timetable | None, event: Event) -> Plan | None:
        if timetable is None or event.objective is None:
            return None
        return Plan.of_jobs(
            instance=self.operations.instance.name,
            instance_sha256=self._sha256,
            status="optimal" if event.objective <= event.bound else "feasible",
            objective=event.objective,
            bound=event.bound,
            period_us=timetable.period_us,
            jobs=_in_order(self.operations.instance, timetable),
            solver={
                "name": self.name,
                "version": __version__,
                "seconds": round(event.seconds, 3),
                "seed": self.options.seed,
                "threads": self.options.threads,
            },
        )

    def _emit(self) -> None:
        event = Event(round(self.seconds, 3), self.objective, self.proven.value)
        self.trajectory.append(event)
        self._report(LiveEvent.of(event, partial(self._checked_plan, self.best, event)))

    def _checked_plan(self, timetable: Timetable | None, event: Event) -> Plan | None:
        """Return the plan at an event; None where there is none, or where the time limit leaves none to check it."""
        if not self.ended and self._clock.left < _SECONDS_OF_BLOCK * self.operations.blocks:
            return None
        plan = self._plan(timetable, event)
        if plan is not None:
            require_correct(self.operations.instance, plan, f"solver {self.name!r}")
        return plan


def _in_order(instance: Instance, timetable: Timetable) -> tuple[JobPlan | TaskGraphJobPlan, ...]:
    """Return the plans of all jobs in the order of the instance."""
    if not timetable.task_graph_jobs:
        return timetable.jobs
    jobs, graph_jobs = iter(timetable.jobs), iter(timetable.task_graph_jobs)
    return tuple(next(graph_jobs) if isinstance(job, TaskGraphJob) else next(jobs) for job in instance.jobs)
