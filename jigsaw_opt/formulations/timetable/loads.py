"""The load of jobs on a GPU or a link, for inequalities that every plan meets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility, block_us
from jigsaw_opt.formulations.timetable.model import TimetableModel
from jigsaw_opt.formulations.timetable.variables import JobVariables
from jigsaw_opt.problem.cluster import Channel, Link
from jigsaw_opt.problem.compiled.critical import candidate_levels, least_work_us, tails_us


class Load(NamedTuple):
    """The load of one job on a resource: no work before `head`, none in the last `tail` before the job's end.

    The job ends no earlier than `end`, wherever it is.
    """

    head: int
    work: Any
    tail: int
    end: int


def _gpu_load(model: TimetableModel, eligibility: GpuEligibility, job_vars: JobVariables[Any, Any], g: int) -> Load:
    """Return the load that the blocks of a job put on a GPU.

    Times in microseconds; the work is a linear expression.
    """
    times = block_us(job_vars.job, eligibility.gpu_type(g))
    work = model.total(times[d - 1] * literal for levels in job_vars.levels for d, literal in levels[g].items())
    return Load(job_vars.window.release, work, _least_tail(job_vars, times), _least_end(job_vars))


def _server_load(eligibility: GpuEligibility, job_vars: JobVariables[Any, Any], s: int) -> Load:
    """Return the even share of a server's GPUs in all blocks of a job that sits on one server only, rounded down.

    Times in microseconds; the work is a linear expression.
    """
    times = block_us(job_vars.job, eligibility.operations.cluster.servers[s].gpu_type)
    share = least_work_us(job_vars.job, times) // len(eligibility.by_server[s])
    return Load(job_vars.window.release, share * job_vars.used[s], _least_tail(job_vars, times), _least_end(job_vars))


def _link_load(eligibility: GpuEligibility, job_vars: JobVariables[Any, Any], k: int, link: Link) -> Load:
    """Return the load of a job's transfers on a link that they may use; none is faster than the link.

    Times in microseconds; the work is a linear expression.
    """
    job, channel = job_vars.job, Channel((), link.bandwidth, link.latency_us)
    work = job.iterations * sum(
        max(least, job.transfer_us(b, job_vars.fewest[b - 1], channel)) for b, least in enumerate(job_vars.shortest, 1)
    )
    ready = min(block_us(job, eligibility.gpu_type(g))[0] for g in job_vars.assigned)
    return Load(job_vars.window.release + ready, work * job_vars.links[k], 0, _least_end(job_vars))


def add_loads(
    model: TimetableModel,
    eligibility: GpuEligibility,
    jobs: Sequence[JobVariables[Any, Any]],
    most: Any,
    others: Callable[[int], Iterable[Load]] = lambda g: (),
    is_finite: bool = True,
) -> None:
    """Fit the work on each GPU, server and link into the time that there is.

    Of a server, that is the work of jobs that sit on one server only, as if spread evenly over its GPUs. Once every
    worker has its GPU, the rows of the GPUs say no less; these say which jobs fit onto a server before that. No
    transfer is faster than the link.

    `most`: the makespan, within which work stands between the first release and the last exchange, or the period.
    `others`: what other jobs put on a GPU.
    """

    def fit(name: str, loads: Sequence[Load]) -> None:
        for n, (works, around) in enumerate(_load_rows(loads) if is_finite else [([load.work for load in loads], 0)]):
            model.add(model.total(works) + around <= most, f"{name}_{n}")

    for g in range(len(eligibility.gpus)):
        own = [_gpu_load(model, eligibility, job_vars, g) for job_vars in jobs if g in job_vars.assigned]
        fit(f"gpu_load_{g}", [*own, *others(g)])
    # Of a job that may sit on several servers, nobody knows how much of its work is on this one.
    inside = [job_vars for job_vars in jobs if job_vars.on_one_server(eligibility)]
    for s in range(len(eligibility.by_server)):
        fit(f"server_load_{s}", [_server_load(eligibility, job_vars, s) for job_vars in inside if s in job_vars.used])
    for k, link in enumerate(eligibility.operations.cluster.links):
        fit(f"link_load_{k}", [_link_load(eligibility, job_vars, k, link) for job_vars in jobs if k in job_vars.links])


def _load_rows(loads: Sequence[Load]) -> Iterator[tuple[list[Any], int]]:
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
