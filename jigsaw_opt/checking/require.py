"""Refusing plans that break a rule, by whatever shows them or carries them out."""

from __future__ import annotations

from jigsaw_opt.arguments import typed
from jigsaw_opt.checking.checker import violations
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.errors import CheckFailedError
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.text import counted


@typed
def require_correct(instance: Instance, plan: Plan, source: str = "the plan", more: str = "") -> None:
    """Refuse a plan that breaks a rule, with the first of them.

    `source`: what the plan is called. `more`: what the message ends with.
    """
    broken = violations(instance, plan)
    if broken:
        told = f"is wrong in {counted(len(broken), 'place')}, first {broken[0]}{more}"
        raise CheckFailedError(f"{source} {of_another(instance, plan) or told}")


def of_another(instance: Instance, plan: Plan) -> str | None:
    """Return that a plan is of another instance, by name and content; None where it claims to be of this one."""
    if plan.instance == instance.name or plan.instance_sha256 == instance_sha256(instance):
        return None
    return f"is a plan of instance {plan.instance!r}, not of {instance.name!r}"
