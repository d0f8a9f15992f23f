"""All rules together."""

from __future__ import annotations

from jigsaw_opt.arguments import typed
from jigsaw_opt.checking.phases import of_phases
from jigsaw_opt.checking.violation import RULES, Violation
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan


@typed
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
    return violations(instance, plan)


def violations(instance: Instance, plan: Plan) -> tuple[Violation, ...]:
    """List the broken rules of a plan, ordered by rule, of an instance that is known to be valid."""
    instance.require_jobs()
    # `sorted` is stable, so that within a rule violations remain in the order of the plan.
    return tuple(sorted(of_phases(instance, plan), key=lambda violation: RULES.index(violation.rule)))
