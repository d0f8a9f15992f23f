"""What a solver returns, and the events of a solve under way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.problem.bound_proof import Argument, BoundProof
from jigsaw_opt.problem.data_table import DataTable
from jigsaw_opt.problem.depth import DepthPlugin
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.bounds import Bound, Proof
from jigsaw_opt.text import html_table


class Status(StrEnum):
    """How much is known. Never better than the truth."""

    OPTIMAL = "optimal"
    """There is a plan, and its objective equals the proven bound."""
    FEASIBLE = "feasible"
    """There is a plan; a better one may exist."""
    INFEASIBLE = "infeasible"
    """Proven: there is no plan."""
    UNKNOWN = "unknown"
    """No plan was found, and none was ruled out."""


class StoppedBy(StrEnum):
    """Reasons why a solver stops."""

    PROOF = "proof"
    """Optimality or infeasibility is proven."""
    TIME = "time"
    """The time limit or the deterministic work limit."""
    GAP = "gap"
    """The gap asked for is reached."""
    TARGET = "target"
    """The target asked for is reached."""
    INTERRUPT = "interrupt"
    """Ctrl-C, SIGTERM, SIGHUP or the caller's cancel flag."""
    NO_IMPROVEMENT = "no_improvement"
    """No better plan for the time asked for."""
    COMPLETED = "completed"
    """The solver ran to its end."""
    MODEL_TOO_LARGE = "model_too_large"
    """The exact model was too large to be built at all, or within the limit; the result is what was known before."""
    FAILURE = "failure"
    """An engine died, or the memory ran out; what was known before is kept."""


class Event(NamedTuple):
    """One point of the progress stream; `objective` is None before the first plan."""

    seconds: float
    objective: int | None
    bound: int

    @property
    def plan(self) -> Plan | None:
        """Return the best plan at this event, checked; None before the first one, and where none can be had.

        An event that comes while a solver runs makes and checks its plan when it is first asked for. That takes time
        of the solve: the solver waits where a callback asks, and there is no plan where the limit leaves too little
        time to check it. Events of a trajectory have none.
        """
        return None


Report = Callable[[Event], None]


