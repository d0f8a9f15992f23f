"""Burst-parallel plans: both variants against brute force, the planner's own answers, and the instance of a plan."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jigsaw_opt import solve
from jigsaw_opt.documents import add_job
from jigsaw_opt.documents.readers.profiles.burst_costs import BurstCosts, BurstLayer, LayerOption, read_burst_costs
from jigsaw_opt.errors import InfeasibleError, InvalidInputError
from jigsaw_opt.planning.burst import BurstPlan, budget_plan, burst_instance, exact_plan, released_plan, widest_plan
from jigsaw_opt.problem.instance import Horizon
from jigsaw_opt.problem.task_graph import Slot, TaskGraph, TaskGraphBlock, TaskGraphJob
from jigsaw_opt.solvers.options import Options
from tests.refusals import fails, misuse, refuses


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


def kept_ways(costs: BurstCosts, limit: float) -> dict[int, tuple[int, ...]]:
    """By option of the last layer, the way that the released planner keeps: one layer more each time it is called."""
    last = costs.layers[-1]
    if len(costs.layers) == 1:
        return {own: (own,) for own in range(len(last.options))}
    shorter = BurstCosts(costs.gpus, costs.layers[:-1])
    before = costs.layers[-2]
    kept: dict[int, tuple[int, ...]] = {}
    for own in range(len(last.options)):
        best, least = None, float("inf")
        for way in kept_ways(shorter, limit).values():
            whole = cost(shorter, way, limit)[0]
            rest = cost(BurstCosts(costs.gpus, costs.layers[:-2]), way[:-1], limit)[0] if len(way) > 1 else 0.0
            amplified = (whole - rest) * before.options[way[-1]].gpus / before.single_gpu_us
            amplified = amplified if before.single_gpu_us > 300 else 1.0
            total = cost(costs, (*way, own), limit)[0]
            if (best is None or total < cost(costs, best, limit)[0]) and (amplified < limit or amplified < least):
                best, least = (*way, own), amplified
        assert best is not None
        kept[own] = best
    return kept


@pytest.mark.parametrize("limit", [0.9, 1.3, 2.0])
@pytest.mark.parametrize("seed", range(12))
def test_exact_plans_agree_with_brute_force(seed: int, limit: float) -> None:
    costs = random_costs(seed)
    every = [cost(costs, choice, limit) for choice in product(range(3), repeat=4)]
    allowed = [(time, gpu_time) for time, gpu_time, keeps in every if keeps]
    if not allowed:
        with fails(InfeasibleError, str(limit)):
            exact_plan(costs, limit)
        return
    plan = exact_plan(costs, limit)
    assert (plan.iteration_us, plan.gpu_us) == min(allowed)
    assert plan.over(limit) == []
    released = released_plan(costs, limit)
    assert released.over(limit) or plan.iteration_us <= released.iteration_us


@pytest.mark.parametrize("limit", [0.6, 0.9, 1.3, 2.0])
@pytest.mark.parametrize("seed", range(12))
def test_plans_within_a_budget_agree_with_brute_force(seed: int, limit: float) -> None:
    costs = random_costs(seed)
    budget = limit * sum(layer.single_gpu_us for layer in costs.layers) + 1e-6
    every = [cost(costs, choice, limit)[:2] for choice in product(range(3), repeat=4)]
    allowed = [both for both in every if both[1] <= budget]
    if not allowed:
        with fails(InfeasibleError, str(limit)):
            budget_plan(costs, limit)
        return
    plan = budget_plan(costs, limit)
    assert (plan.iteration_us, plan.gpu_us) == min(allowed)
    assert plan.job_amplification is not None and plan.job_amplification <= limit + 1e-9


@pytest.mark.parametrize("limit", [0.9, 1.3, 2.0])
@pytest.mark.parametrize("seed", range(12))
def test_released_plans_follow_the_recurrence(seed: int, limit: float) -> None:
    costs = random_costs(seed)
    ways = kept_ways(costs, limit).values()
    plan = released_plan(costs, limit)
    assert plan.choice in ways
    assert plan.iteration_us == min(cost(costs, way, limit)[0] for way in ways)


def test_the_released_planner_breaks_the_limit_where_it_does_not_look() -> None:
    options = (LayerOption(1, 1000, 500, 500, 0), LayerOption(2, 900, 450, 450, 0))
    costs = BurstCosts(2, (BurstLayer("conv2d", 1000, options),))
    assert released_plan(costs, 1.5).over(1.5) == [0]
    assert exact_plan(costs, 1.5).gpus_per_layer == [1]
    assert exact_plan(costs, 1.8).gpus_per_layer == [2]
    assert exact_plan(costs, 1.8).idle_share == 0


def test_the_released_planner_stays_with_a_fast_first_option_that_breaks_the_limit() -> None:
    first = BurstLayer("a", 100, (LayerOption(2, 50, 25, 25, 0),))
    options = (LayerOption(2, 450, 225, 225, 0), LayerOption(1, 400, 200, 200, 0))
    second = BurstLayer("b", 400, options, ((0, 100),))
    last = BurstLayer("c", 100, (LayerOption(1, 100, 50, 50, 0),), ((0,), (0,)))
    costs = BurstCosts(2, (first, second, last))
    assert released_plan(costs, 2.0).gpus_per_layer == [2, 2, 1]
    assert released_plan(costs, 2.0).over(2.0) == [1]
    assert exact_plan(costs, 2.0).gpus_per_layer == [2, 1, 1]


def test_no_limit_is_no_number() -> None:
    for plan in (exact_plan, released_plan, budget_plan):
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


def test_another_job_fits_into_what_a_burst_leaves() -> None:
    scales = LayerOption(1, 1000, 400, 600, 0), LayerOption(2, 500, 200, 300, 0)
    plan = exact_plan(
        BurstCosts(
            2, (BurstLayer("a", 1000, scales), BurstLayer("b", 600, (LayerOption(1, 600, 200, 400, 0),), ((0,), (0,))))
        ),
        2.0,
    )
    assert (plan.gpus_per_layer, plan.iteration_us) == ([2, 1], 1100)
    filler = TaskGraph((Slot("gpu"),), (TaskGraphBlock("piece", ("gpu",), {"gpu": 150}),))
    for pieces, period in ((4, 1100), (5, 1250)):
        instance = add_job(burst_instance(plan, "burst", "cyclic"), TaskGraphJob("filler", filler, pieces))
        result = solve(instance, options=Options(work_limit=20, threads=1))
        assert (result.status, result.objective) == ("optimal", period)


def document() -> dict[str, Any]:
    config = {"gpu_us": 10.0, "fwd_us": 5.0, "bwd_us": 5.0, "sync_us": 1.0}
    configs = [{"gpus": 1} | config, {"gpus": 2} | config]
    first = {"id": 0, "name": "conv2d", "single_gpu_us": 11.0, "configs": configs}
    return {"gpus": 2, "layers": [first, first | {"id": 1, "xfer_us": [[0, 1], [1, 0]]}]}


def test_every_problem_of_costs_is_named() -> None:
    assert len(read_burst_costs(json.dumps(document())).layers) == 2
    wrong = document()
    wrong["layers"][0]["xfer_us"] = [[0, 0]]
    wrong["layers"][1] |= {"id": 7, "xfer_us": [[0, 1], [1]]}
    wrong["layers"][1]["configs"] = [wrong["layers"][0]["configs"][0] | {"gpus": 4}] * 2
    with pytest.raises(InvalidInputError) as caught:
        read_burst_costs(json.dumps(wrong))
    assert [problem.path for problem in caught.value.problems] == [
        "$.layers[0].xfer_us",
        "$.layers[1].id",
        "$.layers[1].configs[0].gpus",
        "$.layers[1].configs[1].gpus",
        "$.layers[1].configs[1].gpus",
        "$.layers[1].xfer_us[1]",
    ]
    negative = document()
    negative["layers"][0]["configs"][0]["gpu_us"] = -1
    with refuses("out-of-range $.layers[0].configs[0].gpu_us", "out-of-range $.layers[1].configs[0].gpu_us"):
        read_burst_costs(json.dumps(negative))


def costs_of(folder: Path, answer: dict[str, Any]) -> BurstCosts:
    gpus, rate = answer["gpus"], round(answer["net_bw_bytes_per_us"])
    name = f"costs_{answer['model']}_g{max(2, gpus)}_b{answer['global_batch']}_bw{rate}.json"
    return read_burst_costs((folder / "deeppool" / name).read_bytes()).limited(gpus)


def check(plan: BurstPlan, answer: dict[str, Any]) -> None:
    assert plan.iteration_us / 1e3 == pytest.approx(answer["iter_ms"], rel=1e-6)
    assert plan.gpu_us / 1e3 == pytest.approx(answer["gpu_ms"], rel=1e-6)


def test_answers_of_the_released_planner_are_met(shared_data: Path) -> None:
    folder = shared_data / "pipeline"
    answers = json.loads((folder / "reference_results.json").read_text())["deeppool"]
    assert len(answers) == 136
    for answer in answers:
        costs = costs_of(folder, answer)
        if answer["mode"] == "data_parallel":
            check(widest_plan(costs), answer)
            continue
        released, exact = released_plan(costs, answer["amp_limit"]), exact_plan(costs, answer["amp_limit"])
        check(released, answer)
        broken = [at for at, _ in answer.get("planner_layers_over_its_own_limit", [])]
        assert released.over(answer["amp_limit"]) == broken
        if answer.get("exact_under_same_costs"):
            check(exact, answer["exact_under_same_costs"])
        assert exact.over(answer["amp_limit"]) == []
        assert broken or exact.iteration_us <= released.iteration_us
        assert exact.job_amplification is not None
        assert budget_plan(costs, exact.job_amplification).iteration_us <= exact.iteration_us * (1 + 1e-12)
