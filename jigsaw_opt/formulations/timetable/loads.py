"""The load of jobs on a GPU or a link, for inequalities that every plan meets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility, block_us
from jigsaw_opt.formulations.timetable.variables import JobVariables
from jigsaw_opt.problem.cluster import Channel, Link
from jigsaw_opt.problem.critical import candidate_levels, least_work_us, tails_us

__all__ = ["Load", "gpu_load", "link_load", "load_rows", "server_load"]

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


def gpu_load(eligibility: GpuEligibility, it: JobVariables[Any, Any], g: int, total: _Total) -> Load:
    """Return the load that the blocks of a job put on a GPU.

    Parameters
    ----------
    eligibility
        The instance, its GPUs and routes.
    it
        Variables of the job.
    g
        Number of the GPU.
    total
        Adds expressions of the engine up.

    Returns
    -------
    Load
        Times in microseconds; the work is a linear expression.
    """
    times = block_us(it.job, eligibility.gpu_type(g))
    work = total(times[d - 1] * literal for levels in it.levels for d, literal in levels[g].items())
    return Load(it.window.release, work, _least_tail(it, times), _least_end(it))


def server_load(eligibility: GpuEligibility, it: JobVariables[Any, Any], s: int) -> Load:
    """Return the even share of a server's GPUs in all blocks of a job that sits on one server only, rounded down.

    Parameters
    ----------
    eligibility
        The instance, its GPUs and routes.
    it
        Variables of the job.
    s
        Number of the server.

    Returns
    -------
    Load
        Times in microseconds; the work is a linear expression.
    """
    times = block_us(it.job, eligibility.operations.cluster.servers[s].gpu_type)
    share = least_work_us(it.job, times) // len(eligibility.by_server[s])
    return Load(it.window.release, share * it.used[s], _least_tail(it, times), _least_end(it))


def link_load(eligibility: GpuEligibility, it: JobVariables[Any, Any], literal: Any, link: Link) -> Load:
    """Return the load of a job's transfers where `literal` says that they use the link; none is faster than the link.

    Parameters
    ----------
    eligibility
        The instance, its GPUs and routes.
    it
        Variables of the job.
    literal
        Says whether the job uses the link.
    link
        The link, with its bandwidth and latency.

    Returns
    -------
    Load
        Times in microseconds; the work is a linear expression.
    """
    job, channel = it.job, Channel((), link.bandwidth, link.latency_us)
    work = job.iterations * sum(
        max(least, job.transfer_us(b, it.fewest[b - 1], channel)) for b, least in enumerate(it.shortest, 1)
    )
    ready = min(block_us(job, eligibility.gpu_type(g))[0] for g in it.here)
    return Load(it.window.release + ready, work * literal, 0, _least_end(it))


def load_rows(loads: Sequence[Load]) -> Iterator[tuple[list[Any], int]]:
    """Yield for every head and tail that occurs the work of all jobs with no smaller ones, and the time around it."""
    for head in sorted({load.head for load in loads}):
        for tail in sorted({load.tail for load in loads}):
            late = [load for load in loads if load.head >= head and load.tail >= tail]
            if late:
                # Where none of them is on the resource there is no work to stand between head and tail.
                yield [load.work for load in late], min(head + tail, max(load.end for load in late))


def _least_tail(it: JobVariables[Any, Any], times: Sequence[int]) -> int:
    tails = tails_us(times, it.shortest)
    return min(tails[d - 1] - times[d - 1] for d in candidate_levels(it.job))


def _least_end(it: JobVariables[Any, Any]) -> int:
    return it.window.release + it.job.iterations * it.window.iteration
