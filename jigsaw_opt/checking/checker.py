"""All rules together."""

from __future__ import annotations

from collections.abc import Iterator

import jigsaw_opt.checking.document as document
import jigsaw_opt.checking.lanes as lanes
import jigsaw_opt.checking.placement as placement
import jigsaw_opt.checking.timing as timing
from jigsaw_opt.checking.depth import depth
from jigsaw_opt.checking.jobs import pair_up
from jigsaw_opt.checking.memory import memory
from jigsaw_opt.checking.promises import promises
from jigsaw_opt.checking.shaped import CheckedShapedJob, shaped
from jigsaw_opt.checking.violation import RULES, Violation
from jigsaw_opt.documents import validate
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan

__all__ = ["check", "violations"]


def check(instance: Instance, plan: Plan) -> tuple[Violation, ...]:
    """List every broken rule (specification: correct-plan).

    Parameters
    ----------
    instance
        What the plan is for.
    plan
        Any plan, however damaged: what is missing or unknown is reported, and what can still be checked is checked.

    Returns
    -------
    tuple of Violation
        In the order of the rules; empty for a correct plan.

    Raises
    ------
    InvalidInputError
        The instance breaks a rule of the document; with every problem and its path.
    """
    return violations(validate(instance), plan)


def violations(instance: Instance, plan: Plan) -> tuple[Violation, ...]:
    """What `check` lists, of an instance that is known to be valid."""
    return tuple(sorted(_violations(instance, plan), key=lambda violation: RULES.index(violation.rule)))


def _violations(instance: Instance, plan: Plan) -> Iterator[Violation]:
    cluster, jobs = instance.cluster, pair_up(instance, plan)
    # Without a usable period, what overlaps on the plain time axis is still an overlap.
    cyclic = instance.horizon == "cyclic" and plan.period_us is not None and plan.period_us >= 1
    period_us = plan.period_us if cyclic else None
    for job in jobs:
        yield from promises(job, period_us)
        if isinstance(job, CheckedShapedJob):
            yield from shaped(job, cluster, period_us)
            continue
        yield from document.contents(job)
        yield from placement.placement(job, cluster)
        yield from depth(job)
        yield from timing.timing(job)
        if period_us is not None:
            yield from timing.wrap(job, period_us)
    yield from lanes.overlaps(jobs, cluster, period_us)
    yield from memory(jobs, cluster, period_us)
    yield from document.objective(instance, plan, jobs)
    yield from document.bound(plan)
    yield from document.belonging(instance, plan)
    yield from document.period(instance, plan)
