"""All rules together."""

from __future__ import annotations

from collections.abc import Iterator

import jigsaw_opt.checking.document as document
from jigsaw_opt.checking.job_rules import of_jobs
from jigsaw_opt.checking.jobs import Pairing
from jigsaw_opt.checking.memory import memory
from jigsaw_opt.checking.phases import repeated_phases
from jigsaw_opt.checking.promises import promises
from jigsaw_opt.checking.violation import RULES, Violation
from jigsaw_opt.documents import validate
from jigsaw_opt.errors import require_a
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
        A plan, however damaged: what is missing or unknown is reported, and what can still be checked
        is checked.

    Returns
    -------
    tuple of Violation
        In the order of the rules; empty for a correct plan.

    Raises
    ------
    InvalidInputError
        The instance breaks a rule of the document; with every problem and its path.
    UsageError
        One of them is something else, such as the name of a file.
    """
    require_a(Plan, plan)
    return violations(validate(instance), plan)


def violations(instance: Instance, plan: Plan) -> tuple[Violation, ...]:
    """What `check` lists, of an instance that is known to be valid."""
    found = repeated_phases(instance, plan) if plan.is_phased else _only_phase(instance, plan)
    return tuple(sorted(found, key=lambda violation: RULES.index(violation.rule)))


def _only_phase(instance: Instance, plan: Plan) -> Iterator[Violation]:
    cluster, jobs = instance.cluster, Pairing(instance).of(instance.jobs, plan.jobs)
    # Without a usable period, what overlaps on the plain time axis is still an overlap.
    cyclic = instance.horizon == "cyclic" and plan.period_us is not None and plan.period_us >= 1
    period_us = plan.period_us if cyclic else None
    for job in jobs:
        yield from promises(job, period_us)
    yield from of_jobs(jobs, cluster, period_us)
    yield from memory(jobs, cluster, period_us)
    yield from document.objective(instance, plan, {job.job.name: job.end_us for job in jobs if job.is_whole})
    yield from document.bound(plan)
    yield from document.belonging(instance, plan)
    yield from document.period(instance, plan)
