"""Jobs of Microsoft's Philly cluster (ATC 2019): its own log in JSON, or the table that others made of it.

The log, ``cluster_job_log``, is a list of jobs: ``jobid``, ``submitted_time`` and ``attempts``, each with
``start_time``, ``end_time`` and ``detail``, which lists the ``gpus`` of each machine; ``user`` and ``vc``, the virtual
cluster, are read where they are there. A job lasts as long as all of its attempts together, on as many GPUs as the
largest of them has. The table is ``timestamp,duration,num_gpus``, in seconds, with the virtual cluster under
``cluster``; its jobs are named by the line they stand in. Times are local. The first submission is time 0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jigsaw_opt.documents.parsing import parsed
from jigsaw_opt.documents.readers.table import Accept, anything, from_first
from jigsaw_opt.documents.readers.tally import NEVER_STARTED, NO_GPU, STILL_RUNNING, Tally
from jigsaw_opt.documents.readers.times import Zone, is_missing
from jigsaw_opt.documents.readers.traces import TraceFormat
from jigsaw_opt.documents.readers.tree import Tree, accepted_jobs
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.problem.workload import TraceJob, Workload

_KEYS = ('"jobid"', '"attempts"', '"submitted_time"')
_SPACE = b" \t\r\n\xef\xbb\xbf"
_TABLE = TraceFormat(
    "jobs of Philly", "submit=timestamp,duration=duration,gpus=num_gpus", "queue=cluster", unit_us=None
)


def resembles(head: str) -> int:
    """Return how many of its columns or keys the beginning of a text has; 0 where it is of another format."""
    if head.lstrip().startswith("["):
        return sum(key in head for key in _KEYS) if all(key in head for key in _KEYS) else 0
    return _TABLE.resembles(head)


def read_philly(data: bytes | str, source: str = "philly.csv", accept: Accept = anything) -> Workload:
    """Read a log or a table of Philly.

    `data`: the content of the file; text, or bytes in UTF-8. `accept`: returns what is wrong with a job that has a
    model, one text a problem.
    """
    start = data[:1000]
    if (start.encode(errors="replace") if isinstance(start, str) else start).lstrip(_SPACE).startswith(b"["):
        return _read_log(data, source, accept)
    return _TABLE.read(data, source, accept)


def _read_log(data: bytes | str, source: str, accept: Accept) -> Workload:
    tally, zone = Tally(), Zone()
    jobs: dict[str, TraceJob] = {}

    def read(tree: Any, report: Report) -> None:
        found = ((item, _job_of_item(item, tally, zone)) for item in Tree(tree, "$", report).items())
        jobs.update(accepted_jobs(found, accept, tally))
        if not jobs and not report.problems:
            report.add("$", "has no job", tally.told(), code="empty")

    parsed(data, source, read, top="[")
    return from_first(tally.workload(source, jobs.values()), zone.zoned)


def _job_of_item(item: Tree, tally: Tally, zone: Zone) -> TraceJob | str:
    attempts = list(item.at("attempts").items())
    ran = [one for one in attempts if not _is_missing(one.at("start_time"))]
    if not ran:
        return NEVER_STARTED
    if any(_is_missing(one.at("end_time")) for one in ran):
        return STILL_RUNNING
    gpus = [sum(len(_list(part.at("gpus"))) for part in one.at("detail").items()) for one in ran]
    if not any(gpus):
        return NO_GPU
    lasted_us = [_time_us(one.at("end_time"), zone) - _time_us(one.at("start_time"), zone) for one in ran]
    for one, time_us in zip(ran, lasted_us, strict=True):
        if time_us < 0 and not one.report.problems:
            one.add("it ends before it starts", code="wrong-order")
    if len(ran) > 1:
        tally.remark("jobs of several attempts, which last as long as all of them together")
    if len(set(gpus)) > 1:
        tally.remark("jobs whose attempts differ in their GPUs, with the most of any")
    name, submit_us = item.at("jobid").text(), _time_us(item.at("submitted_time"), zone)
    job = TraceJob.lasting(name, submit_us, max(gpus), max(0, sum(lasted_us)))
    start_us = min(_time_us(one.at("start_time"), zone) for one in ran)
    end_us = max(_time_us(one.at("end_time"), zone) for one in ran)
    user, queue = (tree.text() if tree else None for tree in map(item.at, ("user", "vc")))
    return replace(job, start_us=start_us, end_us=end_us, user=user, queue=queue)


def _list(tree: Tree) -> list[Any]:
    if tree and not isinstance(tree.value, list):
        tree.add("a list is expected", code="wrong-type")
    return tree.value if isinstance(tree.value, list) else []


def _is_missing(tree: Tree) -> bool:
    return tree.value is None or (isinstance(tree.value, str) and is_missing(tree.value))


def _time_us(tree: Tree, zone: Zone) -> int:
    """Return a moment, whose zone is or is not there as in all others."""
    found = tree.moment()
    if found is None:
        return 0
    problem = zone.problem(found.zoned, "the first job")
    if problem:
        tree.add(problem, code="mismatch")
    return found.time_us
