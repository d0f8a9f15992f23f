"""What the engine and the policies ask of a performance model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.performance.speed import Speed

__all__ = ["ByType", "Contention", "Performance"]


@runtime_checkable
class Performance(Protocol):
    """Rates of jobs on given hardware. Answers depend on the arguments alone; what is dear to work out is cached."""

    @property
    def name(self) -> str:
        """The kind, as on the command line."""

    @property
    def figures(self) -> object:
        """What it was made from beside the cluster; its `repr` tells equal figures from others."""

    def unknown(self, job: TraceJob) -> str | None:
        """Return why it cannot run `job` on any GPUs of the cluster (unknown model, batch size, memory), or None."""

    def work(self, job: TraceJob) -> int:
        """Return units of work that the job has to do in all."""

    def alone_us(self, job: TraceJob) -> int:
        """Return the time of all its work, alone at full depth on the GPUs it asks for, well placed, no restarts."""

    def restart_us(self, job: TraceJob) -> int | None:
        """Return time to start it on other GPUs; None where it is the simulation's own setting."""

    def refuses(self, share: Share, jobs: Sequence[TraceJob]) -> str | None:
        """Return why these jobs cannot run in this share (memory, GPU type, kind of sharing), or None.

        Parameters
        ----------
        share
            Numbers of the jobs, and their GPUs.
        jobs
            The jobs, in the order of ``share.jobs``.
        """

    def speeds(self, share: Share, jobs: Sequence[TraceJob], done: Sequence[int]) -> tuple[Speed, ...]:
        """Return the speed of each job of a share, without contention by other shares.

        Parameters
        ----------
        share
            The jobs' numbers, their GPUs and depth rules.
        jobs
            The jobs themselves, in the order of ``share.jobs``.
        done
            Units of work that each has done.
        """


@runtime_checkable
class Contention(Protocol):
    """A model of contention: how other jobs on the same links, or links that are down, stretch exchanges."""

    def factors(self, placements: Sequence[tuple[int, ...]], dead: frozenset[int] = frozenset()) -> Sequence[float]:
        """Return the factor on the exchanges of each placement when all of them run.

        Links that are not `dead` join its servers.

        Parameters
        ----------
        placements
            For each share the numbers of its GPUs.
        dead
            Numbers of the links that are down; the others join the servers.

        Returns
        -------
        sequence of float
            For each placement a factor of at least 1.
        """


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
