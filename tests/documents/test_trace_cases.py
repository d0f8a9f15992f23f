"""Small logs from the field, and what is right of them: jobs, what is left out of them, and why."""

from __future__ import annotations

import copy
import csv
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents.readers.traces import read_trace
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem.workload import Workload
from jigsaw_opt.simulation.engine.recorded import why_no_record
from jigsaw_opt.simulation.simulate import simulate
from tests.refusals import carries, refuses

CASES = Path(__file__).parents[1] / "data" / "cases"


def read(name: str, path: str) -> Workload:
    return read_trace(name, (CASES / path).read_bytes(), path)


def told(workload: Workload) -> list[tuple[str, float, int, float]]:
    """Name, submission in seconds, GPUs and duration in seconds of each job."""
    return [(job.name, job.submit_us / 1e6, job.gpus, (job.duration_us or 0) / 1e6) for job in workload.jobs]


def test_records_of_slurm_of_many_kinds() -> None:
    workload = read("slurm", "slurm/sacct_basic.txt")
    assert told(workload) == [
        ("101_1", 0, 1, 1800),
        ("100", 90_000, 8, 180_030),
        ("102", 93_600, 6, 3600),
        ("103", 94_200, 3, 2),
        ("107", 96_000, 2, 3600),
        ("108", 96_600, 1, 3600),
    ]
    assert workload.reading_told() == [
        "13 of 19 jobs left out: 9 still pending, 2 cancelled while pending, 1 not ended, "
        "1 with a share of a GPU only (gres/shard)",
        "jobs with GPUs of several types at once, which here run on one of these types: 1",
        "jobs with parts of GPUs (MIG), each of which counts as one GPU: 1",
        "jobs that name no type of GPU, which may run on any: 8",
        "further components of heterogeneous jobs, each counted with its job: 1",
    ]


def test_the_last_record_of_a_job_counts() -> None:
    workload = read("slurm", "slurm/sacct_dup.txt")
    assert ("103", 94_200, 3, 602) in told(workload)
    assert workload.remarks["earlier records of a job passed over, as its last one counts (sacct -D)"] == 1


def slurm(*lines: str, head: str = "JobID|State|Submit|Start|End|Elapsed|AllocTRES|ReqTRES") -> Workload:
    return read_trace("slurm", "\n".join([head, *lines, ""]), "t")


HOUR_US = 3_600_000_000
A, B, C = "2024-03-02T10:00:00", "2024-03-02T11:00:00", "2024-03-02T12:00:00"


def test_what_was_asked_for_stands_in_only_where_the_job_ran() -> None:
    ran = f"1|COMPLETED|{A}|{B}|{C}|01:00:00||cpu=1,gres/gpu=4"
    workload = slurm(ran, f"2|NODE_FAIL|{A}|{B}|{B}|00:00:00||gres/gpu=4", f"3|CANCELLED|{A}|Unknown|{B}|00:00:00||")
    assert told(workload) == [("1", 0, 4, 3600)]
    assert workload.left_out == {"never started": 1, "cancelled while pending": 1}
    assert workload.remarks == {"jobs whose AllocTRES is empty though they ran, with the GPUs of ReqTRES": 1}


def test_gpus_of_early_versions_stand_in_a_column_of_their_own() -> None:
    head = "JobID|Submit|Start|End|Elapsed|AllocTRES|AllocGRES"
    cells = ("gpu:4", "gpu:v100:2", "craynetwork:1,gpu:v100:2(S:0-1)", "", "craynetwork:4")
    lines = (f"{number}|{A}|{B}|{C}|01:00:00|cpu=8,node=1|{cell}" for number, cell in enumerate(cells))
    workload = slurm(*lines, f"9|{A}|{B}|{C}|01:00:00|gres/gpu=3|gpu:4", head=head)
    assert {job.name: (job.gpus, job.ran_on) for job in workload.jobs} == {
        "0": (4, None),
        "1": (2, "v100"),
        "2": (2, "v100"),
        "9": (3, None),
    }
    assert workload.left_out == {"without a GPU": 2}


