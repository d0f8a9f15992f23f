"""Which instances solvers of shaped jobs take."""

from __future__ import annotations

from jigsaw_opt.problem.instance import Instance

__all__ = ["mixed"]


def mixed(instance: Instance) -> str | None:
    """Why a solver of jobs of one kind does not take an instance, or None where it does."""
    if instance.shaped and len(instance.shaped) < len(instance.jobs):
        return f"job {instance.shaped[0].name!r} has a shape, and others have none"
    return None
