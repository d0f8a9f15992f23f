"""Schedules of pipelines: known spans and memory, answers of others, and what a solver finds."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.errors import InfeasibleError, UsageError
from jigsaw_opt.planning.joint import PipelineChoices, plan_pipeline
from jigsaw_opt.planning.joint.less_memory import with_less_memory
from jigsaw_opt.planning.pipeline.asynchronous import asynchronous
from jigsaw_opt.planning.pipeline.costs import AsyncStage, PipelineCosts
from jigsaw_opt.planning.pipeline.list_schedule import makespan_us
from jigsaw_opt.planning.pipeline.named import ORDERS
from jigsaw_opt.planning.pipeline.orders import PipelineLayout
from jigsaw_opt.planning.pipeline.schedule import PipelineSchedule, require_memory, schedule_of
from jigsaw_opt.planning.pipeline.search import names_of, search_schedule
from jigsaw_opt.planning.pipeline.stages import PipelineProblem, held_bytes, peak_bytes
from jigsaw_opt.planning.pipeline.stated import orders_of
from jigsaw_opt.problem.measured.layers import LayerGraph, MeasuredLayer, chain_edges
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from tests.random_pipelines import random_orders, random_pipeline
from tests.refusals import fails, misuse


def even(name: str, gpus: int, batches: int, split: bool = True) -> PipelineProblem:
    """A pipeline of equal stages, each pass a unit; a GPU's share of a micro-batch holds 6 bytes."""
    chunks = {"interleaved": 2, "v-half": 2}.get(name, 1)
    there = tuple(range(gpus))
    layout = PipelineLayout(there + there[::-1] if name == "v-half" else there * chunks, batches, split)
    unit = (1,) * layout.stages
    weights = unit if split else ()
    return PipelineProblem(PipelineCosts(unit, unit, weights, activation_bytes=(6 // chunks,) * layout.stages), layout)


def schedule(name: str, pipeline: PipelineProblem) -> PipelineSchedule:
    return schedule_of(pipeline, ORDERS[name](pipeline.layout), "pipeline", name)


@pytest.mark.parametrize("gpus", [3, 4, 6])
def test_bubbles_are_those_of_the_papers(gpus: int) -> None:
    batches = 3 * gpus
    idle = {
        name: schedule(name, even(name, gpus, batches)).period_us - 3 * batches * chunks
        for name, chunks in {"1f1b": 1, "zb-h1": 1, "zb-h2": 1, "interleaved": 2}.items()
    }
    # ZB-H1 leaves (p - 1)(F + B - W), ZB-H2 nothing; gradients of weights need not be sent back before 1F1B goes on.
    assert idle == {"1f1b": 2 * (gpus - 1), "zb-h1": gpus - 1, "zb-h2": 0, "interleaved": 2 * (gpus - 1)}


@pytest.mark.parametrize("gpus", [3, 4, 6])
def test_memory_is_that_of_the_papers(gpus: int) -> None:
    batches = 4 * gpus
    most = {
        name: max(peak_bytes(even(name, gpus, batches), ORDERS[name](even(name, gpus, batches).layout)))
        for name in ORDERS
    }
    assert most["gpipe"] == 6 * batches
    assert most["1f1b"] == most["zb-h1"] == 6 * gpus
    assert most["zb-h2"] == 6 * (2 * gpus - 1)
    assert most["v-half"] <= 6 * (gpus // 2 + 1)


@pytest.mark.parametrize("name", ORDERS)
def test_every_schedule_is_a_correct_plan(name: str) -> None:
    found = schedule(name, even(name, 4, 8))
    for each in (found.finite, found.cyclic):
        assert check(each.instance, each.plan) == ()
        assert each.bound <= each.objective and each.proof.sentence
    assert found.makespan_us >= found.period_us
    assert 0 <= found.bubble < 1


def test_interleaved_takes_micro_batches_in_groups() -> None:
    with misuse("out-of-range micro_batches"):
        ORDERS["interleaved"](PipelineLayout((0, 1, 2, 3) * 2, 6, False))


def test_memory_that_does_not_suffice_is_said() -> None:
    pipeline = even("1f1b", 3, 6)
    tight = PipelineProblem(pipeline.costs, pipeline.layout, memory=17)
    with fails(InfeasibleError, "1f1b", "18 bytes", "GPU 0", "17"):
        require_memory(tight, ORDERS["1f1b"](tight.layout), "1f1b")


def test_costs_that_do_not_fit_together_are_all_named() -> None:
    with pytest.raises(UsageError) as caught:
        PipelineCosts((1, 2), (1,), transfer_us=(1, 2), weight_bytes=(1, 1))
    assert len(caught.value.args) == 3


@pytest.mark.parametrize("memory", [12, 18])
def test_a_search_is_never_worse_than_a_named_schedule(memory: int) -> None:
    pipeline = PipelineProblem(even("zb-h1", 3, 4).costs, even("zb-h1", 3, 4).layout, memory)
    instance, result = search_schedule(pipeline, "pipeline", "cyclic", Options(work_limit=2.0, threads=1))
    assert result.plan is not None
    assert check(instance, result.plan) == ()
    orders = orders_of(instance, result.plan)
    assert max(peak_bytes(pipeline, orders)) <= memory
    assert sum(map(len, orders)) == 3 * 3 * 4
    if memory == 18:
        assert result.objective <= schedule("zb-h1", pipeline).period_us


def test_times_are_those_of_other_simulations(shared_data: Path) -> None:
    entries = json.loads((shared_data / "pipeline" / "reference_results.json").read_text())["one_f_one_b"]
    for entry in [each for each in entries if each["stages"] * each["microbatches"] <= 32]:
        forward, backward, sent = (
            tuple(round(1000 * t) for t in entry[f"{key}_ms"]) for key in ("fwd", "bwd", "boundary")
        )
        layout = PipelineLayout(tuple(range(entry["stages"])), entry["microbatches"], False)
        for name, delay, key in (
            ("1f1b", sent, "onefoneb_ms"),
            ("1f1b", (), "onefoneb_free_comm_ms"),
            ("gpipe", sent, "gpipe_ms"),
        ):
            costs = PipelineCosts(forward, backward, transfer_us=delay)
            found = schedule(name, PipelineProblem(costs, layout))
            assert found.makespan_us / 1000 == pytest.approx(entry[key], rel=1e-4), (entry["input"], name)


def test_steady_state_has_the_interval_of_the_slowest_stage() -> None:
    stages = [AsyncStage(4, 6, 2, 100, 10), AsyncStage(2, 3, 1, 50, 5), AsyncStage(1, 3, 1, 20, 2)]
    found = asynchronous(stages, "steady")
    assert (found.details.minibatches, found.details.initiation_interval_us, found.plan.period_us) == (2, 5, 10)
    assert found.plan.status == "optimal"
    assert found.details.noam == 4
    assert check(found.instance, found.plan) == ()
    assert found.details.weight_versions[-1] == 1
    assert found.details.peak_bytes == tuple(
        versions * (stage.parameter_bytes + stage.activation_bytes)
        for versions, stage in zip(found.details.weight_versions, stages, strict=True)
    )


def test_equal_stages_need_the_minibatches_of_the_paper() -> None:
    stages = [AsyncStage(1, 2)] * 4
    found = asynchronous(stages, "steady")
    assert (found.details.initiation_interval_us, found.details.in_flight, found.details.noam) == (3, 4, 4)
    assert found.details.weight_versions == (4, 3, 2, 1)


def test_no_initiation_interval_is_shorter() -> None:
    rng = random.Random(5)
    for _ in range(6):
        stages = [
            AsyncStage(rng.randint(1, 40), rng.randint(1, 60), transfer_us=rng.randint(0, 9))
            for _ in range(rng.randint(2, 3))
        ]
        found = asynchronous(stages, "steady")
        solved = solve(found.instance, options=Options(work_limit=2000))
        assert solved.status == "optimal"
        assert solved.plan.period_us == found.details.initiation_interval_us


def test_steady_state_keeps_memory() -> None:
    with fails(InfeasibleError, "stage 0", "200 bytes", "199"):
        asynchronous([AsyncStage(1, 1, 1, 100), AsyncStage(1, 1)], "steady", memory=199)


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
    assert check(found.instance, found.plan) == ()
    held = max(peak_bytes(found.details.pipeline, found.details.orders))
    for name in names_of(found.details.pipeline.layout):
        orders = ORDERS[name](found.details.pipeline.layout)
        shorter = makespan_us(found.details.pipeline, orders) <= found.objective
        assert not shorter or held <= max(peak_bytes(found.details.pipeline, orders))
    assert held < max(peak_bytes(found.details.pipeline, ORDERS["gpipe"](found.details.pipeline.layout)))