def test_elapsed_in_any_form_and_bars_at_the_end() -> None:
    head = "AllocTRES|End|Start|Submit|JobName|JobID|ElapsedRaw|"
    quote = slurm(f'gres/gpu=2|{C}|{B}|{A}|"x|5|90061|', head=head)
    assert told(quote) == [("5", 0, 2, 90_061)]
    short = slurm(f"6|COMPLETED|{A}|{B}|{C}|02:03|gres/gpu=1|", f"9|COMPLETED|{A}|{B}|{C}|INVALID|gres/gpu=1|")
    assert told(short) == [("6", 0, 1, 123), ("9", 0, 1, 3600)]


def test_a_job_that_has_ended_does_not_run_though_its_end_is_unknown() -> None:
    gpu = "gres/gpu=1|gres/gpu=1"
    workload = slurm(
        f"1|COMPLETED|{A}|{B}|Unknown|01:00:00|{gpu}",
        f"2|CANCELLED by 7|{A}|{B}|Unknown|xx|{gpu}",
        f"3|RUNNING|{A}|{B}|Unknown|00:10:00|{gpu}",
        f"4|COMPLETING|{A}|{B}|Unknown|00:10:00|{gpu}",
    )
    (job,) = workload.jobs
    assert (job.name, job.duration_us, job.end_us) == ("1", HOUR_US, 2 * HOUR_US)
    assert [job.name for job in workload.unfinished] == ["3", "4"]
    assert workload.left_out == {"ended, with no End and no Elapsed that is a time": 1, "not ended": 2}
    assert workload.remarks == {"jobs that have ended without an End, which is taken to be Start and Elapsed": 1}


def test_an_end_before_the_start_is_refused_but_for_a_change_of_the_clocks() -> None:
    gpu = "gres/gpu=1|gres/gpu=1"
    (job,) = slurm(f"1|COMPLETED|{A}|{B}|{A}|00:10:00|{gpu}").jobs
    assert job.duration_us == HOUR_US // 6
    with refuses("wrong-order t:2"):
        slurm(f"1|COMPLETED|{A}|{C}|{A}|00:10:00|{gpu}")


def test_elapsed_tells_the_end_over_a_change_of_the_clocks() -> None:
    gpu = "gres/gpu=1|gres/gpu=1"
    workload = slurm(
        f"1|COMPLETED|{A}|{B}|2024-03-02T14:00:00|02:00:00|{gpu}",  # the clocks were put forward
        f"2|COMPLETED|{A}|{B}|{C}|02:00:00|{gpu}",  # or back
        f"3|COMPLETED|{B}|{A}|{C}|01:00:00|{gpu}",  # between submission and start
        f"4|COMPLETED|{A}|{A}|{C}|01:59:00|{gpu}",  # was suspended for a minute
        f"5|COMPLETED|{C}|2024-03-02T09:00:00|{C}|03:00:00|{gpu}",
    )
    assert [(job.name, (job.start_us or 0) / HOUR_US, (job.end_us or 0) / HOUR_US) for job in workload.jobs] == [
        ("1", 1, 3),
        ("2", 1, 3),
        ("4", 0, 2),
        ("3", 1, 2),
    ]
    assert why_no_record(workload) is None
    assert workload.left_out == {"with a record that is wrong: Start is before Submit": 1}
    assert sorted(workload.remarks.values()) == [1, 1, 3]


def test_bars_and_line_breaks_in_names_and_commands() -> None:
    assert told(read("slurm", "field/sacct_multiline.txt")) == [
        ("911", 0, 2, 3600),
        ("912", 600, 1, 1800),
        ("913", 1200, 4, 7200),
    ]
    head = "JobID|JobName|State|Submit|Start|End|Elapsed|AllocTRES|ReqTRES|User|SubmitLine"
    rest = f"COMPLETED|{A}|{B}|{C}|01:00:00|gres/gpu=1|gres/gpu=1|ann"
    workload = slurm(
        f"1|a|b|{rest}|sbatch -d afterok:7 x.sh",
        f"2|a|b||{rest}|sbatch --wrap 'x | y || z'",
        f"3|plain|{rest}|sbatch --wrap 'cat <<E",
        "1|2|3",  # in the command, as a record that is too short
        "E'",
        "4|two",
        f"lines|{rest}|",
        f"5|a|{rest}|srun|sh",
        head=head,
    )
    assert [job.name for job in workload.jobs] == ["1", "2", "3", "4", "5"]
    assert workload.left_out == {"with a record that is wrong: more or fewer cells than there are columns": 1}
    assert workload.jobs[0].after == ("7",)
    piped = f"1|{rest}|name|sbatch -d afterok:7 --wrap 'x | srun y'"
    (job,) = slurm(piped, head=head.replace("JobName|", "").replace("SubmitLine", "JobName|SubmitLine")).jobs
    assert job.after == ("7",)
    assert {job.user for job in workload.jobs} == {"ann"}


