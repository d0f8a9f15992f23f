"""What is simulated, in words: clusters, traces and performance models that fit together, and jobs in a few words."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import decode_instance, encode_instance, encode_model, load_instance, save_instance
from jigsaw_opt.documents.readers.workload_csv import decode_workload
from jigsaw_opt.errors import InvalidInputError, UsageError
from jigsaw_opt.instances import load, profile
from jigsaw_opt.problem import Instance
from jigsaw_opt.problem.depth import FullDepth
from jigsaw_opt.problem.power import PowerCap
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.inputs.cluster_files import grid
from jigsaw_opt.simulation.inputs.own_jobs import OwnJob, OwnRequest, jobs_of, own_instance, own_job, with_deadlines
from tests.refusals import misuse, refuses
from tests.simulation.asked import setting_of
from tests.simulation.resumable import adaptive, by_type, plain, segmented, staged


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    path.write_text("name,submit_s,model,gpus,iterations\na,0,m,2,100\nb,9,m,1,50\n")
    return str(path)


def test_clusters_in_a_few_characters() -> None:
    made = grid("2x4:v100+1x8:mine")
    assert made is not None
    assert [(server.gpu_type, server.gpus) for server in made.servers] == [("v100", 4), ("v100", 4), ("mine", 8)]
    assert [server.gpu_memory for server in made.servers] == [32 * 10**9, 32 * 10**9, 16 * 10**9]
    assert len(made.links) == 3
    assert len({server.name for server in made.servers}) == 3
    for text in ("tiny/000", "2x", "x4", "2x4+", "a.json", "2x4:v100:3"):
        assert grid(text) is None
    for text in ("0x4", "4x0", "1001x1000"):
        with misuse("out-of-range cluster"):
            grid(text)


def test_models_come_with_the_instance_of_the_cluster_or_from_another(trace: str, tmp_path: Path) -> None:
    drawn = setting_of(trace, "server/plain", "fifo", draw_models=True, seed=4)
    assert isinstance(drawn.performance, Profiled)
    assert {job.model for job in drawn.workload.jobs} <= set(load("server/plain").models)
    path = tmp_path / "models.json"
    save_instance(load("server/plain"), path)
    other = setting_of(trace, "2x8:v100", "fifo", performance=f"profiled:{path}", draw_models=True, seed=4)
    assert [job.model for job in other.workload.jobs] == [job.model for job in drawn.workload.jobs]
    assert other.cluster != load_instance(path).cluster
    with pytest.raises(InvalidInputError, match="no model 'm'"):
        setting_of(trace, "2x8:v100", "fifo", performance=f"profiled:{path}")


def test_a_cluster_with_power_caps_is_refused(trace: str, tmp_path: Path, pair: Instance) -> None:
    caps = (PowerCap("room", (pair.cluster.servers[0].name,), 1),)
    path = tmp_path / "capped.json"
    save_instance(replace(pair, cluster=replace(pair.cluster, power_caps=caps)), path)
    with misuse("unsupported cluster", naming=["'room'"]):
        setting_of(trace, str(path), "fifo")


def test_tables_of_jobs_by_duration(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("id,user,num_gpu,time,run\na,me,2,5,3600\n")
    columns = "name=id,gpus=num_gpu,submit_s=time,duration_s=run"
    (job,) = setting_of(str(path), "2x4", "fifo", columns=columns).workload.jobs
    assert (job.name, job.gpus, job.submit_us, job.iterations) == ("a", 2, 5_000_000, 3600)
    with refuses(f"unsupported {path}:2", naming=["draw_models=True", "performance="]):
        setting_of(str(path), "server/plain", "fifo", columns=columns)
    (drawn,) = setting_of(str(path), "server/plain", "fifo", columns=columns, draw_models=True).workload.jobs
    assert drawn.model in load("server/plain").models
    with misuse("unknown-name workload", naming=["'size'"]):
        setting_of(str(path), "2x4", "fifo", columns="size=num_gpu")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for name in (tmp_path / "missing.csv", tmp_path, "nul\0l"):
        with refuses(f"unreadable {name}"):
            setting_of(f"philly:{name}", "2x4", "fifo")


def test_inputs_tell_figures_apart(tmp_path: Path, pair: Instance) -> None:
    models, trace = tmp_path / "models.json", tmp_path / "trace.csv"
    trace.write_text("name,submit_s,model,gpus,iterations\na,0,net,1,100\n")
    net = pair.models["net"]
    slower = replace(net, segments=(replace(net.segments[0], backward_us={"v100": 601}), *net.segments[1:]))
    texts = []
    for model in (net, net, slower):
        save_instance(replace(pair, models={"net": model}), models)
        texts.append(setting_of(str(trace), "1x2:v100", "fifo", performance=f"profiled:{models}").inputs())
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("make", [plain, by_type, adaptive, staged, segmented])
def test_figures_are_the_same_text_for_the_same_source(make: Callable[[], Setting]) -> None:
    first, second = (make().performance for _ in range(2))
    jobs = make().workload.jobs
    assert first.unknown(jobs[0]) is None and first.alone_us(jobs[0]) > 0  # which may fill a cache
    text = repr(first.figures)
    assert text == repr(second.figures)
    assert "object at" not in text and "set(" not in text  # addresses, and orders that differ from run to run


def test_inputs_tell_requests_apart(trace: str) -> None:
    base = {"workload": trace, "cluster": "2x4", "policy": "srtf"}

    def inputs(**change: object) -> str:
        return setting_of(**{**base, **change}).inputs()  # type: ignore[arg-type]

    assert inputs() == inputs(cluster="2x4:gpu")
    changes: list[dict[str, object]] = [{"policy": "las"}, {"policy": "srtf:measure=service"}, {"cluster": "4x2"}]
    changes += [{"round_s": 1.0}, {"restart_s": 1.0}, {"seed": 1}, {"contention": "fair"}]
    changes += [{"contention": "degraded:0"}, {"contention": "degraded:1"}]
    assert len({inputs(), *(inputs(**change) for change in changes)}) == len(changes) + 1


def test_what_the_policy_does_not_read_of_priorities_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "jobs.csv"
    names = "name,submit_s,gpus,duration_s,weight,foreground,priority,queue,preemptible"
    path.write_text(f"{names}\na,0,1,10,3,1,2,gpu,1\nb,0,1,10,1,0,2,gpu,\nc,0,1,10,1,0,,cpu,\n")
    front, weight, queue = "place in the foreground (1 job)", "weight (1 job)", "queue (3 jobs)"
    unread = {
        "fifo": f"{weight}, {front}, priority (2 jobs), {queue}",  # which stops no job, whatever its flag is
        "separate": f"{weight}, priority (2 jobs), {queue}, preemptible flag (1 job)",
        "priority": f"{weight}, {front}, {queue}",
        "priority:by=weight": f"{front}, priority (2 jobs), {queue}",
    }
    assert {policy: setting_of(str(path), "1x4", policy).unread() for policy in unread} == unread
    words = [str(path), "--cluster", "1x4", "-q", "-o", str(tmp_path / "out"), "--seeds", "0"]
    assert main(["advise", *words, "--baseline", "fifo", "--policy", "srtf", "las", "separate"]) == 0
    assert [line for line in capsys.readouterr().err.splitlines() if "not read" in line] == [
        f"{path}: policy 'fifo' does not read what sets jobs apart: {unread['fifo']}",
        f"{path}: policies 'srtf', 'las' do not read what sets jobs apart: {unread['fifo']}, preemptible flag (1 job)",
        f"{path}: policy 'separate' does not read what sets jobs apart: {unread['separate']}",
    ]


@pytest.mark.parametrize(
    ("policy", "what"),
    [
        ("priority:by=weight", "weight"),
        ("multifactor:priority_weight_partition=1", "queue"),
        ("multifactor:priority_weight_qos=1", "QOS"),
    ],
)
def test_an_option_that_goes_by_what_no_job_states_is_refused(policy: str, what: str, trace: str) -> None:
    with pytest.raises(UsageError, match=f"is to go by the {what} of jobs, and no job states one"):
        setting_of(trace, "2x4", policy)
    assert setting_of(trace, "2x4", policy.partition(":")[0]).policy is not None


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
        ("a:m:2:30min", OwnJob("a", "m", 2, duration_us=1_800_000_000)),
    ],
)
def test_jobs_in_words(text: str, job: OwnJob) -> None:
    assert own_job(text) == job
    for wrong in ("", "a", "a:m:2", "a:m:2:1.5", "a:m:-2:1", "a:m:2:3w", ":m:2:3", "a:m:2:3:4"):
        with misuse("malformed job"):
            own_job(wrong)


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
        "depth: is one of full, staircase, rotation, free, goodput, not 'deep'",
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
