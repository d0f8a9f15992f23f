"""Logs of schedulers in detail: what jobs ask for and wait for, local times, shares, queues and failures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jigsaw_opt.documents.readers.kubernetes.kueue import KueueQueues, read_kueue
from jigsaw_opt.documents.readers.outages import OutageEvent, read_outages
from jigsaw_opt.documents.readers.slurm.priorities import read_qos, read_shares, read_slurm_conf
from jigsaw_opt.documents.readers.slurm.records import nodes_of
from jigsaw_opt.documents.readers.traces import read_trace
from jigsaw_opt.documents.readers.workload_csv import columns_of
from jigsaw_opt.problem.workload import TraceJob, Workload
from tests.refusals import refuses

_TIMES = {"startTime": "2026-01-31T08:00:00Z", "completionTime": "2026-01-31T09:00:00Z"}


def kubernetes_job(name: str, labels: dict[str, str] | None = None, **pod: Any) -> dict[str, Any]:
    container = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "creationTimestamp": "2026-01-31T08:00:00Z", "labels": labels or {}},
        "spec": {"parallelism": 1, "template": {"spec": {"containers": [container], **pod}}},
        "status": _TIMES,
    }


def affinity(*rules: dict[str, Any]) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]} for rule in rules]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def test_jobs_of_kubernetes_ask_for_types_queues_and_priorities() -> None:
    product, accelerator = "nvidia.com/gpu.product", "cloud.google.com/gke-accelerator"
    of = {"key": product, "operator": "In", "values": ["Tesla-V100-SXM2-32GB", "NVIDIA-A100-SXM4-80GB"]}
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z"]}
    excluded = {"key": product, "operator": "NotIn", "values": ["Tesla-T4"]}
    items = [
        kubernetes_job("a", {"kueue.x-k8s.io/queue-name": "team"}, nodeSelector={accelerator: "nvidia-tesla-a100"}),
        kubernetes_job("b", affinity=affinity(of), priority=7),
        kubernetes_job("c", {"volcano.sh/preemptable": "true"}, affinity=affinity(of, zone), priority=-3),
        kubernetes_job("d", {"volcano.sh/preemptable": "false"}, affinity=affinity(excluded)),
    ]
    workload = read_trace("kubernetes", json.dumps({"apiVersion": "v1", "items": items}), "t")
    found = {job.name: (job.gpu_types, job.queue, job.priority, job.preemptible) for job in workload.jobs}
    assert found == {
        "default/a": (("nvidia-tesla-a100",), "team", None, None),
        "default/b": (("Tesla-V100-SXM2-32GB", "NVIDIA-A100-SXM4-80GB"), None, 7, None),
        "default/c": (None, None, 0, True),
        "default/d": (None, None, None, False),
    }
    assert workload.remarks == {
        "jobs with a priority below 0, which counts as 0": 1,
        "pods whose affinity to types of GPU is no list of types (In), which is not read": 1,
    }


def test_pods_of_alibaba_ask_for_types() -> None:
    head = "name,num_gpu,gpu_spec,qos,creation_time,deletion_time,scheduled_time\n"
    workload = read_trace("alibaba", f"{head}a,1,V100M16|V100M32,BE,0,9,1\nb,1,,LS,0,9,1\nc,1,T4,LS,0,,\n", "t")
    assert [job.gpu_types for job in workload.jobs] == [("v100-16gb", "v100-32gb"), None]
    assert [job.gpu_types for job in workload.unfinished] == [("t4",)]


@pytest.mark.parametrize(
    ("label", "value", "types"),
    [
        ("accelerator", "nvidia", None),
        ("gpu-type", "true", None),
        ("nvidia.com/gpu.present", "true", None),
        ("gpu.nvidia.com/class", "A100_PCIE_80GB", ("A100_PCIE_80GB",)),
        ("gpu.nvidia.com/model", "H100_NVLINK_80GB", ("H100_NVLINK_80GB",)),
        ("amd.com/gpu.product-name", "AMD_Instinct_MI300X_OAM", ("AMD_Instinct_MI300X_OAM",)),
        ("gpu.intel.com/product", "Max_1550", ("Max_1550",)),
        ("karpenter.k8s.aws/instance-gpu-name", "a10g", ("a10g",)),
        ("cloud.google.com/gke-accelerator", "nvidia-tesla-a100", ("nvidia-tesla-a100",)),
    ],
)
def test_labels_of_nodes_that_name_a_type(label: str, value: str, types: tuple[str, ...] | None) -> None:
    required = affinity({"key": label, "operator": "In", "values": [value]})
    items = [kubernetes_job("a", nodeSelector={label: value}), kubernetes_job("b", affinity=required)]
    workload = read_trace("kubernetes", json.dumps({"apiVersion": "v1", "items": items}), "t")
    assert [job.gpu_types for job in workload.jobs] == [types, types]


DAY, NINE = "2026-01-31", "2026-01-31T09:00:00"
HOUR_US = 3_600_000_000


def known(workload: Workload) -> list[tuple[str, float, int, float | None]]:
    """Name, hour of submission, GPUs and hour of start of the jobs that have not ended."""
    assert all(job.iterations is None and job.end_us is None for job in workload.unfinished)
    return [
        (job.name, job.submit_us / HOUR_US, job.gpus, None if job.start_us is None else job.start_us / HOUR_US)
        for job in workload.unfinished
    ]


def test_slurm() -> None:
    head = "JobID|State|Submit|Start|End|Elapsed|AllocTRES|ReqTRES|Timelimit|User|Partition"
    lines = (
        f"1|COMPLETED|{DAY}T08:00:00|{DAY}T08:00:00|{NINE}|01:00:00|gres/gpu=1|gres/gpu=1|02:00:00|ann|gpu",
        f"2|RUNNING|{DAY}T07:00:00|{DAY}T08:30:00|Unknown|00:30:00|gres/gpu=4|gres/gpu=4|04:00:00|bob|gpu",
        f"3|PENDING|{NINE}|Unknown|Unknown|00:00:00||gres/gpu=8|UNLIMITED|ann|gpu",
        f"4_[1,3-4%2]|PENDING|{NINE}|Unknown|Unknown|00:00:00||cpu=1,gres/gpu:a100=2|1-00:00:00|bob|gpu",
        f"5|CANCELLED|{NINE}|Unknown|{NINE}|00:00:00||gres/gpu=8|01:00:00|ann|gpu",
        f"6|PENDING|{NINE}|Unknown|Unknown|00:00:00||cpu=8|01:00:00|ann|gpu",
        f"7+0|PENDING|{NINE}|Unknown|Unknown|00:00:00||gres/gpu=2|01:00:00|ann|gpu",
        f"7+1|PENDING|{NINE}|Unknown|Unknown|00:00:00||gres/gpu=1|01:00:00|ann|gpu",
    )
    workload = read_trace("slurm", "\n".join([head, *lines, ""]), "t")
    assert [job.name for job in workload.jobs] == ["1"]
    tasks = [(f"4_{k}", 1.0, 2, None) for k in (1, 3, 4)]
    assert known(workload) == [("2", -1.0, 4, 0.5), ("3", 1.0, 8, None), *tasks, ("7", 1.0, 3, None)]
    limits = [job.time_limit_us and job.time_limit_us / HOUR_US for job in workload.unfinished]
    assert limits == [4.0, None, 24.0, 24.0, 24.0, 1.0]
    assert [job.user for job in workload.unfinished][:2] == ["bob", "ann"]
    assert workload.left_out == {"not ended": 1, "still pending": 5, "cancelled while pending": 1, "without a GPU": 1}
    used = workload.reading_told(with_unfinished=True)
    assert used[0] == "2 of 9 jobs left out: 1 cancelled while pending, 1 without a GPU"
    assert workload.first_us == 1_769_846_400_000_000


def kubernetes(*items: dict[str, Any]) -> Workload:
    return read_trace("kubernetes", json.dumps({"apiVersion": "v1", "items": items}), "t")


def stated_job(name: str, hour: int, **status: Any) -> dict[str, Any]:
    container = {"resources": {"limits": {"nvidia.com/gpu": 4}}}
    meta = {"name": name, "creationTimestamp": f"{DAY}T{hour:02}:00:00Z"}
    spec = {"parallelism": 2, "template": {"spec": {"containers": [container]}}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec, "status": status}


def test_pods_run_once_all_of_them_have_started() -> None:
    def pod(job: str, number: int, phase: str, **status: Any) -> dict[str, Any]:
        made = stated_job(f"{job}-{number}", 8, phase=phase, **status)
        made["metadata"]["labels"] = {"job-name": job}
        return {**made, "kind": "Pod", "apiVersion": "v1", "spec": made["spec"]["template"]["spec"]}

    ended = {"state": {"terminated": {"finishedAt": f"{DAY}T09:00:00Z"}}}
    start = {"startTime": f"{DAY}T08:00:00Z"}
    later = {"startTime": f"{DAY}T08:30:00Z"}
    workload = kubernetes(
        pod("done", 0, "Succeeded", containerStatuses=[ended], **start),
        pod("runs", 0, "Running", **start),
        pod("runs", 1, "Running", **later),
        pod("part", 0, "Running", **start),
        pod("part", 1, "Pending"),
        pod("waits", 0, "Pending"),
        pod("lost", 0, "Succeeded", **start),
    )
    found = [("default/runs", 0.0, 8, 0.5), ("default/part", 0.0, 8, None), ("default/waits", 0.0, 4, None)]
    assert known(workload) == found
    assert workload.left_out == {"not ended": 2, "never started": 1, "ended without a time of end": 1}


def test_tables() -> None:
    text = (
        "name,submit_h,gpus,duration_h,start_h,end_h,user\n"
        "a,0,1,1,0,1,ann\nb,1,2,,1.5,,ann\nc,2,4,,,,bob\ncancelled,2,4,,,3,bob\n"
    )
    workload = read_trace("csv", text, "t")
    assert known(workload) == [("b", 1.0, 2, 1.5), ("c", 2.0, 4, None)]
    assert workload.left_out == {"not ended": 1, "never started": 2}
    assert [job.user for job in workload.unfinished] == ["ann", "bob"]
    named = read_trace("csv", text.replace("gpus", "n"), "t", columns=columns_of("gpus=n,submit_h=submit_h,name=name"))
    assert known(named) == [("b", 1.0, 2, None), ("c", 2.0, 4, None), ("cancelled", 2.0, 4, None)]


def test_pods_of_alibaba() -> None:
    head = "name,num_gpu,gpu_milli,qos,creation_time,deletion_time,scheduled_time\n"
    text = head + "a,1,1000,LS,0,3600,0\nb,2,1000,LS,0,,3600\nc,4,1000,BE,7200,,\nd,4,1000,BE,0,7200,\n"
    workload = read_trace("alibaba", text, "t")
    assert known(workload) == [("b", 0.0, 2, 1.0), ("c", 2.0, 4, None)]
    assert workload.left_out == {"not ended": 1, "never started": 2}
    assert workload.unfinished[1] == TraceJob("c", 2 * HOUR_US, "seconds", 4, qos="BE")


@pytest.mark.parametrize(("column", "cell"), [("Comment", ""), ("Suspended", "00:00:17")])
def test_a_suspended_job_over_the_change_of_the_clocks_ends_when_it_ended(column: str, cell: str) -> None:
    head = f"JobID|State|Submit|Start|End|Elapsed|AllocTRES|{column}"
    suspended = f"1|COMPLETED|2024-03-31T01:50:00|2024-03-31T01:59:00|2024-03-31T03:00:17|00:01:00|gres/gpu=1|{cell}"
    other = "2|COMPLETED|2024-03-31T01:50:00|2024-03-31T01:59:30|2024-03-31T03:00:10|00:00:40|gres/gpu=1|"
    jobs = {job.name: job for job in read_trace("slurm", f"{head}\n{suspended}\n{other}\n", "t").jobs}
    assert (jobs["1"].end_us or 0) - (jobs["1"].start_us or 0) == 77_000_000
    assert (jobs["2"].end_us or 0) - (jobs["2"].start_us or 0) == 40_000_000
    (alone,) = read_trace("slurm", f"{head}\n{suspended}\n", "t").jobs
    assert (alone.end_us or 0) - (alone.start_us or 0) == (77_000_000 if cell else 3_677_000_000)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("n1", "n1"),
        ("gpu[01-03,07],login", "gpu01 gpu02 gpu03 gpu07 login"),
        ("r[1-2]n[9-10].cluster", "r1n9.cluster r1n10.cluster r2n9.cluster r2n10.cluster"),
        ("a-b,a-b", "a-b"),
    ],
)
def test_lists_of_nodes(text: str, found: str) -> None:
    assert nodes_of(text) == tuple(found.split())


@pytest.mark.parametrize(
    "text", ["", "n[1-", "n[3-1]", "n[]", "n[a]", "None assigned", "n1,", ",n1", "n[1-999999]", "n[1-999][1-999]"]
)
def test_texts_that_are_no_lists_of_nodes(text: str) -> None:
    assert nodes_of(text) is None


SHARES = "Cluster|Account|User|ParentName|Share\n"
KNOWN = {"server": {"s0": 0, "s1": 1}, "link": {"l0": 0}}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (SHARES, ["empty assoc.txt"]),
        ("Account|User|Share\na||1\n", ["missing-field assoc.txt:1"]),
        (SHARES + "c|a||root|1\nc|a||root|2\n", ["duplicate-name assoc.txt:3"]),
        (SHARES + "c|a||root|1\nd|b||root|2\n", ["ambiguous assoc.txt"]),
        (
            SHARES + "c|||root|1\nc|b||root|-2\nc|d\n",
            ["wrong-count assoc.txt:4", "empty assoc.txt:2", "out-of-range assoc.txt:3"],
        ),
    ],
)
def test_shares_that_contradict_each_other_are_refused(text: str, found: list[str]) -> None:
    with refuses(*found):
        read_shares(text)


def test_shares_of_several_partitions_are_no_contradiction() -> None:
    header = SHARES.replace("Share", "Share|Partition")
    found = read_shares(header + "c|a|u|a|1|\nc|a|u|a|4|long\n")
    assert [(one.account, one.user, one.shares) for one in found] == [("a", "u", 4)]


def test_a_qos_that_is_stated_twice_is_refused() -> None:
    assert read_qos("Name|Priority\nhigh|7\nlow|0\n") == {"high": 7, "low": 0}
    with refuses("duplicate-name qos.txt:4"):
        read_qos("Name|Priority\nhigh|7\nlow|0\nhigh|8\n")


def test_files_that_slurm_would_include_are_counted() -> None:
    conf = read_slurm_conf("PriorityType=priority/multifactor\nInclude /etc/slurm/more.conf\ninclude other.conf\n")
    assert conf.includes == 2
    assert conf.parameters["prioritytype"] == "priority/multifactor"


def item(kind: str, name: str, version: str = "kueue.x-k8s.io/v1beta1", space: str | None = None, **spec: Any) -> Any:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": space}, "spec": spec}


def quota(flavor: str, gpus: int) -> Any:
    return {"name": flavor, "resources": [{"name": "nvidia.com/gpu", "nominalQuota": gpus}]}


def queue(*flavors: Any, **spec: Any) -> Any:
    return item("ClusterQueue", "all", resourceGroups=[{"flavors": list(flavors)}], **spec)


def read_queues(*items: Any) -> KueueQueues:
    return read_kueue(json.dumps({"items": items}), "k.json")


def test_what_is_passed_over_is_told() -> None:
    found = read_queues(
        queue(quota("v100", 4), stopPolicy="Hold", admissionChecks=["one"]),
        item("LocalQueue", "mine", space="a", clusterQueue="all"),
        item("LocalQueue", "mine", space="b", clusterQueue="other"),
        item("Workload", "w"),
        item("Pod", "p", version="v1"),
    )
    assert (found.local["mine"], found.local["b/mine"]) == ("all", "other")
    assert {remark: count for remark, count in found.remarks.items() if count} == {
        "ClusterQueues whose admissionChecks is not simulated": 1,
        "ClusterQueues that are on hold, which is not simulated": 1,
        "names of LocalQueues that several namespaces have, of which the first counts": 1,
        "items of kind Workload passed over": 1,
        "items that are none of Kueue (Pod)": 1,
    }


def test_queues_that_contradict_themselves_are_refused() -> None:
    with refuses("duplicate-name $.items[0].spec.resourceGroups[0].flavors[1]"):
        read_queues(queue(quota("v100", 4), quota("v100", 2)))
    with refuses("empty $"):
        read_queues(queue())
    preemption = {"borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": "100"}}
    with refuses("wrong-type $.items[0].spec.preemption.borrowWithinCohort.maxPriorityThreshold"):
        read_queues(queue(quota("v100", 4), preemption=preemption))


def test_failures_are_read_in_order_of_time() -> None:
    text = "time_s,kind,name,state\n9,server,s1,up\n2.5,server,s1,down\n3,link,l0,down\n"
    assert read_outages(text, "o.csv", KNOWN) == [
        OutageEvent(2_500_000, "server", 1, True),
        OutageEvent(3_000_000, "link", 0, True),
        OutageEvent(9_000_000, "server", 1, False),
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("kind,name,state\nserver,s0,down\n", ["missing-field o.csv:1"]),
        ("time_s,time_h,kind,name,state\n1,1,server,s0,down\n", ["ambiguous o.csv:1"]),
        ("time_s,kind,name,state,reason\n1,server,s0,down,x\n", ["unknown-field o.csv:1"]),
        (
            "time_s,kind,name,state\n1,rack,s0,down\n2,link,l1,down\n3,link,l0,off\n",
            ["unknown-value o.csv:2", "unknown-name o.csv:3", "unknown-value o.csv:4"],
        ),
        ("time_s,kind,name,state\n1,link,l0,up\n", ["contradiction o.csv:2"]),
        ("time_s,kind,name,state\n1,link,l0,down\n1,link,l0,up\n", ["contradiction o.csv:3"]),
    ],
)
def test_failures_that_cannot_be_are_refused(text: str, found: list[str]) -> None:
    with refuses(*found):
        read_outages(text, "o.csv", KNOWN)


def test_adaptive_jobs_run_on_1_to_64_gpus() -> None:
    text = "name,time,application,num_replicas,batch_size\nj,3,bert,2,48\n"
    pollux, sia = (read_trace(form, text, "t.csv").jobs[0] for form in ("pollux", "sia"))
    assert (pollux.fewest, pollux.gpus, pollux.most) == (2, 2, 2)
    assert (sia.fewest, sia.gpus, sia.most, sia.batch_size) == (1, 2, 64, 48)