def test_jobs_that_wait_for_a_time_or_a_reservation_tell_nothing_of_waiting() -> None:
    head = "JobID|State|Submit|Start|End|Elapsed|AllocTRES|ReqTRES|NodeList|Reservation|SubmitLine"
    rest = f"COMPLETED|{A}|{B}|{C}|01:00:00|gres/gpu=1|gres/gpu=1"
    workload = slurm(
        f"1|{rest}|n[01-02]||sbatch -b 11:00 a.sh",
        f"2|{rest}|None assigned||sbatch --reservation=big a.sh",
        f"3|{rest}|n1|maint|sbatch a.sh",
        f"4|COMPLETED|{A}|{A}|{C}|02:00:00|gres/gpu=1|gres/gpu=1|n1||sbatch --begin=now a.sh",
        head=head,
    )
    assert [(job.held_by, job.nodes) for job in workload.jobs] == [
        ("begin", ("n01", "n02")),
        ("reservation", None),
        ("reservation", ("n1",)),
        (None, ("n1",)),
    ]
    summary = simulate(workload, "1x8:a100", "recorded").summary
    assert (summary.mean_waiting_h, summary.longest_waiting_h) == (0, 0)
    assert (
        workload.remarks["jobs that a time (--begin) or a reservation holds back, which are left out of waiting times"]
        == 3
    )


@pytest.mark.parametrize("amount", ["", "4.5", "-1", "x", "99999999"])
def test_numbers_of_gpus_that_are_none(amount: str) -> None:
    with refuses("malformed t:2"):
        slurm(f"1|COMPLETED|{A}|{B}|{C}|01:00:00|cpu=1,gres/gpu:a100={amount}|")


def test_shares_of_gpus_of_kubernetes_are_no_gpus() -> None:
    workload = read("kubernetes", "kubernetes/k8s_gpushare.json")
    assert [(job.name, job.gpus) for job in workload.jobs] == [
        ("ml/a-whole", 8),
        ("ml/b-share", 1),
        ("ml/c-volcano", 1),
        ("ml/d-few", 4),
        ("ml/e-mig", 1),
        ("ml/f-shared", 1),
    ]
    assert sum(workload.remarks.values()) == 4
    assert not workload.left_out


def test_jobs_of_volcano_and_kubeflow() -> None:
    assert told(read("kubernetes", "kubernetes/k8s_kinds.json")) == [("ml/vc", 0, 6, 3600)]
    assert told(read("kubernetes", "kubernetes/k8s_mpi.json")) == [
        ("ml/mpi", 0, 16, 3610),
        ("ml/pt", 600, 16, 1800),
        ("ml/frac", 1200, 1, 1200),
    ]


def kubernetes(*items: dict[str, Any]) -> Workload:
    return read_trace("kubernetes", json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), "t")


def at(minute: int) -> str:
    return f"2024-03-01T08:{minute:02}:00Z"


