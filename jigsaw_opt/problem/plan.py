"""The plan: where every worker sits, and when every block and transfer runs (specification: plan, phased-plans)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol, Self

from jigsaw_opt.errors import UsageError, wrong_input
from jigsaw_opt.problem.instance import Instance, in_a_period
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.text import counted

PlanStatus = Literal["optimal", "feasible"]


@dataclass(frozen=True, slots=True)
class Block:
    """A worker's block in one iteration; times in microseconds."""

    level: int
    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """The exchange of one bucket; times in microseconds."""

    bucket: int
    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True)
class Execution:
    """An operation of a task-graph job in one iteration; times in microseconds."""

    start_us: int
    end_us: int


class TimedOperation(Protocol):
    """A block or a transfer of either kind of job, planned or measured; times in microseconds."""

    @property
    def start_us(self) -> int:
        """Its start."""

    @property
    def end_us(self) -> int:
        """Its end."""


class TimedIteration:
    """An iteration of either kind of job, planned or measured."""

    __slots__ = ()
    blocks: Sequence[TimedOperation]
    transfers: Sequence[TimedOperation]

    @property
    def operations(self) -> tuple[TimedOperation, ...]:
        """Its blocks, then its transfers."""
        return (*self.blocks, *self.transfers)

    @property
    def end_us(self) -> int:
        """Largest end of its operations, in microseconds; 0 where it has none."""
        return max((operation.end_us for operation in self.operations), default=0)

    def moved(self, move: Callable[[int], int]) -> Self:
        """Return it with new starts for old ones, in microseconds; durations stay."""

        def at(operation: Any) -> Any:
            start = move(operation.start_us)
            return replace(operation, start_us=start, end_us=start + operation.end_us - operation.start_us)

        whole: Any = self
        found: Self = replace(whole, blocks=tuple(map(at, self.blocks)), transfers=tuple(map(at, self.transfers)))
        return found


class _PlannedJob:
    __slots__ = ()
    iterations: Sequence[TimedIteration]

    @property
    def operations(self) -> Iterator[TimedOperation]:
        """Operations of all its iterations, in their order."""
        return (operation for iteration in self.iterations for operation in iteration.operations)

    @property
    def start_us(self) -> int:
        """Smallest start in its first iteration, in microseconds; 0 where it has none."""
        first = self.iterations[0].operations if self.iterations else ()
        return min((operation.start_us for operation in first), default=0)

    @property
    def end_us(self) -> int:
        """Largest end in its last iteration, in microseconds (specification: job-end, end-of-a-task-graph-job)."""
        # Iterations end in their order, for each operation waits for itself in the iteration before.
        return self.iterations[-1].end_us if self.iterations else 0

    def moved(self, *moves: Callable[[int], int]) -> Self:
        """Return it with its iterations once for each function, which gives new starts for old ones."""
        return self.with_iterations(iteration.moved(move) for move in moves for iteration in self.iterations)

    def between(self, first: int, end: int, period_us: int) -> Self:
        """Return its iterations from one up to another, counted over repetitions that are a period apart."""
        numbers = (divmod(number, len(self.iterations)) for number in range(first, end))
        return self.with_iterations(self.iterations[at].moved((turn * period_us).__add__) for turn, at in numbers)

    def with_iterations(self, iterations: Iterable[TimedIteration]) -> Self:
        """Return it with other iterations of its kind."""
        whole: Any = self
        found: Self = replace(whole, iterations=tuple(iterations))
        return found


@dataclass(frozen=True, slots=True)
class Iteration(TimedIteration):
    """Blocks in the order of the workers, transfers in the order of the buckets."""

    blocks: tuple[Block, ...]
    transfers: tuple[Transfer, ...]


@dataclass(frozen=True, slots=True)
class JobPlan(_PlannedJob):
    """The GPUs of a job's workers (``server/index``) and its iterations."""

    name: str
    gpus: tuple[str, ...]
    iterations: tuple[Iteration, ...]

    @property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """Level of each worker, by iteration."""
        return tuple(tuple(block.level for block in iteration.blocks) for iteration in self.iterations)


@dataclass(frozen=True, slots=True)
class TaskGraphIteration(TimedIteration):
    """Blocks and transfers in the order of the task graph."""

    blocks: tuple[Execution, ...]
    transfers: tuple[Execution, ...]


