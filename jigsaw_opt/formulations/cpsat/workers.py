"""Constraints on the GPUs and levels of workers, and all that concerns one job alone (specification: placement)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat.axis import Axis
from jigsaw_opt.formulations.cpsat.channel import add_channel, add_links
from jigsaw_opt.formulations.cpsat.levels import add_depth_rule, level_literals
from jigsaw_opt.formulations.cpsat.variables import JobVariables, add_any
from jigsaw_opt.formulations.cpsat.worker_timing import add_durations, add_exchanges, add_iterations, add_readiness
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.network import RoutedNetwork
from jigsaw_opt.problem.compiled.critical import candidate_levels

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


def add_placement(model: cp_model.CpModel, eligibility: GpuEligibility, job_vars: JobVariables) -> None:
    """Give the job as many GPUs as slots, all on servers that routes join (specification: placement)."""
    job, name = job_vars.job, job_vars.job.name
    job_vars.assigned = {g: model.new_bool_var(f"{name} on {g}") for g in eligibility.allowed(job)}
    model.add(sum(job_vars.assigned.values()) == job.slots)
    job_vars.used = {
        s: model.new_bool_var(f"{name} uses {s}") for s in sorted({eligibility.server(g) for g in job_vars.assigned})
    }
    for s, used in job_vars.used.items():
        add_any(model, used, job_vars.on_server(eligibility, s))
    if job_vars.on_one_server(eligibility):
        model.add_exactly_one(job_vars.used.values())
    component = eligibility.routes(job).component
    parts = sorted({component[s] for s in job_vars.used})
    if len(parts) > 1:
        _one_part(model, eligibility, job_vars, parts)
    for first, second in eligibility.routes(job).apart(job_vars.used):
        model.add_bool_or([~job_vars.used[first], ~job_vars.used[second]])


def _one_part(
    model: cp_model.CpModel, eligibility: GpuEligibility, job_vars: JobVariables, parts: Sequence[int]
) -> None:
    component = eligibility.routes(job_vars.job).component
    chosen = {part: model.new_bool_var(f"{job_vars.job.name} in part {part}") for part in parts}
    model.add_exactly_one(chosen.values())
    for part, literal in chosen.items():
        inside = [assigned for g, assigned in job_vars.assigned.items() if component[eligibility.server(g)] == part]
        # All workers are in the chosen part, and none in the others.
        model.add(sum(inside) == job_vars.job.slots * literal)


def add_levels(model: cp_model.CpModel, job_vars: JobVariables) -> None:
    """Give every worker one level in every iteration, by the job's depth rule (specification: depth-rules)."""
    candidates, assigned = candidate_levels(job_vars.job), job_vars.assigned
    for _ in range(job_vars.job.iterations):
        job_vars.levels.append({g: level_literals(model, candidates, literal) for g, literal in assigned.items()})
    add_depth_rule(model, job_vars.job, job_vars.levels, assigned)


def add_job(model: cp_model.CpModel, network: RoutedNetwork, job_vars: JobVariables, axis: Axis) -> None:
    """Add the variables and constraints of one job, on a clock of its own where plans repeat."""
    add_placement(model, network.eligibility, job_vars)
    add_levels(model, job_vars)
    add_iterations(model, job_vars)
    add_links(model, network, job_vars)
    job_vars.channel = add_channel(model, network, job_vars)
    durations = add_durations(model, job_vars, job_vars.channel)
    add_exchanges(model, job_vars, durations)
    add_readiness(model, network.eligibility, job_vars, durations)
    if axis.period is not None:
        job_vars.offset = axis.clock(model)
        # The barrier wraps (specification: period).
        model.add(job_vars.ends[-1] <= axis.period)
