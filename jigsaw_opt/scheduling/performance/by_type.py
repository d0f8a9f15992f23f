"""Performance models that know how fast a job runs on each type of GPU, wherever it is placed there."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jigsaw_opt.problem.workload import TraceJob

__all__ = ["ByType"]


@runtime_checkable
class ByType(Protocol):
    """A performance model for policies that share GPU types in time."""

    def throughput(self, job: TraceJob, gpu_type: str) -> float:
        """Return iterations a second on as many GPUs of a type as the job asks for; 0 where it cannot run.

        Parameters
        ----------
        job
            The job.
        gpu_type
            Name of a type of GPU.
        """

    def iterations_left(self, job: TraceJob, done: int) -> float:
        """Return iterations until the job ends that has done so many units of work.

        Parameters
        ----------
        job
            The job.
        done
            Units of work that it has done.
        """
