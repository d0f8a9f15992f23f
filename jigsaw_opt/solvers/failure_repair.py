"""A plan repaired where parts of the cluster have failed: jobs may move to what is left."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jigsaw_opt.checking import violations
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.problem.bound_proof import BoundProof
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan, PlanStatus
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.infeasibility.certain import certain_causes, too_wide
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.resolve import Fix
from jigsaw_opt.solvers.resolve.failures import FailureEffect, FailureEffects, left_of
from jigsaw_opt.solvers.result import Result, Status
from jigsaw_opt.solvers.solve import solve


@dataclass(frozen=True, slots=True)
class FailureRepair:
    """A plan for what is left after a failure.

    `status`: as in `Result`; ``infeasible`` also where no job has a place. `solver`: what solved the rest, or
    ``order kept`` where nothing better was found. `objective, bound`: of the jobs that run; None and 0 without a
    plan. `certified_bound`: as in `Result`, of these jobs. `unplaced`: by name of a job that cannot run at all, why.
    `moved`: jobs that run on other GPUs than before. `instance, plan`: what is left,
    and its plan, which the checker accepts; None without one. `bound_proof`: as in `Result`, of that instance: without
    the jobs that have ended before the failure, which `bound` counts.
    """

    status: Status
    solver: str
    objective: int | None
    bound: int
    unplaced: dict[str, str]
    moved: tuple[str, ...]
    instance: Instance
    plan: Plan | None
    bound_proof: BoundProof | None = None
    certified_bound: int | None = None


def repaired(
    instance: Instance, plan: Plan, effects: FailureEffects, effect: FailureEffect, options: Options
) -> FailureRepair:
    """Repair a plan after a failure.

    `options`: limits, seed, cores. Where jobs have task graphs, ``auto`` solves all jobs anew, and goes on until a
    limit; ``phased`` does after a phased plan.
    """
    cluster = left_of(instance.cluster, effect.failed)
    left, unplaced = _placeable(altered(instance, cluster=cluster))
    result = _solved(left, plan, options) if left.jobs else None
    if left.jobs and result is not None and result.plan is None:
        left, more = _alone(left, plan, options)
        unplaced |= more
        result = _solved(left, plan, options) if more and left.jobs else result
    if result is None or not left.jobs:
        return FailureRepair(Status.INFEASIBLE, "", None, 0, unplaced, (), left, None)
    kept = _order_kept(left, effects, effect)
    if kept is not None and (result.objective is None or kept.objective < result.objective):
        result = _of_order(kept, result)
    moved = _moved(left, plan, result.plan) if result.plan is not None else ()
    found = result.status, result.solver, result.objective, result.bound
    return FailureRepair(*found, unplaced, moved, left, result.plan, result.bound_proof, result.certified_bound)


def _placeable(instance: Instance) -> tuple[Instance, dict[str, str]]:
    """Return the instance without jobs that certainly have no place in it even alone, and why they have none."""
    unplaced: dict[str, str] = {}
    if not instance.cluster.servers:
        return altered(instance, jobs=()), {job.name: "no server is left" for job in instance.jobs}
    while instance.jobs:
        causes = too_wide(instance) or certain_causes(compile_instance(instance))
        alone = {cause.jobs[0]: cause.message for cause in causes if len(cause.jobs) == 1}
        if not alone:
            break
        unplaced |= alone
        instance = altered(instance, jobs=tuple(job for job in instance.jobs if job.name not in alone))
    return instance, unplaced


def _alone(instance: Instance, plan: Plan, options: Options) -> tuple[Instance, dict[str, str]]:
    """Return the same where only a solve of a job alone shows that it has no place."""
    unplaced = {}
    for job in instance.jobs:
        if job in instance.task_graph_jobs or job in instance.policed:
            result = _anew(altered(instance, jobs=(job,)), plan, options)
            if result.status is Status.INFEASIBLE:
                unplaced[job.name] = "; ".join(conflict.message for conflict in result.conflicts) or "it has no plan"
    return altered(instance, jobs=tuple(job for job in instance.jobs if job.name not in unplaced)), unplaced


def _solved(left: Instance, plan: Plan, options: Options) -> Result:
    if left.task_graph_jobs:
        return _anew(left, plan, options)
    names = {job.name for job in left.jobs}
    old = plan if plan.is_phased else plan.with_jobs(tuple(job for job in plan.jobs if job.name in names))
    return solve(left, _method(plan), _asked(plan, options), start=old, fix=Fix())


def _anew(left: Instance, plan: Plan, options: Options) -> Result:
    return solve(left, _method(plan), _asked(plan, options))


def _method(plan: Plan) -> str:
    return "phased" if plan.is_phased else "auto"


def _asked(plan: Plan, options: Options) -> Options:
    """Return the options, for a plan of the same kind as the old one."""
    return options if plan.is_phased else replace(options, listed=True)


def _order_kept(left: Instance, effects: FailureEffects, effect: FailureEffect) -> Plan | None:
    """Return the plan in its order, where it has the jobs that are left and breaks no rule."""
    if effect.objective is None:
        return None
    instance, plan = effects.left(effect.failed)
    if [job.name for job in instance.jobs] != [job.name for job in left.jobs]:
        return None
    plan = replace(plan, instance_sha256=instance_sha256(left))
    return None if violations(left, plan) else plan


def _of_order(kept: Plan, result: Result) -> Result:
    """Return the result with a better plan."""
    status = Status.OPTIMAL if kept.objective <= result.bound else Status.FEASIBLE
    document: PlanStatus = "optimal" if status is Status.OPTIMAL else "feasible"
    plan = replace(kept, bound=result.bound, status=document)
    return replace(result, status=status, solver="order kept", objective=kept.objective, plan=plan)


def _moved(left: Instance, old: Plan, new: Plan) -> tuple[str, ...]:
    before, now = (
        {job.name: job.gpus for _, _, phase in plan.all_phases() for job in phase.jobs} for plan in (old, new)
    )
    return tuple(job.name for job in left.jobs if now[job.name] != before[job.name])
