"""`jo.pipeline`: one kind of result whatever is planned, and options that do not go together."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import jigsaw_opt as jo
from jigsaw_opt.errors import InfeasibleError, UsageError
from jigsaw_opt.instances.catalogue import load
from jigsaw_opt.planning.partition.result import best_partition, decode_partition, partition_tree
from jigsaw_opt.planning.pipeline.costs import PipelineCosts
from jigsaw_opt.problem.measured.layers import LayerGraph, MeasuredLayer, chain_edges
from tests.refusals import misuse

OPTIONS = jo.Options(work_limit=1, threads=1)
LAYERS = tuple(MeasuredLayer(f"n{at}", 10 + at % 3, 25, 5, 100, 9, 10) for at in range(4))
PROFILE = LayerGraph(LAYERS, chain_edges(4))
COARSE = replace(PROFILE, layers=tuple(replace(layer, weight_us=None) for layer in LAYERS))
STAGES = best_partition(PROFILE, [2], [10**7], activations=True, replicate=False)
COSTS = PipelineCosts((10, 10), (20, 20))


@pytest.mark.parametrize(
    ("source", "asked", "objective"),
    [
        (PROFILE, {"stages": 2, "micro_batches": (2, 4), "batch": 8}, None),
        (PROFILE, {"stages": 2, "micro_batches": 3, "backward": "combined", "virtual": (1, 2), "placement": "v"}, None),
        (STAGES, {"micro_batches": 3}, None),
        (STAGES, {"schedule": "zb-h1", "first_stage": "split", "horizon": "cyclic"}, None),
        (STAGES, {"schedule": "async"}, None),
        (COSTS, {"micro_batches": 4}, 150),
        (COSTS, {"micro_batches": 4, "horizon": "cyclic"}, 120 + 30),
        (COSTS, {"micro_batches": 4, "schedule": "gpipe", "memory": 1}, 150),
        (COSTS, {"micro_batches": 2, "schedule": "search"}, 90),
        (COSTS, {"schedule": "async"}, 30),
        (PipelineCosts((10,) * 4, (20,) * 4), {"gpus": 2, "micro_batches": 4, "schedule": "interleaved"}, 270),
    ],
)
def test_what_is_planned_is_correct_and_not_below_its_bound(
    source: Any, asked: dict[str, Any], objective: int | None
) -> None:
    source = replace(source, batch=2) if "batch" in asked else source
    found = jo.pipeline(source, **asked, options=OPTIONS, name="mine")
    assert jo.check(found.instance, found.plan) == ()
    assert found.plan.objective == found.objective >= found.bound > 0 and found.proof.sentence
    assert objective in (None, found.objective)
    assert found.instance.name == "mine" and found.instance.task_graph_jobs[0].shape.family is not None


def test_the_baseline_is_told_besides() -> None:
    found = jo.pipeline(PROFILE, stages=2, micro_batches=4, baseline="1f1b", options=OPTIONS)
    assert found.details.baseline_us >= found.objective


@pytest.mark.parametrize(
    ("source", "asked", "told"),
    [
        (PROFILE, {}, "missing-option stages"),
        (PROFILE, {"stages": 2, "schedule": "1f1b", "gpus": 2}, "not-together schedule; not-together gpus"),
        (PROFILE, {"stages": 2, "placement": "v"}, "missing-option placement"),
        (PROFILE, {"stages": 2, "backward": "combined", "baseline": "zb-h1"}, "not-together baseline"),
        (COARSE, {"stages": 2, "backward": "split"}, "missing-field backward"),
        (COARSE, {"stages": 2, "baseline": "zb-h2"}, "missing-field baseline"),
        (PROFILE, {"stages": 0, "memory": 0}, "out-of-range stages; out-of-range memory; out-of-range micro_batches"),
        (COSTS, {"stages": 2, "batch": 4}, "not-together stages; not-together batch"),
        (COSTS, {"schedule": "async", "micro_batches": 2, "horizon": "finite"},
         "not-together micro_batches; not-together horizon"),
        (COSTS, {"schedule": "async", "backward": "split"}, "not-together backward"),
        (COSTS, {"into": load("server/plain"), "schedule": "search", "horizon": "finite"},
         "not-together schedule; not-together horizon"),
        (COSTS, {"gpu_type": "v100", "weight": 2}, "not-together gpu_type; not-together weight"),
        (COSTS, {"backward": "split"}, "missing-option weight_us"),
        (COSTS, {"first_stage": "whole"}, "not-together first_stage"),
        (COSTS, {"micro_batches": (2, 3)}, "unsupported micro_batches"),
        (COSTS, {"micro_batches": 0}, "contradiction gpus"),
        (COSTS, {"gpus": 1}, "not-together gpus"),
        (COSTS, {"schedule": "v-half"}, "contradiction gpus"),
        (COSTS, {"schedule": "interleaved"}, "missing-option gpus"),
        (COSTS, {"schedule": "1b1f"}, "unknown-value schedule"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together_are_refused(source: Any, asked: dict[str, Any], told: str) -> None:
    with misuse(told):
        jo.pipeline(source, **asked, options=OPTIONS)


@pytest.mark.parametrize("schedule", ["gpipe", "search", "async"])
def test_memory_that_no_order_fits_into_is_proven(schedule: Any) -> None:
    with pytest.raises(InfeasibleError):
        jo.pipeline(replace(COSTS, static_bytes=(9, 9)), schedule=schedule, memory=8, options=OPTIONS)


def test_numbers_too_large_to_list_are_refused_at_once() -> None:
    layers = tuple(MeasuredLayer(f"l{k}", 10, 20, 0, 0) for k in range(2))
    graph, costs = LayerGraph(layers, ((0, 1),)), PipelineCosts(forward_us=(10, 10), backward_us=(20, 20))
    for call in (
        lambda: jo.pipeline(graph, stages=2, micro_batches=2**31),
        lambda: jo.pipeline(graph, stages=2, virtual=2**31),
        lambda: jo.pipeline(costs, micro_batches=2**31),
    ):
        with pytest.raises(UsageError, match="at most 999999"):
            call()
    with pytest.raises(InfeasibleError, match="so many stages"):
        jo.pipeline(graph, stages=2**31, micro_batches=4)
    with misuse("unknown-option gap; unknown-option survivable"):
        jo.pipeline(graph, stages=2, options=jo.Options(gap=0.3, survivable=True))


def test_a_planned_partition_is_taken_as_its_stages_are() -> None:
    layers = tuple(MeasuredLayer(f"l{k}", 10, 20, 0, 0) for k in range(2))
    cut = jo.partition(LayerGraph(layers, ((0, 1),)), (2,), (10**9,), replicate=False)
    assert jo.pipeline(cut, micro_batches=4).objective == jo.pipeline(cut.details, micro_batches=4).objective
    with misuse("wrong-type source"):
        jo.pipeline(jo.pipeline(cut, micro_batches=4))


def test_a_partition_goes_only_where_its_times_hold() -> None:
    layers = tuple(MeasuredLayer(f"l{k}", 10, 20, 0, 0) for k in range(2))
    found = best_partition(LayerGraph(layers, ((0, 1),), gpu_type="h100"), (2,), (1e9,), replicate=False)
    assert decode_partition(json.dumps(partition_tree(found))) == found
    cluster = load("pipeline/plain")
    with pytest.raises(UsageError, match="no GPU of type 'h100'"):
        jo.pipeline(found, into=cluster)
    with pytest.raises(UsageError, match="of type 'h100', not"):
        jo.pipeline(found, into=cluster, gpu_type=cluster.cluster.servers[0].gpu_type)
