"""Cyclic plans of jobs that share nothing, beside one another in one period."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd
from typing import TypeVar

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem.cluster import Routes
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.plan import Block, Execution, JobPlan, Plan, ShapedJobPlan, Transfer
from jigsaw_opt.solvers.phased.fluid_model import kind_of
from jigsaw_opt.solvers.phased.phases import Gpus, Timing
from jigsaw_opt.solvers.phased.shelves import sharing_groups

__all__ = ["SideBySide"]

_Timed = TypeVar("_Timed", Block, Transfer, Execution)


class SideBySide:
    """Makes the cyclic plan of a phase of those of its parts: jobs that share a GPU or a link, directly or by others.

    Parameters
    ----------
    instance
        The instance.
    timing
        Makes the cyclic plan of a part.
    stop
        Says whether the time for it is over.
    """

    def __init__(self, instance: Instance, timing: Timing, stop: Callable[[], bool]) -> None:
        self._stop = stop
        self._instance, self._timing, self._routes = instance, timing, Routes(instance.cluster)
        self._asked = {job.name: job for job in instance.jobs if isinstance(job, Job)}
        self._servers = {server.name: server for server in instance.cluster.servers}
        self._alone: dict[tuple[str, int, tuple[object, ...]], Plan] = {}

    def parts(self, gpus: Gpus) -> list[list[str]]:
        """Names of the jobs of each part."""
        return sharing_groups(self._instance, gpus, self._routes)

    def part(self, counts: Mapping[str, int], gpus: Gpus) -> Plan:
        """A cyclic plan of one part; a data-parallel job alone goes as fast as it can.

        Raises
        ------
        OutOfTimeError
            The time for it is over, or there was none for a cyclic plan.
        """
        if self._stop():
            raise OutOfTimeError("no time was left for phases of jobs that move")
        if len(counts) > 1:
            return self._timing(counts, gpus)
        [(name, count)] = counts.items()
        there, servers = tuple(gpus[name]), [self._servers[gpu.rsplit("/", 1)[0]] for gpu in gpus[name]]
        # What a job does alone on one server it does on any that is like it.
        key = name, count, kind_of(servers[0]) if len({*servers}) == 1 else there
        if key not in self._alone:
            plan = self._timing(counts, gpus)
            [job] = plan.jobs
            if isinstance(job, JobPlan):
                soon, end_us = self._soonest(job)
                plan = Plan.of_jobs(plan.instance, "", "feasible", end_us, 0, end_us, (soon,))
            self._alone[key] = plan
        found = self._alone[key]
        return found.with_jobs((replace(found.jobs[0], gpus=there),))

    def _soonest(self, job: JobPlan) -> tuple[JobPlan, int]:
        """The same levels with every operation as soon as it can be, and the end of the last one."""
        model = self._instance.models[self._asked[job.name].model]
        ready_us = [model.block_us(self._servers[gpu.rsplit("/", 1)[0]].gpu_type) for gpu in job.gpus]
        now, iterations = 0, []
        for it in job.iterations:
            placed = [*zip(it.blocks, ready_us, strict=True)]
            blocks = tuple(replace(b, start_us=now, end_us=now + ready[b.level - 1]) for b, ready in placed)
            free, transfers = now, []
            for transfer in it.transfers:
                bucket = transfer.bucket
                start = max(free, now + max(ready[bucket - 1] for b, ready in placed if b.level >= bucket))
                free = start + transfer.end_us - transfer.start_us
                transfers.append(replace(transfer, start_us=start, end_us=free))
            iterations.append(replace(it, blocks=blocks, transfers=tuple(transfers)))
            now = max(free, *(block.end_us for block in blocks))
        return replace(job, iterations=tuple(iterations)), now

    def timed(self, counts: Mapping[str, int], gpus: Gpus) -> Plan:
        """A cyclic plan of jobs wherever they are: each part as often as its counts have a common divisor.

        The period is that of the longest part. The others are stretched to it, which leaves their order as it is
        (specification: known-answers).
        """
        found: list[tuple[Plan, int]] = []
        for names in self.parts({name: gpus[name] for name in counts}):
            times = gcd(*(counts[name] for name in names))
            found.append((self.part({name: counts[name] // times for name in names}, gpus), times))
        period_us = max(plan.objective * times for plan, times in found)
        jobs = {job.name: job for plan, times in found for job in _repeated(plan, times, period_us)}
        placed = tuple(jobs[job.name] for job in self._instance.jobs if job.name in jobs)
        return Plan.of_jobs(self._instance.name, "", "feasible", period_us, 0, period_us, placed)


def _repeated(plan: Plan, times: int, period_us: int) -> Iterator[JobPlan | ShapedJobPlan]:
    """Jobs of a cyclic plan some times one after another in a period that is no shorter than all of it."""
    own_us = plan.objective
    whole_us = own_us * times

    def later(operations: Sequence[_Timed], by: int) -> tuple[_Timed, ...]:
        return tuple(_at(operation, operation.start_us + by) for operation in operations)

    def _at(operation: _Timed, moment: int) -> _Timed:
        periods, rest = divmod(moment, whole_us)
        start = periods * period_us + rest
        return replace(operation, start_us=start, end_us=start + operation.end_us - operation.start_us)

    for job in plan.jobs:
        shifts = [number * own_us for number in range(times)]
        if isinstance(job, JobPlan):
            plain = [
                replace(it, blocks=later(it.blocks, by), transfers=later(it.transfers, by))
                for by in shifts
                for it in job.iterations
            ]
            yield replace(job, iterations=tuple(plain))
        else:
            own = [
                replace(it, blocks=later(it.blocks, by), transfers=later(it.transfers, by))
                for by in shifts
                for it in job.iterations
            ]
            yield replace(job, iterations=tuple(own))
