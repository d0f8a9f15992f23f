"""The plan: where every worker sits, and when every block and transfer runs (specification: plan)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from jigsaw_opt.errors import UsageError

__all__ = [
    "Block",
    "Execution",
    "Iteration",
    "JobPlan",
    "Plan",
    "PlanStatus",
    "ShapedIteration",
    "ShapedJobPlan",
    "Transfer",
]

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
class Iteration:
    """Blocks in the order of the workers, transfers in the order of the buckets."""

    blocks: tuple[Block, ...]
    transfers: tuple[Transfer, ...]


@dataclass(frozen=True, slots=True)
class JobPlan:
    """The GPUs of a job's workers (``server/index``) and its iterations."""

    name: str
    gpus: tuple[str, ...]
    iterations: tuple[Iteration, ...]


@dataclass(frozen=True, slots=True)
class Execution:
    """An operation of a shaped job in one iteration; times in microseconds."""

    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True)
class ShapedIteration:
    """Blocks and transfers in the order of the shape."""

    blocks: tuple[Execution, ...]
    transfers: tuple[Execution, ...]


@dataclass(frozen=True, slots=True)
class ShapedJobPlan:
    """The GPUs of a shaped job's slots (``server/index``) and its iterations."""

    name: str
    gpus: tuple[str, ...]
    iterations: tuple[ShapedIteration, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A timetable for an instance. Fields as in the document ``jigsaw-plan/1``."""

    instance: str
    instance_sha256: str
    status: PlanStatus
    objective: int
    bound: int
    period_us: int | None
    jobs: tuple[JobPlan | ShapedJobPlan, ...]
    solver: Mapping[str, Any] = field(default_factory=dict)

    @property
    def data_parallel(self) -> tuple[JobPlan, ...]:
        """All of its jobs, for whoever takes data-parallel ones alone.

        Raises
        ------
        UsageError
            Some job has a shape.
        """
        found = tuple(job for job in self.jobs if isinstance(job, JobPlan))
        if len(found) < len(self.jobs):
            name = next(job.name for job in self.jobs if isinstance(job, ShapedJobPlan))
            raise UsageError(f"job {name!r} of the plan has a shape; only data-parallel jobs are taken here")
        return found
