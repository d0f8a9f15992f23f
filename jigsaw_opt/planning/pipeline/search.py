"""The best schedule that a solver finds for a pipeline, from named schedules on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jigsaw_opt.planning.pipeline.orders import ORDERS, Orders, PipelineLayout
from jigsaw_opt.planning.pipeline.schedule import peak_bytes, timetable_of_orders
from jigsaw_opt.planning.pipeline.stages import PipelineProblem, pipeline_instance
from jigsaw_opt.problem.instance import Horizon, Instance
from jigsaw_opt.solvers.listed import offering, solve_listed
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Event, Result

__all__ = ["fitting", "names_of", "search_schedule"]


def search_schedule(
    pipeline: PipelineProblem,
    name: str,
    horizon: Horizon,
    options: Options,
    report: Callable[[Event], None] | None = None,
    first: Sequence[Orders] = (),
) -> tuple[Instance, Result]:
    """Solve the instance of a pipeline with `auto`, from all named schedules that fit its layout and memory.

    The instance, and what `auto` says of it; never worse than a named schedule, or than `first`.
    """
    instance = pipeline_instance(pipeline, name, horizon)
    # `auto` keeps the best of its first plans, so that its result is never worse than any of them.
    known = (*first, *fitting(pipeline).values())
    starts = [timetable_of_orders(pipeline, instance, orders) for orders in known]
    return instance, solve_listed(instance, "auto", options, report, offering(starts))


def fitting(pipeline: PipelineProblem) -> dict[str, Orders]:
    """Return by name the orders of the schedules for a pipeline's layout that its memory suffices for."""
    layout, found = pipeline.layout, {}
    for name in names_of(layout):
        orders = ORDERS[name](layout)
        if max(peak_bytes(pipeline, orders)) <= pipeline.room:
            found[name] = orders
    return found


def names_of(layout: PipelineLayout) -> list[str]:
    """Return the names of the schedules for a layout."""
    if layout.stages == layout.gpus:
        return ["gpipe", "1f1b", *(["zb-h1", "zb-h2"] if layout.split else [])]
    there = tuple(range(layout.gpus))
    if layout.gpu_of == there + there[::-1]:
        return ["v-half"]
    wrapped = layout.gpu_of == there * layout.chunks
    return ["interleaved"] if wrapped and layout.micro_batches % layout.gpus == 0 else []
