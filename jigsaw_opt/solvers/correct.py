"""No plan leaves unchecked: the one place where a plan that was made here is refused."""

from __future__ import annotations

from jigsaw_opt.checking import violations
from jigsaw_opt.errors import WrongPlanError
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.text import counted

_SHOWN = 5
"""Broken rules that an error shows: more would hide the first, which mostly causes the others."""


def require_correct(instance: Instance, plan: Plan, maker: str) -> None:
    """Check a plan that was made here."""
    broken = violations(instance, plan)
    if broken:
        shown = "; ".join(map(str, broken[:_SHOWN]))
        raise WrongPlanError(f"{maker} made a plan that is wrong in {counted(len(broken), 'place')}: {shown}")