def item(kind: str, api: str, name: str, spec: Any, status: Any, **meta: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ml", "creationTimestamp": at(0), **meta}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec, "status": status}


def container(resource: str = "nvidia.com/gpu", amount: Any = 2, part: str = "limits", **more: Any) -> dict[str, Any]:
    return {"resources": {part: {resource: amount}}, **more}


def pod(name: str, begin: int, end: int | None, owner: str = "train", phase: str = "Succeeded") -> dict[str, Any]:
    state = {"running": {"startedAt": at(begin)}} if end is None else {"terminated": {"finishedAt": at(end)}}
    status = {"phase": phase, "startTime": at(begin), "containerStatuses": [{"state": state}]}
    owners = [{"kind": "RayCluster", "name": owner, "controller": True}]
    return item("Pod", "v1", name, {"containers": [container()]}, status, ownerReferences=owners)


def test_pods_of_one_owner_are_a_job() -> None:
    gang = [pod("a", 1, 30), pod("b", 2, 31), pod("again", 31, 41)]
    workload = kubernetes(*gang, pod("c", 3, None, "other", "Running"), pod("d", 5, 6, "third", "Failed"))
    assert told(workload) == [("ml/train", 0, 4, 2400), ("ml/third", 0, 2, 60)]
    assert workload.left_out == {"not ended": 1}


def test_workloads_of_kueue_and_what_belongs_to_another_item() -> None:
    times = [
        {"type": "QuotaReserved", "status": "True", "lastTransitionTime": at(5)},
        {"type": "Admitted", "status": "True", "lastTransitionTime": at(10)},
        {"type": "Finished", "status": "True", "lastTransitionTime": at(40)},
    ]
    sets = [{"name": "main", "count": 4, "template": {"spec": {"containers": [container()]}}}]
    fewer = {"admission": {"podSetAssignments": [{"name": "main", "count": 3}]}}
    owner = [{"kind": "Job", "name": "x"}]
    workload = kubernetes(
        item("Workload", "kueue.x-k8s.io/v1beta1", "w", {"podSets": sets}, {"conditions": times}),
        item("Workload", "kueue.x-k8s.io/v1beta1", "v", {"podSets": sets}, {"conditions": times, **fewer}),
        item("Workload", "kueue.x-k8s.io/v1beta1", "u", {"podSets": sets}, {"conditions": times[:1]}),
        item("Workload", "kueue.x-k8s.io/v1beta1", "of-x", {"podSets": sets}, {}, ownerReferences=owner),
        item("Job", "batch/v1", "x", {"template": {"spec": {"containers": [container()]}}}, {"startTime": at(1)}),
    )
    assert told(workload) == [("ml/w", 0, 8, 1800), ("ml/v", 0, 6, 1800)]
    assert workload.left_out == {"not ended": 2}
    assert workload.remarks == {"items that belong to a job of the list, counted with it": 1}


def test_the_jobs_of_a_jobset_are_one_gang() -> None:
    workload = read("kubernetes", "field/jobset_children.json")
    assert told(workload) == [("ml/rival", 0, 4, 3600), ("ml/big", 10, 8, 3600)]
    starts = [job.start_us for job in simulate(workload, "1x8:a100", "priority:blocked=pass", restart_s=0).outcome.jobs]
    assert starts == [0, HOUR_US]
    tree = json.loads((CASES / "field" / "jobset_children.json").read_text())
    child = tree["items"][-1]
    del child["metadata"]["labels"]  # its owner says it too
    own = [{"kind": "JobSet", "name": "big"}]
    tree["items"] += [
        item("JobSet", "jobset.x-k8s.io/v1alpha2", "big", {}, {}),
        item("Workload", "kueue.x-k8s.io/v1beta1", "w", {"podSets": []}, {}, ownerReferences=own),
    ]
    assert kubernetes(*tree["items"]).remarks == {"items that belong to a job of the list, counted with it": 2}
    del child["status"]["completionTime"], child["status"]["conditions"]
    assert [(job.name, job.gpus) for job in kubernetes(*tree["items"]).unfinished] == [("ml/big", 2)]


def test_pods_that_were_evicted_or_lost() -> None:
    right = [("ml/evi", 0, 2, 4800), ("ml/oth", 300, 1, 1800)]
    by_condition = read("kubernetes", "field/pods_evicted_condition.json")
    assert told(by_condition) == right and not by_condition.remarks
    untold = read("kubernetes", "field/pods_evicted.json")
    assert told(untold) == right
    assert list(untold.remarks.values()) == [1]
    lost = pod("a", 1, 30, phase="Failed")
    lost["status"]["containerStatuses"] = [
        {"state": {"terminated": {"reason": "ContainerStatusUnknown", "finishedAt": None}}}
    ]
    again = pod("b", 20, 30)
    assert kubernetes(lost, pod("c", 1, 2, "other")).left_out == {"ended without a time of end": 1}
    lost["status"]["conditions"] = [{"type": "Ready", "status": "False", "lastTransitionTime": at(11)}]
    assert told(kubernetes(lost)) == [("ml/train", 0, 2, 600)]
    assert told(kubernetes(lost, again)) == [("ml/train", 0, 2, 1740)]
    lost["status"] |= {"phase": "Unknown", "containerStatuses": None}
    assert kubernetes(lost, pod("c", 1, 2, "other")).left_out == {"not ended": 1}
    lost["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "lastTransitionTime": at(21)}]
    assert told(kubernetes(lost)) == [("ml/train", 0, 2, 1200)]


def test_workloads_of_kueue_that_were_preempted() -> None:
    sets = {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [container()]}}}]}

    def conditions(**status: tuple[str, int]) -> list[dict[str, str]]:
        return [{"type": kind, "status": told, "lastTransitionTime": at(k)} for kind, (told, k) in status.items()]

    again = conditions(Admitted=("True", 30), Evicted=("False", 30), Finished=("True", 40))
    released = conditions(Admitted=("False", 40), Finished=("True", 40))
    api = "kueue.x-k8s.io/v1beta2"
    workload = kubernetes(
        item("Workload", api, "last", sets, {"conditions": again}),
        item("Workload", api, "all", sets, {"conditions": again, "accumulatedPastExecutionTimeSeconds": 300}),
        item("Workload", api, "once", sets, {"conditions": released, "accumulatedPastExexcutionTimeSeconds": 1200}),
    )
    assert told(workload) == [("ml/last", 0, 2, 600), ("ml/all", 0, 2, 900), ("ml/once", 0, 2, 1200)]
    assert workload.remarks == {
        "Workloads of Kueue that were admitted several times, of which only the last counts": 1,
        "Workloads of Kueue that were admitted several times, which last as long as all admissions together": 1,
    }


