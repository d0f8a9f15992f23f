"""A joint plan beside named schedules: on the same cuts, and on those that a partition makes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jigsaw_opt.planning.joint.cut_search import balanced_cut
from jigsaw_opt.planning.joint.planning import CutPipeline
from jigsaw_opt.planning.joint.stage_table import stage_table
from jigsaw_opt.planning.partition.costs import Level
from jigsaw_opt.planning.partition.positions import positions_of
from jigsaw_opt.planning.partition.result import OuterStage, Partition, Stage
from jigsaw_opt.planning.pipeline.list_schedule import makespan_us
from jigsaw_opt.planning.pipeline.named import ORDERS
from jigsaw_opt.planning.pipeline.orders import Orders
from jigsaw_opt.planning.pipeline.search import names_of
from jigsaw_opt.planning.pipeline.stages import PipelineProblem, peak_bytes
from jigsaw_opt.problem.measured.layers import input_bytes_of

_NO_TIME = 2**53 - 1
"""Bytes per second where sending takes no time."""


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A schedule with its figures.

    `makespan_us`: length of a step, in microseconds. `bubble`: mean share of the step that devices are idle.
    `peak_bytes`: for each device, the most that is held at once. `fits`: whether that is within the memory.
    """

    name: str
    makespan_us: int
    bubble: float
    peak_bytes: tuple[int, ...]
    fits: bool


def rows_of(plan: CutPipeline) -> list[ScheduleRow]:
    """Return the named schedules for the cuts of a plan, and last the plan itself."""
    pipeline = plan.pipeline
    named = {name: ORDERS[name](pipeline.layout) for name in names_of(pipeline.layout)}
    return [_row(pipeline, name, orders) for name, orders in {**named, "found": plan.orders}.items()]


def baseline_us(plan: CutPipeline, name: str) -> int | None:
    """Return the step of a named schedule on the balanced cut: its slowest stage takes least time.

    Microseconds; None where no such schedule fits into the memory.

    `name`: name of the schedule, which has two stages a device if it has to; ``slowest-stage`` for the shortest one of
    those with a single stage.
    """
    there = tuple(range(plan.table.choices.devices))
    gpu_of = {"interleaved": there * 2, "v-half": there + there[::-1]}.get(name, there)
    configuration = plan.table.configuration
    layout = replace(configuration.layout, gpu_of=gpu_of)
    positions, choices = plan.table.positions, plan.table.choices
    table = stage_table(positions, choices, replace(configuration, layout=layout))
    cut = balanced_cut(table)
    if cut is None:
        return None
    pipeline = table.problem(cut)
    names = names_of(layout) if name == "slowest-stage" else [name]
    rows = [row for order in names if (row := _row(pipeline, order, ORDERS[order](layout))).fits]
    return min((row.makespan_us for row in rows), default=None)


def step_range_us(plan: CutPipeline) -> tuple[int, int] | None:
    """Return the step of a plan where each layer takes its least time, and where each takes its greatest.

    The order of the passes stays as it is, so that no step with times of these ranges lies outside. A layer without
    ranges takes its stated time.

    Microseconds; None where no layer has a range.
    """
    table = plan.table
    if (ends := table.positions.graph.ends) is None:
        return None
    low, high = (
        makespan_us(stage_table(positions_of(graph), table.choices, table.configuration).problem(plan.cut), plan.orders)
        for graph in ends
    )
    return low, high


def partition_of(plan: CutPipeline) -> Partition:
    """Return the stages of a plan as a partition, one level of machines.

    Without a bandwidth sending takes no time, and the partition says that nothing is paid for it.
    """
    choices, positions = plan.table.choices, plan.table.positions
    stages = tuple(_stage(plan, number) for number in range(len(plan.cut.ends)))
    slowest = max(stage.time_s for stage in stages)
    rate = choices.bandwidth or _NO_TIME
    alone = sum(stage.compute_s for stage in stages)
    parameters = sum(stage.parameter_bytes for stage in stages)
    # Data parallelism on all devices, by the formula of PipeDream's partitioner: the exchange takes 4 (n - 1) / n of
    # the parameters.
    exchanged = 4 * (choices.devices - 1) * parameters / (rate * choices.devices)
    return Partition(
        "released",
        choices.bandwidth is not None,
        (Level(choices.devices, rate),),
        slowest,
        (alone + exchanged) / choices.devices,
        alone,
        stages,
        tuple(OuterStage(1, (number, number + 1), 1, stage.time_s) for number, stage in enumerate(stages)),
        choices.devices,
        len(positions.layers) - 1,
        choices.latency_us,
    )


def _stage(plan: CutPipeline, number: int) -> Stage:
    table, span = plan.table, plan.cut.spans[number]
    positions, last = table.positions, number == len(plan.cut.ends) - 1
    forward, whole = int(table.forward_us[span]), int(table.backward_us[span] + table.weight_us[span])
    parameters = int(table.static_bytes[span]) // positions.graph.state_factor
    again = plan.cut.recomputes[number]
    own = positions.names(*span)
    inputs = input_bytes_of(layer for layer in positions.graph.layers if layer.name in own)
    return Stage(
        own,
        1,
        (forward + whole) / 1e6,
        forward,
        whole,
        parameters,
        int(table.activation_bytes[span]),
        0 if last else int(table.sent_bytes[span[1]]),
        (forward * (1 + again) + whole) / 1e6,
        int(table.static_bytes[span]) - parameters,
        int(table.weight_us[span]) if table.configuration.layout.split else None,
        again,
        None if inputs is None else int(table.received_bytes[span] - table.sent_bytes[span[0]]),
    )


def _row(pipeline: PipelineProblem, name: str, orders: Orders) -> ScheduleRow:
    length, peak = makespan_us(pipeline, orders), peak_bytes(pipeline, orders)
    bubble = 1 - sum(pipeline.work_us) / (length * pipeline.layout.gpus)
    return ScheduleRow(name, length, bubble, peak, max(peak) <= pipeline.room)
