"""Task-graph jobs: GPUs of slots, how long that makes operations, and what these wait for.

Specification: slots, durations-of-task-graph-operations, edges-and-barrier.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, product
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat.parts import add_order_of_parts
from jigsaw_opt.formulations.cpsat.variables import Axis, ModuloAxis, TaskGraphVariables
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.loads import Load

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat.variables import Expression


def add_placement(model: cp_model.CpModel, eligibility: GpuEligibility, job_vars: TaskGraphVariables) -> None:
    """Place every slot on one GPU of a type that it may use, slots of a job on different GPUs that routes join.

    `job_vars`: variables of the job; `job_vars.at` and `job_vars.on` are filled in, one entry for each slot.
    """
    for types in job_vars.graph.gpu_types:
        allowed = [g for g in range(len(eligibility.gpus)) if eligibility.gpu_type(g) in types]
        job_vars.at.append({g: model.new_bool_var("") for g in allowed})
        model.add_exactly_one(job_vars.at[-1].values())
    for g in range(len(eligibility.gpus)):
        model.add_at_most_one(at[g] for at in job_vars.at if g in at)
    for at in job_vars.at:
        by_server: dict[int, list[cp_model.IntVar]] = {}
        for g, literal in at.items():
            by_server.setdefault(eligibility.server(g), []).append(literal)
        job_vars.on.append({server: _any_of(model, literals) for server, literals in by_server.items()})
    _add_reach(model, eligibility, job_vars)


def _add_reach(model: cp_model.CpModel, eligibility: GpuEligibility, job_vars: TaskGraphVariables) -> None:
    """Keep all slots in one connected part; under a policy, let routes that keep it join any two."""
    if job_vars.graph.job.route_policy is not None:
        routes = eligibility.operations.routes.under(job_vars.graph.job.route_policy)
        for first, second in combinations(job_vars.on, 2):
            for one, other in product(first, second):
                if one != other and routes.between(one, other) is None:
                    model.add_bool_or([~first[one], ~second[other]])
        return
    component = eligibility.operations.routes.component
    if len(set(component)) == 1:
        return
    for first, second in zip(job_vars.on, job_vars.on[1:], strict=False):
        for part in set(component):
            ours, theirs = ([x for s, x in on.items() if component[s] == part] for on in (first, second))
            model.add(sum(ours) == sum(theirs))


def add_sizes(model: cp_model.CpModel, eligibility: GpuEligibility, job_vars: TaskGraphVariables) -> None:
    """Add the durations of blocks, by the types of their GPUs, and of transfers, by the servers of their slots.

    `job_vars`: variables of the job; `job_vars.size` is filled in, by operation, in microseconds.
    """
    graph = job_vars.graph
    for block in range(graph.blocks):
        job_vars.size.append(_block_size(model, eligibility, job_vars, block))
    for operation in range(graph.blocks, graph.size):
        job_vars.size.append(_transfer_size(model, eligibility, job_vars, operation))


def _block_size(
    model: cp_model.CpModel, eligibility: GpuEligibility, job_vars: TaskGraphVariables, block: int
) -> Expression:
    """Return the duration of a block; no less than on the slowest of its GPUs."""
    table, slots = job_vars.graph.shape.blocks[block].duration_us, job_vars.graph.takes_part[block]
    times = sorted({table[eligibility.gpu_type(g)] for slot in slots for g in job_vars.at[slot]})
    if len(times) <= 1:
        # None where no GPU holds the slot, and then no plan is sought.
        return times[0] if times else 0
    size = model.new_int_var(times[0], times[-1], "")
    for slot in slots:
        model.add(size >= sum(table[eligibility.gpu_type(g)] * literal for g, literal in job_vars.at[slot].items()))
    return size


def _transfer_size(
    model: cp_model.CpModel, eligibility: GpuEligibility, job_vars: TaskGraphVariables, operation: int
) -> Expression:
    """Return the duration of a transfer, and which links it occupies, by the servers of its slots."""
    graph, slots = job_vars.graph, job_vars.graph.takes_part[operation]
    # One literal for each outcome, links and duration; every choice of servers that a route joins implies its own, and
    # `_add_reach` forbids the others.
    outcomes: dict[tuple[tuple[int, ...], int], cp_model.IntVar] = {}
    for servers in product(*(job_vars.on[slot] for slot in slots)):
        channel = graph.channel(operation, servers, eligibility.operations.routes)
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


def add_starts(model: cp_model.CpModel, job_vars: TaskGraphVariables, axis: Axis) -> None:
    """Add a start for every operation of every iteration, not before the release.

    `job_vars`: variables of the job; `job_vars.starts` is filled in, by iteration and operation.
    """
    # A start waits for a chain of others, and each of these adds less than two periods.
    most = 2 * job_vars.graph.size * job_vars.graph.job.iterations
    for _ in range(job_vars.graph.job.iterations):
        job_vars.starts.append(
            [axis.start(model, job_vars.graph.job.release_us, most) for _ in range(job_vars.graph.size)]
        )


def add_waits(model: cp_model.CpModel, job_vars: TaskGraphVariables, axis: Axis) -> None:
    """Require that operations keep to edges and barriers (specification: edges-and-barrier)."""
    graph = job_vars.graph
    most = 2 * graph.size * graph.job.iterations
    rows = [
        [*starts, *(axis.start(model, graph.job.release_us, most) for _ in range(graph.milestones))]
        for starts in job_vars.starts
    ]
    sizes = [*job_vars.size, *(0 for _ in range(graph.milestones))]
    for (first, before), (later, after), periods in graph.precedences(axis.horizon):
        one, other = rows[first][before], rows[later][after]
        model.add(other.start + axis.later(periods) >= one.start + sizes[before])
        if isinstance(axis, ModuloAxis) and one is not other:
            # It follows, for residues are less than a period; the engine's relaxation gains by it.
            model.add(other.turns + periods >= one.turns)


def add_task_graph(
    model: cp_model.CpModel, eligibility: GpuEligibility, job_vars: TaskGraphVariables, axis: Axis
) -> None:
    """Add the variables and constraints of one job."""
    add_placement(model, eligibility, job_vars)
    add_sizes(model, eligibility, job_vars)
    add_starts(model, job_vars, axis)
    add_waits(model, job_vars, axis)
    add_order_of_parts(model, job_vars)


def slots_load(graph_vars: TaskGraphVariables, g: int, gpu_type: str) -> Load:
    """Return the least load of a task-graph job on a GPU, by the slots that it holds."""
    graph, work = graph_vars.graph, []
    for at, blocks in zip(graph_vars.at, graph.blocks_of, strict=True):
        if g in at:
            times = (graph.shape.blocks[block].duration_us[gpu_type] for block in blocks)
            work.append(graph.job.iterations * sum(times) * at[g])
    return Load(graph.job.release_us, sum(work), 0, graph.job.release_us)
