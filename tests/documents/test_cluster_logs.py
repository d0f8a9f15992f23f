"""Workloads from the job lists of Slurm, Kubernetes and Helios, and every problem of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.documents.readers.traces import read_trace
from jigsaw_opt.problem.workload import TraceJob
from tests.documents.test_traces import problems, refusals
from tests.refusals import carries

DATA = Path(__file__).parents[1] / "data"
SLURM = "JobID|Submit|Start|End|AllocTRES\n"
START = "2026-01-31T08:00:00"


def test_jobs_of_slurm() -> None:
    workload = read_trace("slurm", (DATA / "jobs.sacct.txt").read_bytes(), "w")
    assert workload.jobs == (
        TraceJob("101", 0, "seconds", 8, 7200, start_us=60_000_000, end_us=7_260_000_000, ran_on="a100"),
        TraceJob(
            *("102_1", 10_000_000, "seconds", 1, 1),
            start_us=600_000_000,
            end_us=600_000_000,
            gpu_types=("a100",),
            ran_on="a100",
            array="102",  # type: ignore[arg-type]
        ),
        TraceJob("106", 3_000_000_000, "seconds", 6, 30, start_us=3_060_000_000, end_us=3_090_000_000),
    )
    assert workload.remarks["jobs with GPUs of several types at once, which here run on one of these types"] == 1


def test_what_slurm_jobs_ask_for() -> None:
    head = "JobID|Submit|Start|End|AllocTRES|ReqTRES|Partition|Constraints|SubmitLine\n"
    times = f"{START}|{START}|2026-01-31T09:00:00"
    v100, a100, one = "gres/gpu:v100=1,gres/gpu=1", "gres/gpu=1,gres/gpu:A100=1", "gres/gpu=1"
    lines = (
        f"1|{times}|{v100}|{v100}|old||sbatch -p old a.sh --gres=gpu:h100:1\n",
        f"2|{times}|{a100}|{one}|new||sbatch --gres=gpu:A100:1 --dependency=afterok:1:9,afterany:3_1 b.sh\n",
        f"3_1|{times}|{a100}|{one}|both|[A100*1]&nvlink|sbatch --array 1-9%2 -d aftercorr:4 b.sh\n",
        f"4_1|{times}|{v100}|{one}|both|bigmem|sbatch -G1 -dsingleton b.sh\n",
        f"4_2|{times}|{a100}|{one}|both||sbatch -C 'a100|v100' -d after:1+5 b.sh\n",
        f"5|{times}|{v100}|{one}|old||sbatch 'b.sh\n",
        f"6|{times}|{a100}|{one}|new||sbatch --gpus-per-node a100:1 -d afterok:1?afterany:3 a.sh\n",
    )
    workload = read_trace("slurm", head + "".join(lines), "t")
    found = {job.name: (job.gpu_types, job.ran_on, job.after, job.array, job.array_limit) for job in workload.jobs}
    assert found == {
        "1": (("v100",), "v100", None, None, None),
        "2": (("a100",), "a100", ("1", "9", "3_1"), None, None),
        "3_1": (("a100",), "a100", ("4_1",), "3", 2),
        "4_1": (None, "v100", None, "4", None),
        "4_2": (("a100", "v100"), "a100", None, "4", None),
        "5": (("v100",), "v100", None, None, None),
        "6": (("a100",), "a100", ("1", "3"), None, None),
    }
    assert workload.remarks == {
        "dependencies of which any one is enough, of which all are waited for here": 1,
        "dependencies of the kind singleton, which are not read without JobName": 1,
        "dependencies of the kind after, which are not read": 1,
        "jobs with a constraint that names no type of GPU of the trace, which is not read": 1,
        "jobs that name no type of GPU, which may run on any": 1,
        "jobs that name no type of GPU, which are taken to need those on which jobs of their partition ran": 1,
    }


def test_singletons_of_slurm_wait_for_earlier_jobs_of_their_name_and_user() -> None:
    head = "JobID|State|Submit|Start|End|AllocTRES|ReqTRES|User|JobName|SubmitLine\n"
    ran, waits = f"{START}|2026-01-31T09:00:00|gres/gpu=1|", "Unknown|Unknown||gres/gpu=1"
    lines = [
        f"{job}|COMPLETED|2026-01-31T07:0{job}:00|{ran}|{user}|{name}|sbatch {words} b.sh\n"
        for job, user, name, words in (
            ("1", "ann", "train", ""),
            ("2", "ann", "train", ""),
            ("5", "ann", "train", "-d singleton"),
            ("4", "ann", "train", "-d singleton,afterok:1"),
            ("3", "ann", "other", "--dependency=singleton"),
            ("6", "ann", "train", ""),
            ("7", "bob", "train", "-dsingleton"),
        )
    ]
    lines += [
        f"{job}|PENDING|2026-01-31T07:0{job[0]}:00|{waits}|ann|train|sbatch -d singleton b.sh\n"
        for job in ("8_[1-2]", "8_5", "9")
    ]
    workload = read_trace("slurm", head + "".join(lines), "t")
    assert {job.name: job.after for job in workload.jobs} == dict.fromkeys("12367") | {"4": ("1", "2"), "5": ("4",)}
    waiting = {job.name: job.after for job in workload.unfinished}
    assert waiting == dict.fromkeys(("8_1", "8_2"), ("5", "6")) | {"8_5": None, "9": ("8", "8_5")}
    assert workload.remarks == {}


def test_what_slurm_states_of_a_job() -> None:
    head = "JobID|Submit|Start|End|Elapsed|AllocTRES|Timelimit|TimelimitRaw|User|Account|Partition|QOS|Priority\n"
    end = "2026-01-31T09:00:00|01:00:00|gres/gpu=1"
    lines = (
        f"1|{START}|{START}|{end}|2-00:00:00||ann|lab|gpu|normal|4294\n",
        f"2|{START}|{START}|{end}|UNLIMITED|30|bob|lab|gpu||0\n",
        f"3+0|{START}|{START}|{end}|01:00:00||ann|lab|gpu|normal|7\n",
        f"3+1|{START}|{START}|{end}|02:00:00||ann|lab|cpu|normal|7\n",
        f"4|{START}|{START}|{end}|Partition_Limit||||||\n",
    )
    workload = read_trace("slurm", head + "".join(lines), "t")
    one, two, three, four = workload.jobs
    assert (one.time_limit_us, one.user, one.account, one.queue, one.qos, one.priority) == (
        *(172_800_000_000, "ann", "lab"),
        *("gpu", "normal", 4294),
    )
    assert (two.time_limit_us, two.qos, two.priority) == (1_800_000_000, None, 0)
    assert (three.time_limit_us, three.queue, three.start_us, three.end_us) == (7_200_000_000, "gpu", 0, 3_600_000_000)
    assert (four.time_limit_us, four.user, four.priority) == (None, None, None)
    assert workload.remarks["jobs that ran longer than their Timelimit"] == 1
    assert problems("slurm", head + f"1|{START}|{START}|{end}|soon||||||\n") == [
        "t:2: Timelimit is a number, not 'soon'"
    ]


def test_jobs_of_slurm_without_a_gpu_are_counted_whatever_they_do() -> None:
    head = "JobID|State|Submit|Start|End|AllocTRES\n"
    lines = (
        f"1|COMPLETED|{START}|{START}|2026-01-31T09:00:00|gres/gpu=1\n",
        f"2|COMPLETED|{START}|{START}|2026-01-31T09:00:00|\n",
        f"3|PENDING|{START}|Unknown|Unknown|\n",
    )
    workload = read_trace("slurm", head + "".join(lines), "t")
    assert [job.name for job in workload.jobs] == ["1"] and workload.unfinished == ()
    assert workload.left_out == {"without a GPU": 1, "still pending": 1}


def test_tasks_of_an_array_that_wait_count_each() -> None:
    head = "JobID|State|Submit|Start|End|AllocTRES|ReqTRES\n"
    ran = f"1|COMPLETED|{START}|{START}|2026-01-31T09:00:00|gres/gpu=1|gres/gpu=1\n"
    waiting = "".join(
        f"{name}|PENDING|{START}|Unknown|Unknown||gres/gpu=1\n"
        for name in ("7_[1,4-8:4]", "8_[3-9%2]", "9_[0-99,...]", "10_2")
    )
    assert read_trace("slurm", head + ran + waiting, "t").left_out == {"still pending": 3 + 7 + 1 + 1}


def test_every_problem_of_slurm() -> None:
    good = f"1|{START}|{START}|{START}|gres/gpu=1\n"
    wrong = f"2|yesterday|{START}|{START}|gres/gpu=1\n3|{START}|{START}|2026-01-30T08:00:00|gres/gpu=2\n4|{START}\n"
    assert problems("slurm", SLURM + wrong) == [
        "t:2: Submit is a date and time as 2026-01-31 08:30, not 'yesterday'",
        "t:3: End is before Start",
        "t:4: 2 cells under 5 columns",
    ]
    workload = read_trace("slurm", SLURM + good + wrong, "t")
    assert [job.name for job in workload.jobs] == ["1"]
    assert workload.left_out == {
        "with a record that is wrong: more or fewer cells than there are columns": 1,
        "with a record that is wrong: Submit is not a date and time as 2026-01-31 08:30": 1,
        "with a record that is wrong: End is before Start": 1,
    }
    assert problems("slurm", SLURM + f"1|{START}|Unknown|Unknown|gres/gpu=1\n") == [
        "t: has no job (1 of 1 jobs left out: 1 never started)"
    ]
    assert carries(problems("slurm", "JobID|Submit|Start|End\n")[0], "column", "'AllocTRES'")


def test_jobs_of_kubernetes() -> None:
    workload = read_trace("kubernetes", (DATA / "jobs.kubernetes.json").read_bytes(), "w")
    assert workload.jobs == (
        TraceJob("vision/resnet", 0, "seconds", 8, 600, start_us=10_000_000, end_us=610_000_000),
        TraceJob("research/bert", 60_000_000, "seconds", 8, 3600, start_us=65_000_000, end_us=3_665_000_000),
    )


def test_items_of_kubernetes_that_stand_there_twice_and_names_of_two_kinds() -> None:
    stated = {"namespace": "ml", "creationTimestamp": f"{START}Z"}
    before = kubernetes_job(metadata={"name": "a", "uid": "1", **stated}, status={"startTime": f"{START}Z"})
    after = {**before, "status": {"startTime": f"{START}Z", "completionTime": "2026-01-31T09:30:00Z"}}
    tasks = [{"replicas": 3, "template": after["spec"]["template"]}]
    other = {"kind": "Job", "apiVersion": "batch.volcano.sh/v1alpha1", "metadata": {**after["metadata"], "uid": "2"}}
    state = {"state": {"phase": "Completed", "lastTransitionTime": "2026-01-31T10:30:00Z"}}
    state["conditions"] = [{"status": "Running", "lastTransitionTime": f"{START}Z"}]
    workload = read_trace(
        "kubernetes", json.dumps({"items": [before, {**other, "spec": {"tasks": tasks}, "status": state}, after]}), "t"
    )
    assert sorted((job.name, job.gpus, (job.duration_us or 0) // 10**6) for job in workload.jobs) == [
        ("ml/a", 3, 9000),
        ("ml/a (2)", 1, 5400),
    ]
    assert workload.unfinished == () and sum(workload.remarks.values()) == 2


def asking(amount: str) -> str:
    spec = {"template": {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": amount}}}]}}}
    return json.dumps({"items": [kubernetes_job(spec=spec)]})


@pytest.mark.parametrize(
    ("amount", "gpus"), [("2", 2), ("2000m", 2), ("1k", 1000), ("1e1", 10), ("+2.0", 2), ("1Ki", 1024)]
)
def test_quantities_of_kubernetes(amount: str, gpus: int) -> None:
    assert [job.gpus for job in read_trace("kubernetes", asking(amount), "t").jobs] == [gpus]


def test_one_job_of_kubernetes_is_no_list() -> None:
    one = {"apiVersion": "batch/v1", "kind": "Job", **kubernetes_job()}
    assert [job.name for job in read_trace("kubernetes", json.dumps(one), "t").jobs] == ["default/a"]
    assert refusals("kubernetes", json.dumps({"spec": {}})) == ["wrong-type $.items"]


@pytest.mark.parametrize("amount", ["1500m", "-1", "0.5", "2G", "two", ""])
def test_quantities_that_are_no_number_of_gpus(amount: str) -> None:
    path = '$.items[0].spec.template.spec.containers[0].resources.limits["nvidia.com/gpu"]'
    assert refusals("kubernetes", asking(amount)) == [f"wrong-type {path}"]


HELIOS = (DATA / "jobs.helios.csv").read_text()


def test_jobs_of_helios() -> None:
    assert read_trace("helios", HELIOS, "w").jobs == (
        TraceJob("13", 0, "seconds", 16, 1, start_us=1_000_000, end_us=1_000_000, user="u1"),
        TraceJob("11", 30_000_000, "seconds", 8, 7200, start_us=300_000_000, end_us=7_500_000_000, user="u1"),
        TraceJob("15", 600_000_000, "seconds", 1, 3600, start_us=610_000_000, end_us=4_210_000_000, user="u3"),
    )


def test_every_problem_of_helios() -> None:
    text = HELIOS.replace(",8,64,", ",8.5,64,").replace("2020-04-01 08:00:00,", "now,").replace(",3600,", ",-1,")
    assert problems("helios", text) == [
        "t:2: gpu_num is a whole number, not 8.5",
        "t:4: submit_time is a date and time as 2026-01-31 08:30, not 'now'",
        "t:6: duration is negative: -1",
    ]
    assert problems("helios", HELIOS[: HELIOS.index("13,u1")].replace("11,u1,8", "11,u1,0")) == [
        "t: has no job (2 of 2 jobs left out: 2 without a GPU)"
    ]


def kubernetes_job(**changes: Any) -> dict[str, Any]:
    container = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    return {
        "metadata": {"name": "a", "creationTimestamp": f"{START}Z"},
        "spec": {"template": {"spec": {"containers": [container]}}},
        "status": {"startTime": f"{START}Z", "completionTime": f"{START}Z"},
        **changes,
    }


def test_every_problem_of_kubernetes() -> None:
    times = {"startTime": f"{START}Z", "completionTime": "2026-01-30T08:00:00Z"}
    items = [
        kubernetes_job(metadata={"name": 7, "creationTimestamp": "soon"}),
        kubernetes_job(metadata={"name": "b", "creationTimestamp": f"{START}Z"}, status=times),
        kubernetes_job(spec={"parallelism": -1, "template": []}),
        kubernetes_job(metadata={"name": "c", "ownerReferences": 5}),
    ]
    wrong = [
        "wrong-type $.items[0].metadata.name",
        "malformed $.items[0].metadata.creationTimestamp",
        "wrong-order $.items[1].status",
        "out-of-range $.items[2].spec.parallelism",
        "wrong-type $.items[2].spec.template",
    ]
    assert refusals("kubernetes", json.dumps({"items": items})) == [
        "wrong-type $.items[3].metadata.ownerReferences",
        *wrong,
    ]
    right = kubernetes_job(metadata={"name": "r", "creationTimestamp": f"{START}Z"})
    workload = read_trace("kubernetes", json.dumps({"items": [*items, right]}), "t")
    assert [job.name for job in workload.jobs] == ["default/r"] and workload.unfinished == ()
    assert workload.left_out == {
        "with a record that is wrong: a list or an object is expected": 1,
        "with a record that is wrong: a text is expected": 1,
        "with a record that is wrong: it ends before it starts": 1,
        "with a record that is wrong: a whole number from 0 to 1000000 is expected": 1,
    }
    assert refusals("kubernetes", '{"items": []}') == ["empty $.items"]
    assert problems("kubernetes", "[]")[0].startswith("t: not a JSON object")
    assert carries(problems("kubernetes", '{"items": 3}')[0], "list", "expected")
