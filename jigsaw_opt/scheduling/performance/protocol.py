"""What the engine and the policies ask of a performance model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol, runtime_checkable

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Share

UNITS = 10**15
"""Units of work in an iteration at full depth."""
GOODPUT, RAW = EFFICIENCIES = ("goodput", "raw")
"""What an iteration below full depth counts for: its progress, where an efficiency tells it, or a whole one."""
_WHOLE = Fraction(1)


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed of a job.

    `rate`: units of work a microsecond, at least 1. `until`: work done, in units, from which on another speed holds and
    is asked for; None if this one holds to the end. `exchange`: share of the time, from 0 to 1, in which the job uses
    links between servers; contention stretches this part. `is_raw`: iterations below full depth count as whole ones, as
    nobody knows what they are worth.
    """

    rate: int
    until: int | None = None
    exchange: float = 0.0
    is_raw: bool = False

    def stretched(self, factor: float) -> Speed:
        """Return the speed where exchanges between servers take `factor` times as long."""
        if factor == 1.0 or self.exchange == 0.0:
            return self
        slower = max(1, round(self.rate / (1.0 + self.exchange * (factor - 1.0))))
        return replace(self, rate=slower)


def rate_of(iteration_us: int | float | Fraction, progress: Fraction = _WHOLE) -> int:
    """Return units a microsecond of a job whose iterations take `iteration_us`, to the nearest one.

    `progress`: of an iteration beside one at full depth, on average; where it is below 1, units are rounded down.
    """
    return max(1, round(UNITS / iteration_us) if progress == 1 else math.floor(UNITS * progress / iteration_us))


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


class ByIterations:
    """What performance models share whose work is iterations, and that say nothing of their own of restarts."""

    name: str
    figures: object = ()

    def work(self, job: TraceJob) -> int:
        """Return units of work of all its iterations."""
        assert job.iterations is not None
        return job.iterations * UNITS

    def restart_us(self, job: TraceJob) -> int | None:
        """Return None: starting anew takes as long as the simulation says."""
        return None

    def iterations_left(self, job: TraceJob, done: int) -> float:
        """Return iterations until the job ends that has done so many units of work."""
        return (self.work(job) - done) / UNITS


def mixed_types(share: Share, type_of: Sequence[str]) -> str | None:
    """Return why jobs cannot run on the GPUs of a share, if these are of several types; `type_of`: that of each GPU."""
    types = {type_of[gpu] for gpu in share.gpus}
    return f"it would run on GPUs of several types: {', '.join(sorted(types))}" if len(types) > 1 else None
