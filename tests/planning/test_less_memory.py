"""Of plans that are as short, the one that holds least at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.planning.joint import PipelineChoices, plan_pipeline
from jigsaw_opt.planning.joint.less_memory import with_less_memory
from jigsaw_opt.planning.pipeline.orders import ORDERS, PipelineLayout
from jigsaw_opt.planning.pipeline.schedule import held_bytes, makespan_us, peak_bytes
from jigsaw_opt.planning.pipeline.search import names_of
from jigsaw_opt.planning.pipeline.stages import PipelineCosts, PipelineProblem
from jigsaw_opt.problem.measured.layers import LayerGraph, MeasuredLayer, chain_edges
from jigsaw_opt.solvers.options import Options
from tests.random_pipelines import random_orders, random_pipeline


def never() -> bool:
    """The search goes on to its end."""
    return False


@pytest.mark.parametrize("seed", range(12))
def test_orders_hold_no_more_and_are_no_longer(seed: int) -> None:
    drawn = random_pipeline(seed)
    count = drawn.layout.stages
    kept = replace(drawn.costs, static_bytes=(3,) * count, activation_bytes=tuple(range(4, 4 + count)))
    pipeline, orders = replace(drawn, costs=kept), random_orders(drawn, seed)
    before, stated = max(peak_bytes(pipeline, orders)), [list(order) for order in orders]
    found = with_less_memory(pipeline, orders, never)
    assert makespan_us(pipeline, found) <= makespan_us(pipeline, orders)
    assert max(peak_bytes(pipeline, found)) == max(map(max, held_bytes(pipeline, found))) <= before
    assert orders == stated, "what is given stays as it is"
    assert [sorted(order) for order in found] == [sorted(order) for order in orders]


def test_more_than_1f1b_is_not_held_for_nothing() -> None:
    layout = PipelineLayout((0, 1, 2), 9, False)
    pipeline = PipelineProblem(PipelineCosts((10,) * 3, (20,) * 3, activation_bytes=(7,) * 3), layout)
    held = {name: max(peak_bytes(pipeline, ORDERS[name](layout))) for name in ("gpipe", "1f1b")}
    assert held == {"gpipe": 63, "1f1b": 21}
    assert max(peak_bytes(pipeline, with_less_memory(pipeline, ORDERS["gpipe"](layout), never))) == 21


@pytest.mark.parametrize("weight_us", [None, 9])
def test_a_plan_holds_no_more_than_a_named_schedule_that_is_no_longer(weight_us: int | None) -> None:
    layers = tuple(MeasuredLayer(f"n{at}", 10 + at % 3, 25, 5, 100, weight_us, 10) for at in range(6))
    graph = LayerGraph(layers, chain_edges(6))
    found = plan_pipeline(graph, PipelineChoices(2, (8,), bandwidth=10_000_000), Options(work_limit=2, threads=1))
    assert check(found.instance, found.plan) == () and found.plan.objective == found.makespan_us
    held = max(peak_bytes(found.pipeline, found.orders))
    for name in names_of(found.pipeline.layout):
        orders = ORDERS[name](found.pipeline.layout)
        shorter = makespan_us(found.pipeline, orders) <= found.makespan_us
        assert not shorter or held <= max(peak_bytes(found.pipeline, orders))
    assert held < max(peak_bytes(found.pipeline, ORDERS["gpipe"](found.pipeline.layout)))
