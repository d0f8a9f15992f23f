"""The contract of lower bounds: a relaxation is given a budget and yields values with their proofs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

from jigsaw_opt.problem import clock
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.depth import FreeDepth
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.solvers.bounds.job_data import GpuClass, JobData, gather_job_data, gpu_classes
from jigsaw_opt.solvers.bounds.proof import Proof


class BoundBudget:
    """Budget of relaxations: deterministic work, the clock of the current solve, and a caller who may stop it.

    `work`: limit in seconds as a usual core would need, counted from the size of what is computed, so that the same
    limit gives the same bounds on every machine. `stop`: asked between steps; once it holds, the search ends and what
    was proven stays.
    """

    def __init__(self, work: float = math.inf, stop: Callable[[], bool] = lambda: False) -> None:
        self.left = work
        self._stop = stop

    @property
    def stopped(self) -> bool:
        """Return whether the caller wants no more, or the time is over."""
        return self._stop() or clock.left() <= 0

    @property
    def spent(self) -> bool:
        """Return whether the search should end."""
        return self.left <= 0 or self.stopped

    def charge(self, work: float) -> None:
        """Count work that was done."""
        self.left -= work


T = TypeVar("T")

Deadlines = Callable[[int], Mapping[int, int]]
"""Latest completion times of jobs, in microseconds by index, in plans whose objective is at most a limit."""


class Bound(NamedTuple):
    """A proven lower bound on the objective.

    Parameters
    ----------
    value
        No plan has a smaller objective.
    proof
        Why.
    deadlines
        What the proof says of single jobs, or None where it says nothing of them.
    """

    value: int
    proof: Proof
    deadlines: Deadlines | None = None

    @property
    def reason(self) -> str:
        """Return the proof in one sentence."""
        return self.proof.sentence


def rounded_for_moves(operations: Operations) -> Operations:
    """Return the instance with the least total of levels of each job that may move rounded down, not up.

    Each part of the job on other GPUs keeps the mean depth by itself. A bound counts all iterations on the same GPUs,
    and there what is rounded up may cost more than where the parts round up.
    """
    moving = {job.name: job for job in operations.instance.moving_jobs}
    if not moving:
        return operations
    jobs = tuple(_rounded(graph, moving.get(graph.name)) for graph in operations.jobs)
    return replace(operations, jobs=jobs).with_routes(operations.routes)


def _rounded(graph: OperationGraph, job: Job | TaskGraphJob | None) -> OperationGraph:
    if job is None or not isinstance(job.depth, FreeDepth):
        return graph
    mean, limit = job.depth.mean(job.workers) * graph.levels * job.workers, graph.rule.progress
    if limit is not None:
        mean = max(mean, limit.least_levels(job.iterations, graph.rule.min_contributors))
    least = min(graph.rule.min_total, int(mean * job.iterations))
    return replace(graph, rule=replace(graph.rule, min_total=least))


class BoundContext:
    """Data that the relaxations of one run share: the instance, what follows from it, and what they build together."""

    def __init__(self, operations: Operations) -> None:
        self.operations = rounded_for_moves(operations)
        self._shared: dict[object, object] = {}

    @cached_property
    def gpu_classes(self) -> list[GpuClass]:
        """Return the GPUs by type and memory."""
        return gpu_classes(self.operations)

    @cached_property
    def job_data(self) -> list[JobData]:
        """Return the class and the least completion time of each job, in the instance's order."""
        return gather_job_data(self.operations, self.gpu_classes)

    def shared(self, build: Callable[[BoundContext], T]) -> T:
        """Return what `build` makes of this context; it is built once, for all relaxations that ask for it."""
        if build not in self._shared:
            self._shared[build] = build(self)
        found: T = self._shared[build]  # type: ignore[assignment]
        return found


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A way to bound the objective from below.

    Parameters
    ----------
    name
        By which it is left out, and by which its proofs are known.
    bounds
        Yields proven bounds, given the context, the best value known so far and the budget. It charges its work to
        the budget, and ends once that is spent. Values that are not above the known one are passed over.
    objectives
        The objectives that it bounds. ``period`` is that of the cyclic horizon; the others are finite.
    instant
        Whether it takes milliseconds at any size. Such relaxations run before every search, without a budget; the
        others run beside it.
    fits
        Whether an instance has the size and the parts that it needs.
    task_graphs
        Whether it bounds instances of jobs with a task graph, and no others.
    mixed
        Whether it bounds instances that have jobs of both kinds, and no others.
    engine
        Name of the engine whose search is the proof, as ``CP-SAT``; empty where the calculation is.
    moves
        Whether it also holds where a job may have other GPUs in another iteration (specification: moves).
    """

    name: str
    bounds: Callable[[BoundContext, int, BoundBudget], Iterator[Bound]]
    objectives: frozenset[str] = frozenset({"makespan", "weighted_completion", "period"})
    instant: bool = False
    fits: Callable[[Operations], bool] = lambda operations: True
    task_graphs: bool = False
    mixed: bool = False
    moves: bool = False
    engine: str = ""

    def applies(self, operations: Operations) -> bool:
        """Return whether it bounds such an instance, with moves where a job may move."""
        if operations.instance.moving_jobs and not self.moves:
            return False
        kind = (
            self.mixed if operations.is_mixed else not self.mixed and bool(operations.task_graphs) == self.task_graphs
        )
        return kind and operations.objective in self.objectives and self.fits(operations)
