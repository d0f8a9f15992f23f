"""Instances built in Python are validated as documents are: all problems at once, each with its path."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt import (
    FreeDepth,
    InstanceBuilder,
    InvalidInputError,
    Model,
    Segment,
    StaircaseDepth,
    TaskGraph,
    load_instance,
)
from jigsaw_opt.documents import encode_model
from jigsaw_opt.instances import load, names
from jigsaw_opt.problem import Slot, TaskGraphBlock
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from tests.refusals import refused

PAIR = Path(__file__).parents[1] / "data" / "pair.json"
BODY = Segment("body", {"v100": 300}, {"v100": 600}, 1_000_000, 40_000_000)
HEAD = Segment("head", {"v100": 100}, {"v100": 200}, 4_000_000, 1_000_000)


def begun(**whole: Any) -> InstanceBuilder:
    """The cluster and the model of the example."""
    builder = InstanceBuilder("pair", **whole)
    builder.add_server("s0", gpu_type="v100", gpus=2, gpu_memory=16 * 10**9, fabric_bandwidth=10**10)
    builder.add_model("net", [BODY, HEAD])
    return builder


def refusal(builder: InstanceBuilder) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        builder.build()
    return caught.value


def refusals(builder: InstanceBuilder) -> list[str]:
    return refused(refusal(builder))


def problems(builder: InstanceBuilder) -> list[str]:
    return [f"{problem.path}: {problem.message}" for problem in refusal(builder).problems]


def test_the_example_is_built_as_it_is_read() -> None:
    builder = begun()
    builder.add_job("a", model="net", workers=2, iterations=1, depth=StaircaseDepth())
    builder.add_job("b", model="net", workers=1, iterations=1)
    assert builder.build() == load_instance(PAIR)


def test_every_bundled_instance_can_be_built_anew_and_is_valid() -> None:
    for name in names("tiny"):
        instance = load(name)
        builder = InstanceBuilder(instance.name, horizon=instance.horizon, objective=instance.objective)
        builder.add_cluster(instance.cluster)
        builder.add_models(instance.models)
        for job in instance.jobs:
            builder.add_job(
                job.name,
                model=job.model,
                workers=job.workers,
                iterations=job.iterations,
                release_us=job.release_us,
                weight=job.weight,
                depth=job.depth,
            )
        assert builder.build() == instance == replace(instance)


def test_a_job_may_have_guarantees_and_may_move() -> None:
    shape = TaskGraph((Slot("one"),), (TaskGraphBlock("F", ("one",), {"v100": 1}),))
    builder = begun()
    builder.add_job("a", model="net", workers=1, iterations=1, deadline_us=7, restart_us=0)
    builder.add_task_graph_job("b", shape, iterations=1, deadline_us=0, pace_us=9, restart_us=-1)
    told = [line.partition(": ")[0] for line in problems(builder)]
    assert told == ["$.jobs[1].deadline_us", "$.jobs[1].restart_us", "$.jobs[1].pace_us"]


def test_routes_may_keep_policies() -> None:
    builder = begun()
    builder.add_route_policy("shortest", RoutePolicy(via=(("nowhere",),)))
    builder.add_job("a", model="net", workers=1, iterations=1, route_policy="shortes")
    told = problems(builder)
    assert [line.partition(": ")[0] for line in told] == [
        "$.cluster.route_policies.shortest.via[0][0]",
        "$.jobs[0].route_policy",
    ]
    assert told[1].endswith('no route policy is called "shortes"')


def test_all_problems_come_at_once_with_their_paths() -> None:
    builder = begun()
    builder.add_server("s0", gpu_type="v100", gpus=-1, gpu_memory=1, fabric_bandwidth=1)
    builder.add_link("l", ("s0", "s9"), bandwidth=0)
    builder.add_job("a", model="nett", workers=-2, iterations=True)
    builder.add_job("a", model="net", workers=1, iterations=1, depth=FreeDepth(mean_depth="x"))
    told = problems(builder)
    for part in (
        '$.cluster.servers[1].name: duplicate name "s0"',
        "$.cluster.servers[1].gpus: must be an integer",
        '$.cluster.links[0].ends[1]: no server or switch is called "s9"',
        "$.cluster.links[0].bandwidth: must be an integer",
        '$.jobs[0].model: no model is called "nett"',
        "$.jobs[0].workers: must be an integer",
        "$.jobs[0].iterations: must be an integer",
        '$.jobs[1].name: duplicate name "a"',
        "$.jobs[1].depth.mean_depth: ",
    ):
        assert any(line.startswith(part) for line in told), part


def test_a_model_that_is_added_twice_is_a_duplicate_key() -> None:
    builder = begun()
    builder.add_model("net", [BODY])
    builder.add_job("a", model="net", workers=1, iterations=1)
    assert refusals(builder) == ["duplicate-field $.models.net"]


@pytest.mark.parametrize(
    "wrong", [None, 1.0, "2", Decimal(2), [2], object()], ids=["none", "float", "text", "decimal", "list", "object"]
)
def test_what_is_no_integer_is_a_problem_and_no_type_error(wrong: Any) -> None:
    builder = begun()
    builder.add_job("a", model="net", workers=wrong, iterations=1)
    assert all(line.startswith("$.jobs[0].workers: ") for line in problems(builder))


def test_values_of_the_wrong_type_are_problems() -> None:
    builder = InstanceBuilder("wrong", horizon="endless")  # type: ignore[arg-type]
    builder.add_model("m", ["segment"])  # type: ignore[list-item]
    builder.add_models({3: Model((BODY,))})  # type: ignore[dict-item]
    builder.add_job("a", model=5, workers=1, iterations=1, depth="deep")  # type: ignore[arg-type]
    places = {line.partition(": ")[0] for line in problems(builder)}
    assert places >= {
        "$.horizon",
        "$.cluster.servers",
        "$.models.m.segments[0]",
        '$.models["3"]',
        "$.jobs[0].model",
        "$.jobs[0].depth",
    }


def test_integers_of_other_types_are_integers() -> None:
    numpy = pytest.importorskip("numpy")

    class Size(IntEnum):
        SMALL = 1

    builder = begun()
    builder.add_job("a", model="net", workers=numpy.int64(2), iterations=Size.SMALL)
    (job,) = builder.build().jobs
    assert (type(job.workers), type(job.iterations)) == (int, int)


def test_the_objective_of_a_horizon_need_not_be_named() -> None:
    for horizon, objective in (("finite", "makespan"), ("cyclic", "period")):
        builder = begun(horizon=horizon)
        builder.add_job("a", model="net", workers=1, iterations=1)
        assert builder.build().objective == objective


def test_what_is_added_later_changes_no_instance_built_before() -> None:
    builder, times = begun(), {"v100": 5}
    builder.add_model("late", [Segment("s", times, times, 0, 0)])
    builder.add_job("a", model="net", workers=1, iterations=1)
    first = builder.build()
    builder.add_job("b", model="late", workers=1, iterations=1)
    times["v100"] = 6
    assert len(first.jobs) == 1 and first.models["late"].segments[0].forward_us == {"v100": 5}
    assert len(builder.build().jobs) == 2


def test_models_are_taken_whole() -> None:
    whole = Model((BODY, HEAD), levels=(2,), state_factor=3, executor={"zoo": "mlp", "arguments": {}, "batch_size": 4})
    tree = json.loads(encode_model(whole))
    builder = InstanceBuilder("whole")
    builder.add_server("s", gpu_type="v100", gpus=1, gpu_memory=10**10, fabric_bandwidth=1)
    builder.add_model("object", whole)
    builder.add_model("file", tree)
    builder.add_model("report", {"device": "cpu", "model": tree, "profile": None})
    builder.add_model("changed", tree, state_factor=5)
    builder.add_job("a", model="file", workers=1, iterations=1)
    models = builder.build().models
    assert models == {
        "object": whole,
        "file": whole,
        "report": whole,
        "changed": replace(whole, state_factor=5),
    }