def test_kinds_that_are_not_read_are_named() -> None:
    good = item("Job", "batch/v1", "x", {"template": {"spec": {"containers": [container()]}}}, {})
    good["status"] = {"startTime": at(1), "completionTime": at(2)}
    others = [item("Service", "v1", "z", {}, {}), *(item("Job", f"{n}.io/v1", f"y{n}", {}, {}) for n in range(20))]
    workload = kubernetes(good, *others)
    expected = ["Service of core", *(f"Job of {n}.io" for n in range(20))]
    assert workload.left_out == {f"of a kind that is not read ({kind})": 1 for kind in expected}
    assert workload.reading_told()[0].endswith(", 13 for other reasons")


def spots(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every object or list in a tree, with each key of it."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield tree, key
        yield from spots(tree[key])


ODD = (None, True, -1, 3.5, "", "x", "NaN", [], {}, [None], {"a": 1}, 10**20, "2024-03-01", "0001-01-01T00:00:00+14:00")


def test_odd_values_anywhere_are_left_out_or_told_once() -> None:
    draw = random.Random(1)
    kueue = item(
        "Workload", "kueue.x-k8s.io/v1beta1", "w", {"podSets": [{"name": "m", "count": 4}]}, {"conditions": []}
    )
    logs = [json.loads(path.read_text()) for path in sorted((CASES / "kubernetes").iterdir())]
    logs += [{"items": [pod("a", 1, 30), pod("b", 2, 31), kueue]}]
    philly = json.loads((CASES.parent / "jobs.philly.json").read_text())
    outcomes = Counter[str]()
    for number in range(600):
        tree = copy.deepcopy(philly if number % 2 else draw.choice(logs))
        for _ in range(draw.randint(1, 3)):
            within, key = draw.choice([*spots(tree), (tree, 0 if number % 2 else "items")])
            within[key] = copy.deepcopy(draw.choice(ODD))
        try:
            workload = read_trace("philly" if number % 2 else "kubernetes", json.dumps(tree), "t")
        except InvalidInputError as error:
            told = [str(problem) for problem in error.problems]
            assert len(set(told)) == len(told)
            outcomes["refused"] += 1
        else:
            assert all(job.gpus > 0 and (job.duration_us or 0) > 0 for job in workload.jobs)
            outcomes["read"] += 1
    assert min(outcomes["read"], outcomes["refused"]) > 50


@pytest.mark.parametrize(
    ("spec", "gpus"),
    [
        ({"containers": [container()], "initContainers": [container(amount="4")]}, 4),
        ({"containers": [container()], "initContainers": [container(amount=1, restartPolicy="Always")]}, 3),
        ({"containers": [container(), container("amd.com/gpu", "3", "requests")]}, 5),
        ({"containers": [container("gpu.intel.com/i915", 2), container("gpu.intel.com/i915_monitoring", 1)]}, 2),
        ({"containers": [{"resources": {"limits": {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000}}}]}, 2),
        ({"containers": [container("nvidia.com/mig-1g.10gb", 3), container("aliyun.com/gpu-mem", 30)]}, 2),
    ],
)
def test_gpus_of_a_pod_as_the_scheduler_counts_them(spec: dict[str, Any], gpus: int) -> None:
    status = {"startTime": at(1), "completionTime": at(2)}
    workload = kubernetes(item("Job", "batch/v1", "x", {"template": {"spec": spec}}, status))
    assert [job.gpus for job in workload.jobs] == [gpus]


def test_tables_of_others() -> None:
    acme = read("helios", "tables/acme-seren.csv")
    assert told(acme) == [("1001", 0, 8, 117), ("1002", 336, 8, 2693)]
    assert acme.left_out == {"without a GPU": 1}
    assert told(read("csv", "tables/own_z.csv")) == [("a", 0, 4, 7200), ("b", 3600, 4, 7200)]
    assert told(read("csv", "tables/own_semicolon.csv")) == [("a", 1800, 4, 8100), ("b", 3600, 2, 3600)]
    assert told(read("csv", "tables/short-durations.csv")) == [("a", 0, 1, 0.001), ("b", 0, 1, 1.499)]


def simulated(tmp_path: Path, workload: str, *options: str) -> dict[str, float]:
    """Completion times of jobs in seconds under FIFO, without pauses."""
    run = ["simulate", "--workload", workload, "--policy", "fifo", "--round", "0", "--restart", "0", *options]
    assert main([*run, "-o", str(tmp_path / "out")]) == 0
    with (tmp_path / "out" / "jobs.csv").open() as file:
        return {row["name"]: float(row["completion_s"]) for row in csv.DictReader(file)}


def test_a_simulation_tells_what_was_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = CASES / "slurm" / "sacct_phantom.txt"
    assert simulated(tmp_path, f"slurm:{path}", "--cluster", "1x8") == {"1": 36_000, "3": 600}
    assert f"{path}: 1 of 3 jobs left out: 1 cancelled while pending\n" in capsys.readouterr().err
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["jobs"], summary["left_out"], summary["remarks"]) == (2, {"cancelled while pending": 1}, {})
    assert carries((tmp_path / "out" / "report.html").read_text(), "1", "3 jobs", "1 cancelled", "pending")


