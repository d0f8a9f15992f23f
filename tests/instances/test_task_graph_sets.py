"""The bundled sets of jobs with a task graph have what their names say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jigsaw_opt.instances import best_known, load, names
from jigsaw_opt.instances.pipelines import PIPELINES, pipeline_instance
from jigsaw_opt.instances.shops import SHOPS, shop_instance
from jigsaw_opt.problem import Instance, TaskGraph
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from tests.refusals import misuse


def shape_of(instance: Instance) -> TaskGraph:
    return instance.task_graph_jobs[0].shape


@pytest.mark.parametrize("name", PIPELINES)
def test_every_micro_batch_passes_every_stage_there_and_back(name: str) -> None:
    recipe, shape = PIPELINES[name], shape_of(load(f"pipeline/{name}"))
    blocks = {block.name: block for block in shape.blocks}
    before = {edge.after: edge.before for edge in shape.edges}
    for batch in range(recipe.batches):
        at, passed = f"B{batch}.0", list[str]()
        while at in before:
            at = before[at]
            passed.append(at)
        assert at == f"F{batch}.0"
        visited = [each for each in passed if each in blocks and each[0] in "FB"]
        assert len(visited) == 2 * recipe.stages - 1
    work = [sum(b.duration_us["v100"] for b in shape.blocks if slot.name in b.slots) for slot in shape.slots]
    assert min(work) >= recipe.batches * 3 * 8000
    assert len(shape.holds) == recipe.batches * recipe.stages


def test_stages_of_a_v_go_there_and_back() -> None:
    recipe = PIPELINES["v-shape"]
    assert [recipe.device(stage) for stage in range(recipe.stages)] == ["d0", "d1", "d2", "d2", "d1", "d0"]


@pytest.mark.parametrize("name", SHOPS)
def test_every_order_goes_once_to_every_machine(name: str) -> None:
    recipe, instance = SHOPS[name], load(f"shop/{name}")
    assert len(instance.jobs) == recipe.jobs
    for job in instance.task_graph_jobs:
        visits = sorted((block.name.split(".")[0], *block.slots) for block in job.shape.blocks)
        assert visits == [(str(o), f"m{m}") for o in range(recipe.orders) for m in range(recipe.machines)]
        assert len(job.shape.edges) == recipe.orders * (recipe.machines - 1)
    machines = {
        tuple(block.slots for block in shape_of(instance).blocks[k * recipe.machines :][: recipe.machines])
        for k in range(recipe.orders)
    }
    assert (len(machines) == 1) == recipe.flow


def test_another_name_is_another_instance_and_the_same_name_the_same() -> None:
    recipe = PIPELINES["plain"]
    assert pipeline_instance(recipe, "a") == pipeline_instance(recipe, "a")
    assert shape_of(pipeline_instance(recipe, "a")) != shape_of(pipeline_instance(recipe, "b"))
    shop = replace(SHOPS["job-6x4"], orders=2)
    assert shape_of(shop_instance(shop, "a")) != shape_of(shop_instance(shop, "b"))


def test_every_shop_is_solved_to_proven_optimality() -> None:
    found = [best_known(name) for name in names("shop")]
    assert all(best is not None and best.optimal for best in found)


def test_a_solver_of_data_parallel_jobs_refuses_them_by_name() -> None:
    with misuse("unsupported instance", naming=["'ilp'", "'shop-job-6x4'", "'j0'"]):
        solve(load("shop/job-6x4"), "ilp", Options(time_limit=1.0))