@dataclass(frozen=True, slots=True)
class TaskGraphJobPlan(_PlannedJob):
    """The GPUs of a task-graph job's slots (``server/index``) and its iterations."""

    name: str
    gpus: tuple[str, ...]
    iterations: tuple[TaskGraphIteration, ...]

    levels: ClassVar[tuple[tuple[int, ...], ...]] = ()
    """It has none: all its operations run."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A timetable of some jobs that takes place once, a number of times, or for ever.

    `start_us`: start of its first repetition, in microseconds; the times of its jobs count from there. `period_us`:
    microseconds from one repetition to the next; None where it takes place once. `repeats`: number of repetitions; None
    for ever. `jobs`: what each job does in one repetition, in the instance's order.
    """

    start_us: int
    period_us: int | None
    repeats: int | None
    jobs: tuple[JobPlan | TaskGraphJobPlan, ...]

    def __post_init__(self) -> None:
        if self.period_us is None and self.repeats != 1:
            raise UsageError("a phase without a period takes place once", code="contradiction")
        if not self.is_counted and self.start_us != 0:
            told = "a phase that begins later than at 0 has a period and a number of repetitions"
            raise UsageError(told, code="missing-field")

    @property
    def data_parallel_jobs(self) -> tuple[JobPlan, ...]:
        """Those of its jobs that are data-parallel."""
        return tuple(job for job in self.jobs if isinstance(job, JobPlan))

    @property
    def is_counted(self) -> bool:
        """Whether it has a period and a number of repetitions, as every phase of a phased plan."""
        return self.period_us is not None and self.repeats is not None

    @property
    def cycle_us(self) -> int:
        """The period of a phase that has one, in microseconds."""
        if self.period_us is None:
            told = "the plan lists all iterations; only phases that have a period are taken here"
            raise UsageError(told, code="unsupported")
        return self.period_us

    @property
    def count(self) -> int:
        """Number of repetitions of a phase that ends."""
        if self.repeats is None:
            raise UsageError("the plan is repeated for ever; only phases that end are taken here", code="unsupported")
        return self.repeats

    @property
    def last_start_us(self) -> int:
        """Start of its last repetition, in microseconds."""
        return self.start_us + (self.count - 1) * (self.period_us or 0)

    @property
    def end_us(self) -> int:
        """End of the last operation of its last repetition, in microseconds."""
        return max(map(self.end_of, self.jobs), default=self.last_start_us)

    def end_of(self, job: JobPlan | TaskGraphJobPlan) -> int:
        """Return when the last operation of one of its jobs ends in its last repetition, in microseconds."""
        return self.last_start_us + max((operation.end_us for operation in job.operations), default=0)

    def numbers_in(self, instance: Instance) -> tuple[int, ...]:
        """Return the numbers of its jobs in an instance that has them."""
        numbers = {job.name: number for number, job in enumerate(instance.jobs)}
        return tuple(numbers[job.name] for job in self.jobs)


