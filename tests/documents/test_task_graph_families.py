"""Families of task graphs: what planners state is read back, and what differs from it is refused at its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from jigsaw_opt.documents import decode_instance, encode_instance, instance_sha256, schema
from jigsaw_opt.documents.readers.profiles.burst_costs import BurstCosts, BurstLayer, LayerOption
from jigsaw_opt.planning.burst.exact import fastest_plan
from jigsaw_opt.planning.burst.instance import burst_instance
from jigsaw_opt.planning.pipeline.asynchronous import asynchronous
from jigsaw_opt.planning.pipeline.costs import AsyncStage, PipelineCosts
from jigsaw_opt.planning.pipeline.orders import PipelineLayout
from jigsaw_opt.planning.pipeline.stages import PipelineProblem, pipeline_instance
from jigsaw_opt.problem import AsynchronousFamily, BurstFamily, Instance, PipelineFamily, TaskGraphJob
from tests.refusals import refuses

AT = "$.jobs[0].shape"


def pipeline() -> Instance:
    """Two stages that send, and two micro-batches."""
    costs = PipelineCosts((3, 3), (5, 5), (2, 2), (4,))
    return pipeline_instance(PipelineProblem(costs, PipelineLayout((0, 1), 2, True)), "p", "finite")


def flow() -> Instance:
    """Two stages, the first of them with two copies."""
    return asynchronous([AsyncStage(4, 6, 2, transfer_us=3), AsyncStage(2, 3)], "p").instance


def burst() -> Instance:
    """Two layers, on two GPUs and on one."""
    layers = (
        BurstLayer("a", 50.0, (LayerOption(2, 50.0, 20.0, 30.0, 5.0),)),
        BurstLayer("b", 40.0, (LayerOption(1, 40.0, 20.0, 20.0, 0.0),), ((8.0,),)),
    )
    return burst_instance(fastest_plan(BurstCosts(2, layers), 10.0, "exact"), "p", "finite")


def shape_of(instance: Instance) -> Any:
    [job] = instance.jobs
    assert isinstance(job, TaskGraphJob)
    return job.shape


@pytest.mark.parametrize(
    ("made", "family"),
    [
        (pipeline, PipelineFamily(("gpu0", "gpu1"), 2, True)),
        (flow, AsynchronousFamily((("stage0.0", "stage0.1"), ("stage1.0",)), 6)),
        (burst, BurstFamily((2, 1))),
    ],
)
def test_planners_state_the_family_and_documents_keep_it(made: Callable[[], Instance], family: object) -> None:
    instance = made()
    assert shape_of(instance).family == family
    document = encode_instance(instance)
    Draft202012Validator(schema("instance")).validate(json.loads(document))
    assert decode_instance(document) == instance
    # What older documents lack is all that differs.
    job = replace(instance.jobs[0], shape=replace(shape_of(instance), family=None))
    bare = replace(instance, jobs=(job,))
    tree = json.loads(document)
    del tree["jobs"][0]["shape"]["family"]
    assert decode_instance(json.dumps(tree)) == bare and instance_sha256(bare) != instance_sha256(instance)


@pytest.mark.parametrize(
    ("made", "old", "new", "told"),
    [
        (pipeline, '"B1.1", "slot": "gpu1"', '"B1.1", "slot": "gpu0"', "mismatch blocks"),
        (pipeline, '["F1.0", "F1.0-1", 0],', '["F1.0", "F1.1", 0],', "mismatch edges"),
        (pipeline, '["F1.0", "F1.0-1", 0],', '["F1.0", "F1.0-1", 0], ["F0.0", "F1.0", 0],', "mismatch edges"),
        (pipeline, '["B1.0", "W1.0", 0],', "", "mismatch edges"),
        (pipeline, '["B1.0", "W1.0", 0],', '["B1.0", "W1.0", 0], ["F0.0", "F0.0", 1],', ""),
        (pipeline, '["F1.0", "F1.0-1", 0],', "", "mismatch edges; mismatch edges"),
        (pipeline, '"barrier": "slot"', '"barrier": "job"', ""),
        (pipeline, '"barrier": "slot"', '"barrier": "none"', "contradiction barrier"),
        (pipeline, '"micro_batches": 2', '"micro_batches": 9007199254740991', "wrong-count family"),
        (pipeline, '"split": true', '"split": false', "wrong-count family"),
        (pipeline, '"split": true', '"split": 1', "wrong-type family.split"),
        (pipeline, '"split": true', '"splits": true', "unknown-field family.splits"),
        (flow, '"in_flight": 6', '"in_flight": 5', "; ".join(4 * ["mismatch edges"])),
        (flow, '["B0.0", "F0.0", 3],', '["B0.0", "F0.0", 1],', "mismatch edges; mismatch edges"),
        (flow, '"barrier": "none"', '"barrier": "slot"', "contradiction barrier"),
        (burst, '"gpus_per_layer": [2, 1]', '"gpus_per_layer": [2, 2]', "mismatch blocks; mismatch blocks"),
        (burst, '"gpus_per_layer": [2, 1]', '"gpus_per_layer": [2, 1, 1]', "mismatch blocks; mismatch blocks"),
        (burst, '"gpus_per_layer": [2, 1]', '"gpus_per_layer": [9007199254740991, 1]',
         "mismatch blocks; mismatch blocks"),
        (burst, '["F1", "B1", 0]', '["F1", "B1", 1]', "mismatch edges; mismatch edges"),
    ],
)  # fmt: skip
def test_what_is_not_of_the_family_is_refused(made: Callable[[], Instance], old: str, new: str, told: str) -> None:
    document = encode_instance(made()).decode()
    changed = document.replace(old, new, 1)
    assert changed != document
    if not told:
        decode_instance(changed)
        return
    with refuses("; ".join(" ".join([code, f"{AT}.{at}"]) for code, at in map(str.split, told.split("; ")))):
        decode_instance(changed)


def test_a_family_is_checked_in_python_as_well() -> None:
    shape = shape_of(pipeline())
    with refuses("wrong-count TaskGraph.family"):
        replace(shape, family=PipelineFamily(("gpu0", "gpu1"), 1, True))
    with refuses("out-of-range PipelineFamily.micro_batches"):
        PipelineFamily(("gpu0",), 0)
