"""Burst-parallel plans against brute force, the planner's own answers, and costs out of DeepPool's profiles."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jigsaw_opt import burst, solve
from jigsaw_opt.checking import violations
from jigsaw_opt.documents import add_job
from jigsaw_opt.documents.readers.profiles.burst_costs import BurstCosts, BurstLayer, LayerOption, read_burst_costs
from jigsaw_opt.documents.readers.profiles.deeppool import read_deeppool_runs
from jigsaw_opt.errors import InfeasibleError, UsageError
from jigsaw_opt.planning.burst.exact import fastest_plan
from jigsaw_opt.planning.burst.instance import burst_instance
from jigsaw_opt.planning.burst.plan import BurstPlan, BurstVariant, widest_plan
from jigsaw_opt.planning.burst.profiled import BurstSetting, measured_costs, profiled_costs
from jigsaw_opt.problem.instance import Horizon
from jigsaw_opt.problem.measured.layers import LayerGraph, MeasuredLayer, chain_edges
from jigsaw_opt.problem.task_graph import Slot, TaskGraph, TaskGraphBlock, TaskGraphJob
from jigsaw_opt.solvers.options import Options
from tests.refusals import fails, misuse, refuses

exact_plan = partial(fastest_plan, variant="exact")
budget_plan = partial(fastest_plan, variant="budget")


def random_costs(seed: int) -> BurstCosts:
    """Four layers on 1, 2 or 4 GPUs, some of them too short to be under a limit; integers, so that sums are exact."""
    random = Random(f"burst/{seed}")
    layers: list[BurstLayer] = []
    for at in range(4):
        single = random.choice((150, 400, 600, 800))
        options = []
        for gpus in (1, 2, 4):
            forward = single * random.randint(2, 4) // (3 * gpus)
            backward = random.randint(0, 90)
            options.append(LayerOption(gpus, forward + backward, forward, backward, random.randint(0, 80)))
        moved = tuple(tuple(random.choice((0, 60, 200)) * (a != b) for b in range(3)) for a in range(3))
        layers.append(BurstLayer("layer", float(single), tuple(options), moved if at else ()))
    return BurstCosts(4, tuple(layers))


def cost(costs: BurstCosts, choice: tuple[int, ...], limit: float) -> tuple[float, float, bool]:
    """Time, GPU time, and whether every layer keeps the limit, from the definitions alone."""
    time = gpu_time = 0.0
    keeps = True
    for at, (layer, own) in enumerate(zip(costs.layers, choice, strict=True)):
        option = layer.options[own]
        step = option.gpu_us + option.sync_us + (layer.transfer_us[choice[at - 1]][own] if at else 0)
        time, gpu_time = time + step, gpu_time + step * option.gpus
        keeps = keeps and (layer.single_gpu_us <= 300 or step * option.gpus <= limit * layer.single_gpu_us)
    return time, gpu_time, keeps


@pytest.mark.parametrize("limit", [0.6, 0.9, 1.3, 2.0])
@pytest.mark.parametrize("seed", range(12))
def test_plans_agree_with_brute_force(seed: int, limit: float) -> None:
    """Over all choices that keep the limit, by layer or as a budget."""
    costs = random_costs(seed)
    budget = limit * sum(layer.single_gpu_us for layer in costs.layers) + 1e-6
    every = [cost(costs, choice, limit) for choice in product(range(3), repeat=4)]
    kept = [(time, gpu_time) for time, gpu_time, keeps in every if keeps]
    for planner, allowed in ((exact_plan, kept), (budget_plan, [both[:2] for both in every if both[1] <= budget])):
        if not allowed:
            with fails(InfeasibleError, str(limit)):
                planner(costs, limit)
            continue
        plan = planner(costs, limit)
        assert (plan.iteration_us, plan.gpu_us) == min(allowed)
        if planner is exact_plan:
            assert plan.over(limit) == []
        else:
            assert plan.job_amplification is not None and plan.job_amplification <= limit + 1e-9


def test_a_layer_gets_more_gpus_as_far_as_the_limit_allows() -> None:
    options = (LayerOption(1, 1000, 500, 500, 0), LayerOption(2, 900, 450, 450, 0))
    costs = BurstCosts(2, (BurstLayer("conv2d", 1000, options),))
    assert exact_plan(costs, 1.5).gpus_per_layer == [1]
    assert exact_plan(costs, 1.8).gpus_per_layer == [2]
    assert exact_plan(costs, 1.8).idle_share == 0


def test_no_limit_is_no_number() -> None:
    for plan in (exact_plan, budget_plan):
        for limit in (0.0, float("nan"), float("inf")):
            with misuse("out-of-range amplification_limit"):
                plan(random_costs(0), limit)


@pytest.mark.parametrize("horizon", ["finite", "cyclic"])
@pytest.mark.parametrize("seed", range(3))
def test_the_instance_of_a_plan_takes_as_long(seed: int, horizon: Horizon) -> None:
    for plan in (exact_plan(random_costs(seed), 2.0), widest_plan(random_costs(seed))):
        instance = burst_instance(plan, "burst", horizon)
        result = solve(instance, options=Options(work_limit=20, threads=1))
        assert result.status == "optimal"
        assert result.objective == pytest.approx(plan.iteration_us, abs=3 * 6 * len(plan.choice) / 4)
        job = instance.jobs[0]
        assert len(job.shape.slots) == max(plan.gpus_per_layer)  # type: ignore[union-attr]


@pytest.mark.parametrize("variant", ["exact", "budget"])
@pytest.mark.parametrize("seed", range(6))
def test_a_burst_is_planned_in_one_call(seed: int, variant: BurstVariant) -> None:
    found = burst(random_costs(seed), Options(threads=1), variant=variant, limit=3.0)
    assert found.plan is not None and not violations(found.instance, found.plan)
    assert found.bound <= found.plan.objective
    assert found.plan.objective <= found.bound + 6 * len(found.details.choice)
    with misuse("not-together gpus"):
        burst(random_costs(seed), gpus=4)
    with misuse("missing-option gpus"):
        burst([graph(4, 1, 1)], gpus=4)


def test_another_job_fits_into_what_a_burst_leaves() -> None:
    first = BurstLayer("a", 1000, (LayerOption(1, 1000, 400, 600, 0), LayerOption(2, 500, 200, 300, 0)))
    last = BurstLayer("b", 600, (LayerOption(1, 600, 200, 400, 0),), ((0,), (0,)))
    plan = exact_plan(BurstCosts(2, (first, last)), 2.0)
    assert (plan.gpus_per_layer, plan.iteration_us) == ([2, 1], 1100)
    filler = TaskGraph((Slot("gpu"),), (TaskGraphBlock("piece", ("gpu",), {"gpu": 150}),))
    for pieces, period in ((4, 1100), (5, 1250)):
        instance = add_job(burst_instance(plan, "burst", "cyclic"), TaskGraphJob("filler", filler, pieces))
        result = solve(instance, options=Options(work_limit=20, threads=1))
        assert (result.status, result.objective) == ("optimal", period)


def costs_of(folder: Path, answer: dict[str, Any]) -> BurstCosts:
    gpus, rate = answer["gpus"], round(answer["net_bw_bytes_per_us"])
    name = f"costs_{answer['model']}_g{max(2, gpus)}_b{answer['global_batch']}_bw{rate}.json"
    return read_burst_costs((folder / "deeppool" / name).read_bytes()).limited(gpus)


def check(plan: BurstPlan, answer: dict[str, Any]) -> None:
    assert plan.iteration_us / 1e3 == pytest.approx(answer["iter_ms"], rel=1e-6)
    assert plan.gpu_us / 1e3 == pytest.approx(answer["gpu_ms"], rel=1e-6)


def test_plans_are_no_slower_than_answers_of_the_released_planner_that_keep_the_limit(shared_data: Path) -> None:
    folder = shared_data / "pipeline"
    answers = json.loads((folder / "reference_results.json").read_text())["deeppool"]
    assert len(answers) == 136
    for answer in answers:
        costs = costs_of(folder, answer)
        if answer["mode"] == "data_parallel":
            check(widest_plan(costs), answer)
            continue
        exact = exact_plan(costs, answer["amp_limit"])
        if answer.get("exact_under_same_costs"):
            check(exact, answer["exact_under_same_costs"])
        assert exact.over(answer["amp_limit"]) == []
        is_broken = bool(answer.get("planner_layers_over_its_own_limit"))
        assert is_broken or exact.iteration_us <= 1e3 * answer["iter_ms"] * (1 + 1e-6)
        assert exact.job_amplification is not None
        assert budget_plan(costs, exact.job_amplification).iteration_us <= exact.iteration_us * (1 + 1e-12)


CONVOLUTION = 'conv2d{"in_channels":3,"kernel_size":3,"out_channels":4,"padding":1,"stride":2}'
RELU = 'ReLU2d{"inplace":true}'
LINEAR = 'linear{"bias":true,"in_features":64,"out_features":10}'


def run(batch: int, *times: int) -> str:
    names = (f"{CONVOLUTION}[{batch}][3,8,8]", f"{RELU}[{batch}][4,4,4]", f"{RELU}[{batch}][4,4,4]")
    layers = (*names, f"{LINEAR}[{batch}]64")
    return "".join(f"{layer} {time / 1000} {time} 0\n" for layer, time in zip(layers, times, strict=True)) + "SUM 1\n"


PROFILE = run(4, 400, 100, 140, 60) + run(2, 240, 60, 80, 50) + run(1, 150, 40, 50, 45)


def test_costs_follow_from_shapes_and_times() -> None:
    costs = profiled_costs(read_deeppool_runs(PROFILE), BurstSetting(4, 4, 10.0))
    convolution, relu, _, linear = costs.layers
    assert [layer.name for layer in costs.layers] == ["conv2d", "ReLU2d", "ReLU2d", "linear"]
    assert [(option.gpus, option.gpu_us, option.sync_us) for option in convolution.options] == [
        (1, 400, 0),
        (2, 240, pytest.approx(3 * 4 * 9 * 4 / 10)),
        (4, 150, pytest.approx(3 * 4 * 9 * 4 / 10)),
    ]
    assert convolution.transfer_us == ()
    assert linear.options[1].sync_us == pytest.approx(650 * 4 / 10)
    assert linear.transfer_us[0] == pytest.approx((0, 2 * (2 * 64 * 4 / 10 + 40), 2 * (3 * 64 * 4 / 10 + 40)))
    assert relu.transfer_us[2][1] == pytest.approx(1000 * 2 * (64 * 4 / 10 + 40))
    assert [layer.single_gpu_us for layer in costs.layers] == [400, 100, 140, 60]


def graph(batch: int | None, *times: int, **options: Any) -> LayerGraph:
    names = [MeasuredLayer(f"n{at}", time, time, 100 * at, 1, None, 40 * (batch or 1)) for at, time in enumerate(times)]
    return LayerGraph(tuple(names), chain_edges(len(names)), batch, **options)


def test_costs_follow_from_layer_profiles_of_several_batches() -> None:
    graphs = [graph(4, 200, 70), graph(1, 80, 50, gpu_type="a100"), graph(2, 120, 60)]
    first, last = measured_costs(graphs, BurstSetting(4, 4, 10.0)).layers
    assert [(option.gpus, option.gpu_us, option.forward_us, option.sync_us) for option in last.options] == [
        (1, 140, 70, 0),
        (2, 120, 60, 100 / 10),
        (4, 100, 50, 100 / 10),
    ]
    assert first.transfer_us == () and [option.sync_us for option in first.options] == [0, 0, 0]
    assert last.transfer_us[2] == pytest.approx((2 * (3 * 40 / 10 + 40), 2 * (40 / 10 + 40), 0))
    assert [layer.single_gpu_us for layer in (first, last)] == [400, 140]


def test_layer_profiles_that_are_none_of_one_chain_are_refused() -> None:
    branching = replace(graph(2, 1, 1), edges=())
    other = replace(graph(2, 1, 2), gpu_type="b", layers=graph(2, 1).layers)
    with pytest.raises(UsageError) as caught:
        measured_costs([graph(None, 1, 1, gpu_type="a"), branching, other], BurstSetting(4, 4, 10.0))
    for told in ("does not say", "the same batch: 2, 2", "different layers", "GPUs: a, b", "branch"):
        assert told in str(caught.value)
    with misuse("unknown-value batch"):
        measured_costs([graph(8, 1, 1)], BurstSetting(4, 4, 10.0))


def test_a_batch_too_large_for_one_gpu_takes_it_several_times() -> None:
    large, small = (
        profiled_costs(read_deeppool_runs(PROFILE), BurstSetting(gpus, batch, 10.0)).layers[0]
        for gpus, batch in ((16, 16), (3, 4))
    )
    assert [[option.gpus for option in layer.options] for layer in (large, small)] == [[4, 8, 16], [1, 2]]
    assert large.single_gpu_us == 4 * 400
    with misuse("unknown-value batch"):
        profiled_costs(read_deeppool_runs(PROFILE), BurstSetting(2, 64, 10.0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PROFILE + run(2, 1, 1, 1, 1), "duplicate-name layers.prof:16"),
        (PROFILE + f"{RELU}[8][4,4,4] 1 1 1\n", "mismatch layers.prof:16"),
        ("SUM 1\n", "empty layers.prof"),
        (PROFILE.replace("conv2d", "conv9d", 1), "malformed layers.prof:1"),
    ],
)
def test_wrong_profiles_are_named(text: str, message: str) -> None:
    with refuses(message):
        read_deeppool_runs(text)