@dataclass(frozen=True, slots=True)
class PhaseGroup:
    """Phases in order of time, whose jobs share no GPU and no link with those of other groups."""

    phases: tuple[Phase, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A timetable for an instance: groups of phases.

    A plan that lists all iterations is one phase that takes place once, a cyclic plan one phase for ever. All others
    are phased. Fields as in the documents ``jigsaw-plan/1`` and ``jigsaw-phased-plan/1``.

    Raises
    ------
    UsageError
        There are several phases, and one of them has no period or no number of repetitions.
    """

    instance: str
    instance_sha256: str
    status: PlanStatus
    objective: int
    bound: int
    groups: tuple[PhaseGroup, ...]
    solver: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        phases = [phase for _, _, phase in self.all_phases()]
        if (len(phases) > 1 or len(self.groups) > 1) and not all(phase.is_counted for phase in phases):
            raise UsageError("each of several phases has a period and a number of repetitions", code="missing-field")

    @classmethod
    def of_jobs(
        cls,
        instance: str,
        instance_sha256: str,
        status: PlanStatus,
        objective: int,
        bound: int,
        period_us: int | None,
        jobs: tuple[JobPlan | TaskGraphJobPlan, ...],
        solver: Mapping[str, Any] | None = None,
    ) -> Plan:
        """Make a plan of one phase: once where there is no period, else for ever.

        Parameters
        ----------
        instance, instance_sha256
            Name and digest of the instance.
        status
            What is known of the plan.
        objective, bound
            Objective and lower bound, in microseconds (times weight for a weighted sum).
        period_us
            The period in microseconds; None on the finite horizon.
        jobs
            What each job does, in the instance's order.
        solver
            How it was found, as documents have it.
        """
        groups = (PhaseGroup((_only_phase(period_us, jobs),)),)
        return cls(instance, instance_sha256, status, objective, bound, groups, {} if solver is None else solver)

    def __repr__(self) -> str:
        """Return on one line what it is of, how many jobs it has, and how good it is."""
        jobs = {job.name for _, _, phase in self.all_phases() for job in phase.jobs}
        phases = f"{counted(len([*self.all_phases()]), 'phase')}, " if self.is_phased else ""
        name = "objective" if self.is_phased or self.period_us is None else "period"
        gap = (self.objective - self.bound) / self.objective if self.objective > self.bound else 0.0
        of = f"{counted(len(jobs), 'job')}, {phases}{name} {self.objective}, gap {100 * gap:.2f} %"
        return f"<Plan of {self.instance!r}: {of}>"

    @property
    def is_phased(self) -> bool:
        """Whether it is written as ``jigsaw-phased-plan/1``: it is not one phase, once or for ever."""
        return len(self.groups) != 1 or len(self.groups[0].phases) != 1 or self.groups[0].phases[0].is_counted

    @property
    def _only(self) -> Phase:
        if self.is_phased:
            told = f"the plan of {self.instance!r} repeats phases; only plans that list all iterations are taken here"
            raise UsageError(told, "jigsaw solve --solver search makes one", code="unsupported")
        return self.groups[0].phases[0]

    @property
    def jobs(self) -> tuple[JobPlan | TaskGraphJobPlan, ...]:
        """All that its jobs do; of a cyclic plan, in one period.

        Raises
        ------
        UsageError
            It is phased.
        """
        return self._only.jobs

    @property
    def period_us(self) -> int | None:
        """Its period, or None where it takes place once.

        Raises
        ------
        UsageError
            It is phased.
        """
        return self._only.period_us

    @property
    def data_parallel(self) -> tuple[JobPlan, ...]:
        """The data-parallel jobs, which must be all jobs of the plan.

        Raises
        ------
        UsageError
            It is phased, or some job has a task graph.
        """
        found = self._only.data_parallel_jobs
        if len(found) < len(self.jobs):
            name = next(job.name for job in self.jobs if job not in found)
            told = f"job {name!r} of the plan has a task graph; only data-parallel jobs are taken here"
            raise UsageError(told, code="unsupported")
        return found

    def with_jobs(self, jobs: tuple[JobPlan | TaskGraphJobPlan, ...]) -> Plan:
        """Return the same plan, which is not phased, with other jobs."""
        return replace(self, groups=(PhaseGroup((replace(self._only, jobs=jobs),)),))

    def with_period(self, period_us: int | None) -> Plan:
        """Return the same plan, which is not phased, with another period or none."""
        return replace(self, groups=(PhaseGroup((_only_phase(period_us, self.jobs),)),))

    def alone(self, instance: Instance, phase: Phase) -> tuple[Instance, Plan]:
        """Return a phase by itself: the cyclic plan that it repeats, of jobs that do what they do in one repetition.

        A plan that lists all iterations or is cyclic is its only phase already.

        Parameters
        ----------
        instance
            The instance of the plan.
        phase
            One of the plan's phases.

        Returns
        -------
        tuple[Instance, Plan]
            The cyclic instance of the phase's jobs, and its plan.
        """
        if not phase.is_counted:
            return instance, self
        jobs = tuple(
            in_a_period(instance.jobs[number], len(job.iterations))
            for number, job in zip(phase.numbers_in(instance), phase.jobs, strict=True)
        )
        part = altered(instance, jobs=jobs, horizon="cyclic", objective="period")
        period = phase.cycle_us
        return part, Plan.of_jobs(self.instance, "", "feasible", period, 0, period, phase.jobs, self.solver)

    @property
    def moved(self) -> tuple[str, ...]:
        """Names of the jobs that have other GPUs in another phase (specification: moves)."""
        first: dict[str, tuple[str, ...]] = {}
        parts = [job for _, _, phase in self.all_phases() for job in phase.jobs]
        return tuple(dict.fromkeys(job.name for job in parts if first.setdefault(job.name, job.gpus) != job.gpus))

    def require_no_moves(self, why: str) -> None:
        """Refuse plans whose jobs move, for whoever needs each of them to stay on its GPUs.

        Parameters
        ----------
        why
            Who that is, as a sentence.

        Raises
        ------
        InvalidInputError
            Some job moves.
        """
        if self.moved:
            named = f"job {self.moved[0]!r} of the plan has other GPUs in another phase"
            raise wrong_input("$.groups", f"{named}; {why}", code="unsupported")

    def all_phases(self) -> Iterator[tuple[int, int, Phase]]:
        """Yield every phase with the number of its group and its own number in it."""
        for g, group in enumerate(self.groups):
            for p, phase in enumerate(group.phases):
                yield g, p, phase


def _only_phase(period_us: int | None, jobs: tuple[JobPlan | TaskGraphJobPlan, ...]) -> Phase:
    return Phase(0, period_us, 1 if period_us is None else None, jobs)
