"""What is simulated, in words: clusters, traces and performance models that fit together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import load_instance, save_instance
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.instances import load
from jigsaw_opt.problem import Instance
from jigsaw_opt.problem.power import PowerCap
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.scheduling.performance.stages import Stages
from jigsaw_opt.scheduling.policies.fifo import FIFO
from jigsaw_opt.scheduling.policy import Policy
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.inputs.clusters import grid
from jigsaw_opt.simulation.inputs.reading import read_setting
from tests.refusals import misuse, refuses
from tests.simulation.resumable import adaptive, by_type, plain, segmented, staged

MURI = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,iteration_time,"
    "resource_time_0,resource_time_1,resource_time_2\n"
)


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
    drawn = read_setting(trace, "server/plain", "fifo", draw_models=True, seed=4)
    assert isinstance(drawn.performance, Profiled)
    assert {job.model for job in drawn.workload.jobs} <= set(load("server/plain").models)
    path = tmp_path / "models.json"
    save_instance(load("server/plain"), path)
    other = read_setting(trace, "2x8:v100", "fifo", performance=f"profiled:{path}", draw_models=True, seed=4)
    assert [job.model for job in other.workload.jobs] == [job.model for job in drawn.workload.jobs]
    assert other.cluster != load_instance(path).cluster
    with pytest.raises(InvalidInputError, match="no model 'm'"):
        read_setting(trace, "2x8:v100", "fifo", performance=f"profiled:{path}")


def test_a_cluster_with_power_caps_is_refused(trace: str, tmp_path: Path, pair: Instance) -> None:
    caps = (PowerCap("room", (pair.cluster.servers[0].name,), 1),)
    path = tmp_path / "capped.json"
    save_instance(replace(pair, cluster=replace(pair.cluster, power_caps=caps)), path)
    with misuse("unsupported cluster", naming=["'room'"]):
        read_setting(trace, str(path), "fifo")


def test_tables_of_jobs_by_duration(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("id,user,num_gpu,time,run\na,me,2,5,3600\n")
    columns = "name=id,gpus=num_gpu,submit_s=time,duration_s=run"
    (job,) = read_setting(str(path), "2x4", "fifo", columns=columns).workload.jobs
    assert (job.name, job.gpus, job.submit_us, job.iterations) == ("a", 2, 5_000_000, 3600)
    with refuses(f"unsupported {path}:2", naming=["draw_models=True", "performance="]):
        read_setting(str(path), "server/plain", "fifo", columns=columns)
    (drawn,) = read_setting(str(path), "server/plain", "fifo", columns=columns, draw_models=True).workload.jobs
    assert drawn.model in load("server/plain").models
    with misuse("unknown-name workload", naming=["'size'"]):
        read_setting(str(path), "2x4", "fifo", columns="size=num_gpu")


def test_stages_come_with_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "muri.csv"
    path.write_text(MURI + "0,4,0,10,net,8,100,20,60,15\n")
    made = read_setting(f"muri:{path}", "2x4", "fifo", performance="stages")
    assert isinstance(made.performance, Stages)
    assert made.performance.unknown(made.workload.jobs[0]) is None
    path.write_text(MURI + "0,99,0,10,net,8,100,20,60,15\n")
    with refuses(f"unsupported {path}:2", naming=["99 GPUs", "8"]):
        read_setting(f"muri:{path}", "2x4", "fifo", performance="stages")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for name in (tmp_path / "missing.csv", tmp_path, "nul\0l"):
        with refuses(f"unreadable {name}"):
            read_setting(f"philly:{name}", "2x4", "fifo")


def test_inputs_tell_figures_apart(tmp_path: Path, pair: Instance) -> None:
    models, trace = tmp_path / "models.json", tmp_path / "trace.csv"
    trace.write_text("name,submit_s,model,gpus,iterations\na,0,net,1,100\n")
    net = pair.models["net"]
    slower = replace(net, segments=(replace(net.segments[0], backward_us={"v100": 601}), *net.segments[1:]))
    texts = []
    for model in (net, net, slower):
        save_instance(replace(pair, models={"net": model}), models)
        texts.append(read_setting(str(trace), "1x2:v100", "fifo", performance=f"profiled:{models}").inputs())
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
        return read_setting(**{**base, **change}).inputs()  # type: ignore[arg-type]

    assert inputs() == inputs(cluster="2x4:gpu")
    changes: list[dict[str, object]] = [{"policy": "las"}, {"policy": "srtf:measure=service"}, {"cluster": "4x2"}]
    changes += [{"round_s": 1.0}, {"restart_s": 1.0}, {"seed": 1}, {"contention": "fair"}]
    changes += [{"contention": "degraded:0"}, {"contention": "degraded:1"}]
    assert len({inputs(), *(inputs(**change) for change in changes)}) == len(changes) + 1


def test_what_the_policy_does_not_read_of_priorities_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "jobs.csv"
    rows = ("a,0,1,10,3,1,2,gpu,1", "b,0,1,10,1,0,2,gpu,", "c,0,1,10,1,0,,cpu,")
    names = "name,submit_s,gpus,duration_s,weight,foreground,priority,queue,preemptible"
    path.write_text("\n".join((names, *rows)) + "\n")

    def told(*words: str) -> list[str]:
        assert main([*words, "--cluster", "1x4", "-q", "-o", str(tmp_path / str(len(list(tmp_path.iterdir()))))]) == 0
        return [line for line in capsys.readouterr().err.splitlines() if "not read" in line]

    front, weight, queue = "place in the foreground (1 job)", "weight (1 job)", "queue (3 jobs)"
    unread = {
        "fifo": f"{weight}, {front}, priority (2 jobs), {queue}",  # which stops no job, whatever its flag is
        "separate": f"{weight}, priority (2 jobs), {queue}, preemptible flag (1 job)",
        "priority": f"{weight}, {front}, {queue}",
        "priority:by=weight": f"{front}, priority (2 jobs), {queue}",
    }
    for policy, what in unread.items():
        line = f"{path}: policy {policy.partition(':')[0]!r} does not read what sets jobs apart: {what}"
        assert told("simulate", "--workload", str(path), "--policy", policy) == [line]
    every = told("advise", str(path), "--seeds", "0", "--baseline", "fifo", "--policy", "srtf", "las", "separate")
    rest = f"{unread['fifo']}, preemptible flag (1 job)"
    assert every == [
        f"{path}: policy 'fifo' does not read what sets jobs apart: {unread['fifo']}",
        f"{path}: policies 'srtf', 'las' do not read what sets jobs apart: {rest}",
        f"{path}: policy 'separate' does not read what sets jobs apart: {unread['separate']}",
    ]


def test_a_policy_that_declares_nothing_may_read_all() -> None:
    jobs = (TraceJob("a", 0, "seconds", 1, 1, weight=2, priority=1), TraceJob("b", 0, "seconds", 1, 1))
    policy = SimpleNamespace(name="own", display_name="own", options={}, start=FIFO.start)
    made = read_setting(Workload("two", jobs), "1x4", cast(Policy, policy))
    assert made.unread() == ""
    policy.reads = {"priority"}
    assert made.unread() == "weight (1 job)"


@pytest.mark.parametrize(
    ("policy", "what"),
    [
        ("priority:by=priority", "priority"),
        ("priority:by=weight", "weight"),
        ("multifactor:priority_weight_partition=1", "queue"),
        ("multifactor:priority_weight_qos=1", "QOS"),
    ],
)
def test_an_option_that_goes_by_what_no_job_states_is_refused(
    policy: str, what: str, trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = [trace, "--cluster", "2x4", "-q", "-o", str(tmp_path / "out")]
    assert main(["simulate", "--policy", policy, "--workload", *run]) == 2
    assert main(["advise", "--policy", policy, "--baseline", "fifo", "--seeds", "0", *run]) == 2
    told = f"is to go by the {what} of jobs, and no job states one"
    assert capsys.readouterr().err.count(told) == 2 and not (tmp_path / "out").exists()
    assert read_setting(trace, "2x4", policy.partition(":")[0]).policy is not None
