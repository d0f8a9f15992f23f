"""What is known of the phased plans of an instance before one is made: a bound, and what rules them out."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import FreeDepth, Job
from jigsaw_opt.problem.operations import compile_instance
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.problem.workload import LARGEST
from jigsaw_opt.solvers.bound_tightening import BOUND_WORK
from jigsaw_opt.solvers.bounds import Bound, stronger_bounds
from jigsaw_opt.solvers.bounds.registry import without_moves
from jigsaw_opt.solvers.infeasibility import certain_causes
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Conflict
from jigsaw_opt.solvers.solve_state import first_bound

__all__ = ["bounded_instance", "conflicts_alone", "phased_bound", "with_ample_memory"]

_BOUND_SHARE = 0.1
"""Share of a time limit for the bound."""


def phased_bound(instance: Instance, options: Options, started: float) -> Bound:
    """Return what relaxations prove of phased plans within a second or two, and a share of the time limit.

    Parameters
    ----------
    instance
        The instance, on the finite horizon.
    options
        Options of the solve.
    started
        When it began, on the monotonic clock, in seconds.
    """
    # Some proofs assume that a job stays on its GPUs, so they are left out where one may move.
    if any(job.restart_us is not None for job in instance.jobs):
        options = replace(options, without_bounds=(*options.without_bounds, *without_moves()))
    operations = compile_instance(bounded_instance(instance))
    best = first_bound(operations, options)
    end = math.inf if options.time_limit is None else started + _BOUND_SHARE * options.time_limit

    def stop() -> bool:
        return options.cancel.is_set() or time.monotonic() >= end

    with suppress(OutOfTimeError):
        for bound in stronger_bounds(operations, best.value, BOUND_WORK, stop, options.without_bounds):
            best = bound
    return best


def with_ample_memory(instance: Instance) -> Instance:
    """Return the instance with as much memory on every GPU as a document can state."""
    servers = tuple(altered(server, gpu_memory=LARGEST) for server in instance.cluster.servers)
    return altered(instance, cluster=altered(instance.cluster, servers=servers))


def bounded_instance(instance: Instance) -> Instance:
    """Return the instance whose bounds hold for phased plans: with ample memory and without balance.

    A job that has ended needs no memory any more, so that jobs run in turn that do not fit together. The least total of
    levels of a job that may move is rounded down: its parts may round up where a level costs least.
    """
    return with_ample_memory(_relaxed(instance))


def conflicts_alone(instance: Instance) -> tuple[Conflict, ...]:
    """Return why some job alone has no plan; what rules out plans of several jobs at once does not rule out phases."""
    found: list[Conflict] = []
    fine: set[Job] = set()
    for job in checking_deadline(_relaxed(instance).jobs):
        # Neither name nor weight can rule out a plan, so of jobs that differ in them alone one is enough.
        alike = altered(job, name="", weight=1) if isinstance(job, Job) else None
        if alike is None or alike not in fine:
            models = {job.model: instance.models[job.model]} if isinstance(job, Job) else {}
            causes = certain_causes(compile_instance(altered(instance, jobs=(job,), models=models)))
            found += causes
            if alike is not None and not causes:
                fine.add(alike)
    return tuple(found)


def _relaxed(instance: Instance) -> Instance:
    """Return the instance without balance: it holds in every period, and many periods add up to any difference."""

    def relaxed(job: Job | TaskGraphJob) -> Job | TaskGraphJob:
        if not isinstance(job, Job) or not isinstance(job.depth, FreeDepth):
            return job
        depth = altered(job.depth, balance=None)
        if job.restart_us is not None:
            most = instance.models[job.model].depth * job.workers * job.iterations
            # The total of levels is a whole number; `int` rounds it down, which relaxes the rule.
            depth = altered(depth, mean_depth=str(Fraction(int(depth.mean(job.workers) * most), most)))
        return altered(job, depth=depth)

    return altered(instance, jobs=tuple(map(relaxed, instance.jobs)))
