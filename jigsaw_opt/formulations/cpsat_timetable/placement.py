"""Constraints on the GPUs and levels of workers, and all that concerns one job alone (specification: placement)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_timetable.channel import ChannelEncoding, add_channel, add_links, encode_maximum
from jigsaw_opt.formulations.cpsat_timetable.levels import add_depth_rule, level_literals
from jigsaw_opt.formulations.cpsat_timetable.timing import add_durations, add_exchanges, add_iterations, add_readiness
from jigsaw_opt.formulations.cpsat_timetable.variables import JobVariables, add_any
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.network import RoutedNetwork
from jigsaw_opt.formulations.timetable.order_encoding import encoded_value
from jigsaw_opt.formulations.timetable.variables import tight_gpus
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


def add_memory(model: cp_model.CpModel, eligibility: GpuEligibility, jobs: Sequence[JobVariables]) -> None:
    """Fit the workers on a GPU into its memory (specification: memory)."""
    for g, inside in tight_gpus(eligibility, jobs):
        _memory_of_gpu(model, g, eligibility.memory(g), inside)


def _memory_of_gpu(model: cp_model.CpModel, g: int, memory: int, inside: Sequence[JobVariables]) -> None:
    """Fit state and largest activations into the memory of a GPU.

    The largest activations take the order encoding of the sizes that occur; a size beyond the memory is one byte too
    many.
    """
    uses = [
        (min(job_vars.job.activation_bytes[d - 1], memory + 1), literal)
        for job_vars in inside
        for levels in job_vars.different_levels(g)
        for d, literal in levels.items()
    ]
    largest = encode_maximum(model, [(0, inside[0].assigned[g]), *uses])
    state = sum(job_vars.job.state_bytes * job_vars.assigned[g] for job_vars in inside)
    model.add(state + encoded_value(largest.values, largest.steps) <= memory)


def add_job(proto: cp_model.CpModel, network: RoutedNetwork, job_vars: JobVariables) -> ChannelEncoding:
    """Add the variables and constraints of one job, and return the rate and latency of its transfers."""
    add_placement(proto, network.eligibility, job_vars)
    add_levels(proto, job_vars)
    add_iterations(proto, job_vars)
    add_links(proto, network, job_vars)
    channel = add_channel(proto, network, job_vars)
    durations = add_durations(proto, job_vars, channel)
    add_exchanges(proto, job_vars, durations)
    add_readiness(proto, network.eligibility, job_vars, durations)
    return channel
