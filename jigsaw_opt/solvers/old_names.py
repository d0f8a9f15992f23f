"""Functions of the release before, which are other calls now; kept for one release."""

from __future__ import annotations

from typing import Any

from jigsaw_opt.errors import require_a
from jigsaw_opt.problem import Instance
from jigsaw_opt.solvers.resolve import Fix
from jigsaw_opt.solvers.resolve.failed_parts import KINDS
from jigsaw_opt.solvers.resolve.failures import each_failure
from jigsaw_opt.solvers.resolve.phase_failures import effects_on
from jigsaw_opt.solvers.solve import solve

__all__ = ["failure_effects", "resolve", "resolve_phased", "solve_any", "solve_phased", "validate"]


def solve_any(instance: Any, options: Any = None, report: Any = None) -> Any:
    """Return what ``solve(instance, options=options, on_event=report)`` does."""
    return solve(instance, options=options, on_event=report)


def solve_phased(instance: Any, options: Any = None) -> Any:
    """Return what ``solve(instance, "phased", options)`` does."""
    return solve(instance, "phased", options)


def resolve(instance: Any, plan: Any, fix: Any = None, options: Any = None, report: Any = None) -> Any:
    """Return what ``solve(instance, options=options, start=plan, fix=fix or Fix(), on_event=report)`` does."""
    return solve(instance, options=options, start=plan, fix=Fix() if fix is None else fix, on_event=report)


def resolve_phased(instance: Any, plan: Any, fix: Any = None, options: Any = None) -> Any:
    """Return what ``solve(instance, "phased", options, start=plan, fix=fix or Fix())`` does."""
    return solve(instance, "phased", options, start=plan, fix=Fix() if fix is None else fix)


def failure_effects(instance: Any, plan: Any, kinds: Any = KINDS, pairs: bool = False) -> Any:
    """Return what ``each_failure(effects_on(instance, plan), kinds, pairs)`` does."""
    return each_failure(effects_on(instance, plan), kinds, pairs)


def validate(instance: Any) -> Any:
    """Return the instance, which checked itself when it was made."""
    require_a(Instance, instance)
    return instance
