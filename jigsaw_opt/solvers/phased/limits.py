"""What is known of the phased plans of an instance before one is made: a bound, and what rules them out."""

from __future__ import annotations

import math
import time
from contextlib import suppress

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem.clock import looking
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import FreeDepth, Job
from jigsaw_opt.problem.operations import cut
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.bounds import Bound, stronger_bounds
from jigsaw_opt.solvers.control import first_bound
from jigsaw_opt.solvers.infeasibility import certain_causes
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Conflict
from jigsaw_opt.solvers.stronger import BOUND_WORK

__all__ = ["bounded_instance", "conflicts_alone", "phased_bound"]

_AMPLE = 2**53 - 1
_BOUND_SHARE = 0.1
"""Of a time limit, for the bound."""


def phased_bound(instance: Instance, options: Options, started: float) -> Bound:
    """What relaxations prove within a second or two, and a share of the limit, of phased plans."""
    operations = cut(bounded_instance(instance))
    best = first_bound(operations, options)
    end = math.inf if options.time_limit is None else started + _BOUND_SHARE * options.time_limit

    def stop() -> bool:
        return options.cancel.is_set() or time.monotonic() >= end

    with suppress(OutOfTimeError):
        for bound in stronger_bounds(operations, best.value, BOUND_WORK, stop, options.without_bounds):
            best = bound
    return best


def bounded_instance(instance: Instance) -> Instance:
    """The instance whose bounds hold for phased plans: with ample memory and without balance.

    A job that has ended needs no memory any more, so that jobs run in turn that do not fit together.
    """
    servers = tuple(altered(server, gpu_memory=_AMPLE) for server in instance.cluster.servers)
    return altered(_unbalanced(instance), cluster=altered(instance.cluster, servers=servers))


def conflicts_alone(instance: Instance) -> tuple[Conflict, ...]:
    """Why some job alone has no plan; what rules out plans of several jobs at once does not rule out phases."""
    found: list[Conflict] = []
    fine: set[Job] = set()
    for job in looking(_unbalanced(instance).jobs):
        alike = altered(job, name="", weight=1) if isinstance(job, Job) else None
        if alike is None or alike not in fine:
            models = {job.model: instance.models[job.model]} if isinstance(job, Job) else {}
            causes = certain_causes(cut(altered(instance, jobs=(job,), models=models)))
            found += causes
            if alike is not None and not causes:
                fine.add(alike)
    return tuple(found)


def _unbalanced(instance: Instance) -> Instance:
    """The instance without balance: it holds in every period, and many periods add up to any difference."""
    jobs = tuple(
        altered(job, depth=altered(job.depth, balance=None))
        if isinstance(job, Job) and isinstance(job.depth, FreeDepth)
        else job
        for job in instance.jobs
    )
    return altered(instance, jobs=jobs)
