"""Jobs that wait or run at the end of a trace: left out of its jobs, and kept apart with what is known of them."""

from __future__ import annotations

import json
from typing import Any

from jigsaw_opt.documents.readers.traces.registry import read_trace
from jigsaw_opt.documents.readers.traces.workload_csv import columns_of
from jigsaw_opt.problem.workload import TraceJob, Workload

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


def item(name: str, hour: int, **status: Any) -> dict[str, Any]:
    container = {"resources": {"limits": {"nvidia.com/gpu": 4}}}
    meta = {"name": name, "creationTimestamp": f"{DAY}T{hour:02}:00:00Z"}
    spec = {"parallelism": 2, "template": {"spec": {"containers": [container]}}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec, "status": status}


def test_kubernetes() -> None:
    eight, nine = f"{DAY}T08:00:00Z", f"{DAY}T09:00:00Z"
    done = item("done", 8, startTime=eight, completionTime=nine)
    workload = kubernetes(done, item("runs", 9, startTime=f"{DAY}T10:00:00Z"), item("waits", 10))
    assert known(workload) == [("default/runs", 1.0, 8, 2.0), ("default/waits", 2.0, 8, None)]
    assert workload.left_out == {"not ended": 1, "never started": 1}


def test_pods_run_once_all_of_them_have_started() -> None:
    def pod(job: str, number: int, phase: str, **status: Any) -> dict[str, Any]:
        made = item(f"{job}-{number}", 8, phase=phase, **status)
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
