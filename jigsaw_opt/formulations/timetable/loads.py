"""The load of jobs on a GPU or a link, for inequalities that every plan meets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility, block_us
from jigsaw_opt.formulations.timetable.variables import JobVariables
from jigsaw_opt.problem.cluster import Channel, Link
from jigsaw_opt.problem.compiled.critical import candidate_levels, least_work_us, tails_us

_Total = Callable[[Iterable[Any]], Any]
"""Sum of linear terms."""


class Load(NamedTuple):
    """The load of one job on a resource: no work before `head`, none in the last `tail` before the job's end.

    The job ends no earlier than `end`, wherever it is.
    """

    head: int
    work: Any
    tail: int
    end: int


def gpu_load(eligibility: GpuEligibility, job_vars: JobVariables[Any, Any], g: int, total: _Total) -> Load:
    """Return the load that the blocks of a job put on a GPU.

    Times in microseconds; the work is a linear expression.
    """
    times = block_us(job_vars.job, eligibility.gpu_type(g))
    work = total(times[d - 1] * literal for levels in job_vars.levels for d, literal in levels[g].items())
    return Load(job_vars.window.release, work, _least_tail(job_vars, times), _least_end(job_vars))


def server_load(eligibility: GpuEligibility, job_vars: JobVariables[Any, Any], s: int) -> Load:
    """Return the even share of a server's GPUs in all blocks of a job that sits on one server only, rounded down.

    Times in microseconds; the work is a linear expression.
    """
    times = block_us(job_vars.job, eligibility.operations.cluster.servers[s].gpu_type)
    share = least_work_us(job_vars.job, times) // len(eligibility.by_server[s])
    return Load(job_vars.window.release, share * job_vars.used[s], _least_tail(job_vars, times), _least_end(job_vars))


def link_load(eligibility: GpuEligibility, job_vars: JobVariables[Any, Any], literal: Any, link: Link) -> Load:
    """Return the load of a job's transfers where `literal` says that they use the link; none is faster than the link.

    Times in microseconds; the work is a linear expression.
    """
    job, channel = job_vars.job, Channel((), link.bandwidth, link.latency_us)
    work = job.iterations * sum(
        max(least, job.transfer_us(b, job_vars.fewest[b - 1], channel)) for b, least in enumerate(job_vars.shortest, 1)
    )
    ready = min(block_us(job, eligibility.gpu_type(g))[0] for g in job_vars.assigned)
    return Load(job_vars.window.release + ready, work * literal, 0, _least_end(job_vars))


def load_rows(loads: Sequence[Load]) -> Iterator[tuple[list[Any], int]]:
    """Yield for every head and tail that occurs the work of all jobs with no smaller ones, and the time around it."""
    for head in sorted({load.head for load in loads}):
        for tail in sorted({load.tail for load in loads}):
            late = [load for load in loads if load.head >= head and load.tail >= tail]
            if late:
                # Where none of them is on the resource there is no work to stand between head and tail.
                yield [load.work for load in late], min(head + tail, max(load.end for load in late))


def _least_tail(job_vars: JobVariables[Any, Any], times: Sequence[int]) -> int:
    tails = tails_us(times, job_vars.shortest)
    return min(tails[d - 1] - times[d - 1] for d in candidate_levels(job_vars.job))


def _least_end(job_vars: JobVariables[Any, Any]) -> int:
    return job_vars.window.release + job_vars.job.iterations * job_vars.window.iteration
