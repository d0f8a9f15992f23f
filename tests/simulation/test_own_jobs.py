"""Instances of jobs in a few words: what is assumed, durations, and every problem at once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from jigsaw_opt.documents import decode_instance, encode_instance, encode_model
from jigsaw_opt.documents.readers.traces.workload_csv import decode_workload
from jigsaw_opt.errors import InvalidInputError, UsageError
from jigsaw_opt.instances import profile
from jigsaw_opt.problem.job import FullDepth
from jigsaw_opt.simulation.inputs.own_jobs import OwnJob, OwnRequest, jobs_of, own_instance, own_job, with_deadlines
from tests.refusals import misuse, refuses


def problems(request: OwnRequest) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        own_instance(request)
    return [str(problem).split(" (")[0] for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("a:vgg16:4:100", OwnJob("a", "vgg16", 4, 100)),
        (" a b:vgg16@8:1:90s", OwnJob("a b", "vgg16@8", 1, duration_us=90_000_000)),
        ("a:m:2:1.5h", OwnJob("a", "m", 2, duration_us=5_400_000_000)),
        ("a:m:2:2d", OwnJob("a", "m", 2, duration_us=172_800_000_000)),
        ("a:m:2:30min", OwnJob("a", "m", 2, duration_us=1_800_000_000)),
    ],
)
def test_jobs_in_words(text: str, job: OwnJob) -> None:
    assert own_job(text) == job


@pytest.mark.parametrize("text", ["", "a", "a:m:2", "a:m:2:1.5", "a:m:-2:1", "a:m:2:3w", ":m:2:3", "a:m:2:3:4"])
def test_words_that_are_no_job(text: str) -> None:
    with misuse("malformed job"):
        own_job(text)


def test_deadlines_of_one_job_go_before_those_of_all() -> None:
    jobs = [OwnJob("a", "resnet50", 4, 10), OwnJob("x=y", "vgg16", 2, 3)]
    timed = with_deadlines(jobs, ["x=y=90min", "1.5d"])
    instance, _ = own_instance(OwnRequest("mine", "2x4:v100", timed))
    assert [job.deadline_us for job in instance.data_parallel] == [129_600_000_000, 5_400_000_000]
    assert with_deadlines(jobs, []) == jobs
    with pytest.raises(UsageError) as raised:
        with_deadlines(jobs, ["b=2h", "a=2"])
    assert [str(arg).split(",")[0] for arg in raised.value.args] == [
        "no job 'b'; there are a",
        "a deadline is JOB=TIME",
    ]


def test_the_document_states_what_was_asked_for_and_the_rest_is_told() -> None:
    request = OwnRequest("mine", "2x4:v100", [OwnJob("a", "resnet50", 4, 10), OwnJob("b", "vgg16@8", 8, 3)])
    instance, assumed = own_instance(request)
    assert decode_instance(encode_instance(instance)) == instance
    assert instance.models["resnet50-b64-estimate"] == profile("resnet50", 64, ["v100"], 6)
    assert [(job.workers, job.iterations, job.depth) for job in instance.data_parallel] == [
        (4, 10, FullDepth()),
        (8, 3, FullDepth()),
    ]
    told = {one.what: one.value for one in assumed}
    assert told["bandwidth of a server's link"] == "10 Gb/s"
    assert told["GPUs of type v100"] == "32 GB of memory, 150 GB/s within a server"
    assert "batch 8 a worker" in told["model vgg16@8"]
    faster, assumed = own_instance(replace(request, bandwidth=10**9, depth="free", objective="period"))
    assert {link.bandwidth for link in faster.cluster.links} == {10**9}
    assert (faster.horizon, faster.objective) == ("cyclic", "period")
    assert "bandwidth of a server's link" not in {one.what for one in assumed}


def test_a_duration_is_as_many_iterations_as_last_so_long_alone() -> None:
    job = OwnJob("a", "resnet50", 1, duration_us=60_000_000)
    instance, assumed = own_instance(OwnRequest("mine", "1x1:a100", [job]))
    iteration_us = profile("resnet50", 64, ["a100"], 6).block_us("a100")[-1]
    assert instance.data_parallel[0].iterations == round(60_000_000 / iteration_us)
    assert assumed[-1].value.endswith(f"each of {iteration_us} us alone")


def test_measured_models_run_on_any_type_of_gpu() -> None:
    tree: dict[str, Any] = json.loads(encode_model(profile("resnet50", 4, ["v100"], 3)))
    for segment in tree["segments"]:
        for table in ("forward_us", "backward_us"):
            segment[table] = {"mine": segment[table]["v100"]}
    request = OwnRequest("mine", "1x2:mine", [OwnJob("a", "net", 2, 5)], {"net": tree, "unused": {}})
    instance, _ = own_instance(request)
    assert list(instance.models) == ["net"]
    del tree["segments"][1]["parameter_bytes"]
    assert problems(request) == ['$.models.net.segments[1]: missing key "parameter_bytes"']


def test_every_problem_of_the_words_at_once() -> None:
    jobs = [OwnJob("a", "resnet", 4, 10), OwnJob("b", "vgg16@0", 1, duration_us=1), OwnJob("c", "vgg16", 1, 1)]
    found = problems(OwnRequest("w", "2x4:k80", jobs, {}, 0, 0, "deep", "period"))
    assert found == [
        "depth: is one of full, staircase, rotation, free, not 'deep'",
        "bandwidth: is at least 1, not 0",
        "segments: is at least 1, not 0",
        "job b: has a duration; a period has iterations",
        "model resnet: is not known",
        "model vgg16@0: has a batch of at least 1",
        "model vgg16: cannot be estimated on GPUs of type 'k80'",
    ]
    assert problems(OwnRequest("w", "2x4:k80", jobs[2:])) == ["model vgg16: cannot be estimated on GPUs of type 'k80'"]
    assert problems(OwnRequest("w", "two", [])) == [
        "jobs: there is none",
        "cluster: is SERVERSxGPUS:TYPE, as in 4x8:v100, not 'two'",
    ]


def test_jobs_that_the_document_or_the_cluster_refuses() -> None:
    twice = [OwnJob("a", "vgg16", 0, 1), OwnJob("a", "vgg16", 1, 1)]
    assert [line.split(":")[0] for line in problems(OwnRequest("w", "1x2:v100", twice))] == [
        "$.jobs[0].workers",
        "$.jobs[1].name",
    ]
    large = [OwnJob("a", "vgg16", 3, 1), OwnJob("b", "bert_large@4096", 1, 1)]
    found = problems(OwnRequest("w", "1x2:v100", large))
    assert [line.split(":")[0] for line in found] == ["$.jobs[0]", "$.jobs[1]"]
    assert found[0].endswith("can run on 2 GPUs by their type and memory, not on 3")
    assert found[1].endswith("GB, and a GPU has 32")
    measured = {"net": json.loads(encode_model(profile("vgg16", 4, ["a100", "h200"], 3)))}
    assert problems(OwnRequest("w", "1x2:v100", [OwnJob("a", "net", 1, 1)], measured)) == [
        "$.jobs[0]: model 'net' has times on a100, h200; the cluster has v100"
    ]
    with refuses("unknown-name $.jobs[0]"):
        own_instance(OwnRequest("w", "1x2:v100", [OwnJob("a", "net", 1, 1)], measured))


def test_jobs_of_a_workload() -> None:
    named = decode_workload("name,submit_s,model,gpus,iterations,weight\na,2,vgg16,4,9,3\n")
    assert jobs_of(named, "m") == (OwnJob("a", "vgg16", 4, 9, None, 2_000_000, 3),)
    timed = decode_workload("submit_s,gpus,duration_h\n0,4,1\n")
    assert jobs_of(timed, "m") == (OwnJob("line-2", "m", 4, None, 3_600_000_000),)
    with misuse("missing-field job a"):
        jobs_of(decode_workload("name,submit_s,model,gpus\na,2,vgg16,4\n"), "m")
