"""GPUs of slots, and how long that makes operations (specification: slots, durations-of-task-graph-operations)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_activities.variables import Gpus, TaskGraphVariables

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat_activities.variables import Expression


def add_placement(model: cp_model.CpModel, gpus: Gpus, job_vars: TaskGraphVariables) -> None:
    """Place every slot on one GPU of a type that it may use, slots of a job on different GPUs that routes join.

    `job_vars`: variables of the job; `job_vars.at` and `job_vars.on` are filled in, one entry for each slot.
    """
    for types in job_vars.graph.gpu_types:
        job_vars.at.append({g: model.new_bool_var("") for g in range(len(gpus.all)) if gpus.gpu_type(g) in types})
        model.add_exactly_one(job_vars.at[-1].values())
    for g in range(len(gpus.all)):
        model.add_at_most_one(at[g] for at in job_vars.at if g in at)
    for at in job_vars.at:
        by_server: dict[int, list[cp_model.IntVar]] = {}
        for g, literal in at.items():
            by_server.setdefault(gpus.all[g][0], []).append(literal)
        job_vars.on.append({server: _any_of(model, literals) for server, literals in by_server.items()})
    _add_reach(model, gpus, job_vars)


def _add_reach(model: cp_model.CpModel, gpus: Gpus, job_vars: TaskGraphVariables) -> None:
    """Keep all slots in one connected part; under a policy, let routes that keep it join any two."""
    if job_vars.graph.job.route_policy is not None:
        routes = gpus.routes.under(job_vars.graph.job.route_policy)
        for first, second in combinations(job_vars.on, 2):
            for one, other in product(first, second):
                if one != other and routes.between(one, other) is None:
                    model.add_bool_or([~first[one], ~second[other]])
        return
    component = gpus.routes.component
    if len(set(component)) == 1:
        return
    for first, second in zip(job_vars.on, job_vars.on[1:], strict=False):
        for part in set(component):
            ours, theirs = ([x for s, x in on.items() if component[s] == part] for on in (first, second))
            model.add(sum(ours) == sum(theirs))


def add_order_of_gpus(model: cp_model.CpModel, gpus: Gpus, jobs: Sequence[TaskGraphVariables]) -> None:
    """Break the symmetry of the GPUs of a server: one is used only after the GPU before it.

    A slot is on a GPU only if an earlier slot, of the same or an earlier job, is on the GPU before it on that server.
    """
    slots = [at for job_vars in jobs for at in job_vars.at]
    for number, at in enumerate(slots):
        for g, literal in at.items():
            if gpus.all[g][1] > 0:
                model.add_bool_or([~literal, *(slots[n][g - 1] for n in range(number) if g - 1 in slots[n])])


def add_sizes(model: cp_model.CpModel, gpus: Gpus, job_vars: TaskGraphVariables) -> None:
    """Add the durations of blocks, by the types of their GPUs, and of transfers, by the servers of their slots.

    `job_vars`: variables of the job; `job_vars.size` is filled in, by operation, in microseconds.
    """
    graph = job_vars.graph
    for block in range(graph.blocks):
        job_vars.size.append(_block_size(model, gpus, job_vars, block))
    for operation in range(graph.blocks, graph.size):
        job_vars.size.append(_transfer_size(model, gpus, job_vars, operation))


def _block_size(model: cp_model.CpModel, gpus: Gpus, job_vars: TaskGraphVariables, block: int) -> Expression:
    """Return the duration of a block; no less than on the slowest of its GPUs."""
    table, slots = job_vars.graph.shape.blocks[block].duration_us, job_vars.graph.takes_part[block]
    times = sorted({table[gpus.gpu_type(g)] for slot in slots for g in job_vars.at[slot]})
    if len(times) <= 1:
        # None where no GPU holds the slot, and then no plan is sought.
        return times[0] if times else 0
    size = model.new_int_var(times[0], times[-1], "")
    for slot in slots:
        model.add(size >= sum(table[gpus.gpu_type(g)] * literal for g, literal in job_vars.at[slot].items()))
    return size


def _transfer_size(model: cp_model.CpModel, gpus: Gpus, job_vars: TaskGraphVariables, operation: int) -> Expression:
    """Return the duration of a transfer, and which links it occupies, by the servers of its slots."""
    graph, slots = job_vars.graph, job_vars.graph.takes_part[operation]
    # One literal for each outcome, links and duration; every choice of servers that a route joins implies its own, and
    # `_add_reach` forbids the others.
    outcomes: dict[tuple[tuple[int, ...], int], cp_model.IntVar] = {}
    for servers in product(*(job_vars.on[slot] for slot in slots)):
        channel = graph.channel(operation, servers, gpus.routes)
        if channel is None:
            continue
        outcome = channel.links, graph.transfer_us(operation, channel)
        if outcome not in outcomes:
            outcomes[outcome] = model.new_bool_var("")
        there = [~job_vars.on[slot][server] for slot, server in zip(slots, servers, strict=True)]
        model.add_bool_or([*there, outcomes[outcome]])
    model.add_exactly_one(outcomes.values())
    for link in sorted({link for links, _ in outcomes for link in links}):
        # What takes no time overlaps nothing, wherever it lies.
        literals = [x for (links, size), x in outcomes.items() if link in links and size > 0]
        if literals:
            job_vars.links[operation, link] = _any_of(model, literals)
    times = sorted({size for _, size in outcomes})
    if len(times) <= 1:
        return times[0] if times else 0
    size = model.new_int_var(times[0], times[-1], "")
    model.add(size == sum(time * literal for (_, time), literal in outcomes.items()))
    return size


def _any_of(model: cp_model.CpModel, literals: Iterable[cp_model.IntVar]) -> cp_model.IntVar:
    """Return the literal of one of several of which at most one holds."""
    known = list(literals)
    if len(known) == 1:
        return known[0]
    found = model.new_bool_var("")
    model.add(found == sum(known))
    return found