def test_jobs_of_several_clusters_of_slurm_are_told_apart(tmp_path: Path) -> None:
    ran = "2026-01-31T08:00:00|2026-01-31T09:00:00|2026-01-31T10:00:00|01:00:00|u|p|x"
    text = (
        "Cluster|JobID|State|Submit|Start|End|Elapsed|User|Partition|JobName|AllocTRES|ReqTRES|SubmitLine\n"
        f"east|1|COMPLETED|{ran}|gres/gpu:a100=2|gres/gpu=2|sbatch x\n"
        f"my_west|1|COMPLETED|{ran}|gres/gpu:h100=4|gres/gpu=4|sbatch x\n"
        f"my_west|2_7|COMPLETED|{ran}|gres/gpu:h100=1|gres/gpu=1|sbatch -d afterok:1 -a 7%2 x\n"
        f"east|67108865|REVOKED|{ran.replace('01:00:00', '00:00:00')}||gres/gpu=1|sbatch x\n"
        f"my_west|67108865|COMPLETED|{ran}|gres/gpu:h100=1|gres/gpu=1|sbatch x\n"
        "my_west|3|PENDING|2026-01-31T08:00:00|Unknown|Unknown|00:00:00|u|p|x||gres/gpu=1|sbatch x\n"
    )
    workload = read_trace("slurm", text, "t")
    assert [(job.name, job.gpus, job.after, job.array, job.array_limit) for job in workload.jobs] == [
        ("east/1", 2, None, None, None),
        ("my_west/1", 4, None, None, None),
        ("my_west/2_7", 1, ("my_west/1",), "my_west/2", 2),
        ("my_west/67108865", 1, None, None, None),
    ]
    # The partition p has one type in each cluster.
    assert [job.gpu_types for job in workload.jobs] == [None] * 4
    assert [job.name for job in workload.unfinished] == ["my_west/3"]
    assert workload.left_out == {"never started": 1, "still pending": 1}
    of_one = read_trace("slurm", "\n".join(line for line in text.splitlines() if not line.startswith("my")), "t")
    assert [job.name for job in of_one.jobs] == ["1"]


def test_sacct_without_a_header_is_told_how_to_print_it() -> None:
    with refuses("missing-field t:1", naming=("sacct -n", "JobID,State")):
        read_trace("slurm", "7|COMPLETED|2026-01-31T08:00:00|||gres/gpu=2|\n", "t")
