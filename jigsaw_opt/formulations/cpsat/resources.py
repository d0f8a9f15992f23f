"""GPUs and links, each for one operation at a time, and power caps (specification: exclusive, power)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import gcd
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat.variables import (
    Axis,
    InstanceVariables,
    JobVariables,
    TaskGraphVariables,
    block_size,
)
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility, block_us
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.power import PowerCap

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


class PowerUse:
    """The watts that blocks draw under each cap of a cluster.

    Modulo a period, every block is laid down twice, a period apart, and lasts at most one. Between one and two periods
    those that run are then the ones that run at that moment of a period, each once, and before and after no others do.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._servers = [server.name for server in cluster.servers]
        self._caps: list[tuple[PowerCap, list[cp_model.IntervalVar], list[int]]]
        self._caps = [(cap, [], []) for cap in cluster.capacities]

    def add(self, server: int, blocks: Sequence[cp_model.IntervalVar], watts: int) -> None:
        """Let blocks on a GPU of a server draw so many watts each."""
        for cap, intervals, demands in self._caps if watts else ():
            if self._servers[server] in cap.servers:
                intervals += blocks
                # What is above the cap is as impossible as what exceeds it by one watt, and keeps the numbers small.
                demands += [min(watts, cap.watts + 1)] * len(blocks)

    def close(self, model: cp_model.CpModel) -> None:
        """State that no more is drawn at any moment than each cap allows."""
        for cap, intervals, demands in self._caps:
            if sum(demands) > cap.watts:
                unit = gcd(*demands)
                model.add_cumulative(intervals, [demand // unit for demand in demands], cap.watts // unit)


def add_blocks_disjoint(instance_vars: InstanceVariables) -> None:
    """Require that blocks on a GPU do not overlap, and that all that run keep to the power caps.

    Notes
    -----
    Specification: exclusive, power.
    """
    model, eligibility, axis = instance_vars.proto, instance_vars.eligibility, instance_vars.axis
    power = PowerUse(eligibility.operations.cluster)
    for g in range(len(eligibility.gpus)):
        blocks: list[cp_model.IntervalVar] = []
        for job_vars in instance_vars.jobs:
            for own, watts in _worker_blocks(model, eligibility, job_vars, g, axis):
                blocks += own
                power.add(eligibility.server(g), own, watts)
        for graph_vars in instance_vars.graphs:
            for own, watts in _slot_blocks(model, graph_vars, g, eligibility.gpu_type(g), axis):
                blocks += own
                power.add(eligibility.server(g), own, watts)
        model.add_no_overlap(blocks)
    power.close(model)


def _worker_blocks(
    model: cp_model.CpModel, eligibility: GpuEligibility, job_vars: JobVariables, g: int, axis: Axis
) -> Iterator[tuple[list[cp_model.IntervalVar], int]]:
    """Yield the intervals of each block that a data-parallel job may have on a GPU, and the watts that it draws.

    One interval of a size to be chosen beats one optional interval for each level.
    """
    literal, gpu_type = job_vars.assigned.get(g), eligibility.gpu_type(g)
    if literal is None:
        return
    for starts, levels in zip(job_vars.starts, job_vars.levels, strict=True):
        size = block_size(model, block_us(job_vars.job, gpu_type), levels[g])
        start = axis.residue(model, job_vars.offset, starts[g], literal)
        yield axis.intervals(model, start, size, literal), job_vars.job.power_w.get(gpu_type, 0)


def _slot_blocks(
    model: cp_model.CpModel, graph_vars: TaskGraphVariables, g: int, gpu_type: str, axis: Axis
) -> Iterator[tuple[list[cp_model.IntervalVar], int]]:
    """Yield the intervals of each block that a task-graph job may have on a GPU, and the watts that it draws."""
    for at, blocks in zip(graph_vars.at, graph_vars.graph.blocks_of, strict=True):
        for row, block in product(graph_vars.starts, blocks) if g in at else ():
            watts = graph_vars.graph.shape.blocks[block].power_w or {}
            intervals = axis.intervals(model, row[block].offset, graph_vars.size[block], at[g])
            yield intervals, watts.get(gpu_type, 0)


def add_transfers_disjoint(instance_vars: InstanceVariables) -> None:
    """Require that transfers over a link do not overlap (specification: exclusive)."""
    model, axis, on_link = instance_vars.proto, instance_vars.axis, dict[int, list["cp_model.IntervalVar"]]()
    contended = _contended_links(instance_vars.jobs, instance_vars.graphs)
    for job_vars in instance_vars.jobs:
        links = contended.intersection(job_vars.links)
        for exchanges in job_vars.exchanges if links else ():
            for b, exchange in enumerate(exchanges, 1):
                start = axis.residue(model, job_vars.offset, exchange.start)
                for link in sorted(links):
                    there = _lasting(model, job_vars, b, job_vars.links[link])
                    if there is not None:
                        own = axis.intervals(model, start, exchange.duration, there, exchange.end)
                        on_link.setdefault(link, []).extend(own)
    for graph_vars in instance_vars.graphs:
        for (operation, link), literal in graph_vars.links.items():
            for row in graph_vars.starts:
                own = axis.intervals(model, row[operation].offset, graph_vars.size[operation], literal)
                on_link.setdefault(link, []).extend(own)
    for intervals in on_link.values():
        model.add_no_overlap(intervals)


def _contended_links(jobs: Sequence[JobVariables], graphs: Sequence[TaskGraphVariables]) -> set[int]:
    """Return the links whose constraints differ: of links that every job uses together, only the first."""
    groups: dict[tuple[object, ...], int] = {}
    shared = {link for graph_vars in graphs for _, link in graph_vars.links}
    for link in sorted({link for job_vars in jobs for link in job_vars.links}):
        literals = (job_vars.links[link].index if link in job_vars.links else None for job_vars in jobs)
        groups.setdefault((*literals, link if link in shared else None), link)
    return set(groups.values())


def _lasting(
    model: cp_model.CpModel, job_vars: JobVariables, bucket: int, literal: cp_model.IntVar
) -> cp_model.IntVar | None:
    """Return the literal that a transfer uses a link for some time: one of no duration overlaps nothing.

    None where the transfer never lasts.

    `bucket`: number of the bucket, from 1.
    """
    latency = job_vars.channel.latency
    if job_vars.job.transfers[bucket - 1].payload_bytes > 0 or latency.values[0] > 0:
        return literal
    if not latency.steps:
        return None
    # An empty payload lasts only where the latency is above its first value, which is 0.
    both = model.new_bool_var("")
    model.add_bool_or([~literal, ~latency.steps[0], both])
    model.add_implication(both, literal)
    model.add_implication(both, latency.steps[0])
    return both