class ExactModel(NamedTuple):
    """Report on whether a solver built its exact model; `reason` says why not, and is empty where it did."""

    built: bool
    reason: str = ""

    def __str__(self) -> str:
        return "built" if self.built else f"not built: {self.reason}"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Jobs or limits that cannot hold together, in the user's terms.

    Parameters
    ----------
    kind
        ``gpu_type``, ``memory``, ``held``, ``reach``, ``power``, ``depth``, ``deadline``,
        ``pace`` or ``search`` (found by a solver's proof).
    jobs
        Names of the jobs that take part.
    message
        What conflicts and why.
    """

    kind: str
    jobs: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """A plan has become the incumbent.

    `improvement`: by how much the objective fell, in its unit; 0 for the first plan.
    """

    improvement: int


@dataclass(frozen=True, slots=True)
class MoveRecord:
    """Record of the calls of one move of the search.

    `calls, successes`: how often it was made, and in how many calls a plan of its own became the incumbent.
    `improvement`: by how much its own plans made the objective fall, in the objective's unit; the first plan counts as
    none.
    """

    name: str
    calls: int = 0
    successes: int = 0
    seconds: float = 0.0
    improvement: int = 0

    def __add__(self, other: MoveRecord) -> MoveRecord:
        """Return the calls of both, which are of the same move."""
        return MoveRecord(
            self.name,
            self.calls + other.calls,
            self.successes + other.successes,
            self.seconds + other.seconds,
            self.improvement + other.improvement,
        )


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one solve.

    Parameters
    ----------
    status, stopped_by
        What is known, and why the solver stopped.
    objective
        Objective recomputed from the plan, or None without one.
    bound
        Proven lower bound; kept also where there is no plan.
    proof
        What proves the bound.
    bound_proof
        A proof that `check_proof` has found right: that there is no plan where that is the status, else of the bound;
        or else of the best lesser one that has such a proof. None where the time limit left no time to check it.
    plan
        The best plan, checked, or None.
    trajectory
        The progress stream, as emitted.
    conflicts
        Why there is no plan, where that is proven.
    failure
        What an engine died of, or that the memory ran out; empty where neither happened.
    part
        Which plans the method looked at, such as those in which no job moves; empty for all. Bound, ``optimal`` and
        ``infeasible`` hold for all plans nevertheless.
    ruled_out
        Where the status is ``unknown``, the plans that are proven not to exist, such as those in which no job moves;
        empty for none.
    exact_model
        Whether the exact model was built, and if not, why; None of a solver without one.
    moves
        What each move of the search earned, in the order in which they were first made.
    solver, seconds, seed, threads, versions
        Name, wall-clock time, seed, threads that it might use, and the versions of the libraries that took part.
    """

    status: Status
    stopped_by: StoppedBy
    objective: int | None
    bound: int
    plan: Plan | None
    proof: Proof = field(default_factory=Proof)
    bound_proof: BoundProof | None = field(default=None, repr=False)
    trajectory: tuple[Event, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    failure: str = ""
    part: str = ""
    ruled_out: str = ""
    exact_model: ExactModel | None = None
    moves: tuple[MoveRecord, ...] = ()
    solver: str = ""
    seconds: float = 0.0
    seed: int = 0
    threads: int = 1
    versions: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return what is known and why the solver stopped, on one line."""
        gap = "" if self.gap is None else f", gap {100 * self.gap:.2f} %"
        known = f"objective {self.objective}, bound {self.bound}{gap}"
        of_part = f" among {self.part}" if self.part else ""
        return f"<Result {self.verdict}: {known}, stopped by {self.stopped_by} after {self.seconds:.2f} s{of_part}>"

    @property
    def bound_reason(self) -> str:
        """Return what proves the bound, in one sentence."""
        return self.proof.sentence

    @property
    def certified(self) -> bool:
        """Whether `bound_proof`, which was checked step by step, is of the bound, or of the status ``infeasible``."""
        proven = None if self.status is Status.INFEASIBLE else self.bound
        return self.bound_proof is not None and self.bound_proof.bound == proven

    @property
    def certified_bound(self) -> int | None:
        """The bound that `bound_proof` proves; None without one, and where it proves that there is no plan."""
        return None if self.bound_proof is None else self.bound_proof.bound

    @property
    def bound_by(self) -> str:
        """Whose the bound is: an engine such as ``CP-SAT``, a solver, a relaxation, or the argument of its proof.

        Empty where nobody says so.
        """
        by = self.proof.engine or (self.proof.relaxation and f"the relaxation {self.proof.relaxation}")
        found = self.bound_proof if self.certified else None
        return by or ("" if found is None else f"a proof of the kind {found.argument['kind']}")

    @property
    def verdict(self) -> str:
        """The status and what the bound rests on, as in ``certified optimal`` or ``optimal (by CP-SAT)``."""
        by = f"by {self.bound_by}" if self.bound_by else "not certified"
        if self.status is Status.OPTIMAL:
            return "certified optimal" if self.certified else f"optimal ({by})"
        if self.status is Status.FEASIBLE:
            return f"feasible (bound {'certified' if self.certified else by})"
        if self.status is Status.INFEASIBLE:
            return "certified infeasible" if self.certified else "infeasible (not certified)"
        return str(self.status)

    @property
    def gap(self) -> float | None:
        """Relative gap, or None without a plan."""
        return None if self.objective is None else relative_gap(self.objective, self.bound)

    @property
    def progress(self) -> DataTable:
        """Return the trajectory as a table: ``seconds``, ``objective`` and ``bound`` of each event."""
        events = ((point.seconds, point.objective, point.bound) for point in self.trajectory)
        return DataTable(("seconds", "objective", "bound"), events)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the figures, and why no plan is better than the bound or why there is none."""
        gap = "-" if self.gap is None else f"{100 * self.gap:.2f} %"
        facts: dict[str, object] = {
            "status": self.verdict,
            "objective": "-" if self.objective is None else self.objective,
        }
        facts |= {"bound": self.bound, "gap": gap, "because": self.bound_reason or "-", "stopped by": self.stopped_by}
        facts |= {"looked at": self.part} if self.part else {}
        facts |= {} if self.exact_model is None else {"exact model": self.exact_model}
        facts |= {"solver": self.solver, "seconds": f"{self.seconds:.2f}"}
        return html_table(facts | {f"conflict {k}": conflict.message for k, conflict in enumerate(self.conflicts, 1)})

    def primal_dual_integral(self, limit: float | None = None) -> float:
        """Return the gap integrated over time, in seconds.

        A second without a plan or a bound counts as one (Berthold, 2013).

        Parameters
        ----------
        limit
            Seconds at which the integral ends; None stands for the end of the solve. A proof that there is no plan
            closes the gap.
        """
        end = self.seconds if limit is None or self.status is Status.INFEASIBLE else limit
        total, gap, since = 0.0, 1.0, 0.0
        for event in self.trajectory:
            at = min(max(event.seconds, since), end)
            total += gap * (at - since)
            gap, since = 1.0 if event.objective is None else relative_gap(event.objective, event.bound), at
        return total + gap * (end - since)


def proof_of(instance: Instance, bound: Bound) -> BoundProof | None:
    """Return the proof of a bound as a document, yet to be checked; None where it has no argument."""
    return proof_by(instance, bound.value, bound.proof.argument)


def proof_by(instance: Instance, bound: int | None, argument: Argument | None) -> BoundProof | None:
    """Return the proof of a bound, or for None that there is no plan, by an argument; None without one.

    Nor is there any where a depth rule is installed: the checker does not know what such a rule allows.
    """
    if argument is None or any(isinstance(job.depth, DepthPlugin) for job in instance.data_parallel_jobs):
        return None
    return BoundProof(instance.name, instance_sha256(instance), instance.objective, bound, argument)


def relative_gap(objective: int, bound: int) -> float:
    """Return ``(objective - bound) / objective``, or 0 where the bound is no less than the objective."""
    return (objective - bound) / objective if objective > bound else 0.0


class LiveEvent(Event):
    """An event whose plan can be asked for, from any thread."""

    _obtain: Callable[[], Plan | None]
    _plan: Plan | None = None

    @classmethod
    def of(cls, event: Event, obtain: Callable[[], Plan | None]) -> LiveEvent:
        """Return an event with a plan.

        `obtain`: makes and checks the plan; None where there is none, or no time to check it.
        """
        live = cls(*event)
        live._obtain = obtain
        return live

    @property
    def plan(self) -> Plan | None:
        """Return the best plan at this event, made and checked when it is first asked for."""
        if self._plan is None:
            self._plan = self._obtain()
        return self._plan
