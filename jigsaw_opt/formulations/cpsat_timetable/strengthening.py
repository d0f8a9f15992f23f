"""Inequalities that every plan meets, for the linear relaxation: the load of each GPU and of each link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from jigsaw_opt.formulations.cpsat_timetable.timing import block_us
from jigsaw_opt.formulations.cpsat_timetable.variables import Ground, JobVariables
from jigsaw_opt.problem.cluster import Channel, Link
from jigsaw_opt.problem.critical import candidate_levels, tail_us

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat_timetable.variables import Expression

__all__ = ["add_gpu_loads", "add_link_loads", "add_loads_of_period"]


class _Load(NamedTuple):
    """What one job puts on a resource: no work before `head`, none in the last `tail` before the job's end.

    The job ends no earlier than `end`, wherever it is.
    """

    head: int
    work: Expression
    tail: int
    end: int


def add_gpu_loads(
    model: cp_model.CpModel, ground: Ground, jobs: Sequence[JobVariables], makespan: cp_model.IntVar
) -> None:
    """Work on a GPU fits between the first release and the last exchange."""
    for g in range(len(ground.gpus)):
        _add_loads(model, [_gpu_load(ground, it, g) for it in jobs if g in it.here], makespan)


def _gpu_load(ground: Ground, it: JobVariables, g: int) -> _Load:
    times = block_us(it.job, ground.gpu_type(g))
    work = sum(times[d - 1] * literal for levels in it.levels for d, literal in levels[g].items())
    tail = min(tail_us(times, it.shortest, d) - times[d - 1] for d in candidate_levels(it.job))
    return _Load(it.window.release, work, tail, _least_end(it))


def add_link_loads(
    model: cp_model.CpModel, ground: Ground, jobs: Sequence[JobVariables], makespan: cp_model.IntVar
) -> None:
    """Transfers over a link fit between the first readiness and the end; over it, none is faster than the link."""
    for k, link in enumerate(ground.pieces.cluster.links):
        _add_loads(model, [_link_load(ground, it, it.links[k], link) for it in jobs if k in it.links], makespan)


def _link_load(ground: Ground, it: JobVariables, literal: cp_model.IntVar, link: Link) -> _Load:
    job, channel = it.job, Channel((), link.bandwidth, link.latency_us)
    work = job.iterations * sum(
        max(least, job.transfer_us(b, it.fewest[b - 1], channel)) for b, least in enumerate(it.shortest, 1)
    )
    ready = min(block_us(job, ground.gpu_type(g))[0] for g in it.here)
    return _Load(it.window.release + ready, work * literal, 0, _least_end(it))


def _add_loads(model: cp_model.CpModel, loads: Sequence[_Load], makespan: cp_model.IntVar) -> None:
    """For every head and tail that occurs, the work of all jobs with no smaller ones."""
    for head in sorted({load.head for load in loads}):
        for tail in sorted({load.tail for load in loads}):
            late = [load for load in loads if load.head >= head and load.tail >= tail]
            if late:
                # Where none of them is on the resource there is no work to stand between head and tail.
                around = min(head + tail, max(load.end for load in late))
                model.add(sum(load.work for load in late) + around <= makespan)


def _least_end(it: JobVariables) -> int:
    return it.window.release + it.job.iterations * it.window.iteration


def add_loads_of_period(
    model: cp_model.CpModel, ground: Ground, jobs: Sequence[JobVariables], period: cp_model.IntVar
) -> None:
    """In a plan that repeats, the work on a GPU and the transfers over a link fit into one period."""
    for g in range(len(ground.gpus)):
        model.add(sum(_gpu_load(ground, it, g).work for it in jobs if g in it.here) <= period)
    for k, link in enumerate(ground.pieces.cluster.links):
        model.add(sum(_link_load(ground, it, it.links[k], link).work for it in jobs if k in it.links) <= period)
