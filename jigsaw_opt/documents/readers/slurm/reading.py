"""Jobs of Slurm's accounting: ``sacct -X -P -o JobID,State,Submit,Start,End,Elapsed,AllocTRES,ReqTRES,Timelimit,...``.

Cells stand between bars under a header, in any order; more columns do no harm, and ``State``, ``Elapsed`` (or
``ElapsedRaw``) and ``ReqTRES`` may be missing. A job asks for its ``gres/gpu`` and lasts for ``Elapsed``, or else from
``Start`` to ``End``. ``ReqTRES`` stands in for an empty ``AllocTRES`` only where the job ran. Of several records of a
job (``sacct -D``) the last counts, and the components of a heterogeneous job (``102+0``, ``102+1``) are one job. Steps,
jobs without a GPU, and those that never ran or have not ended are left out. The first submission is time 0.
Where ``Cluster`` has several names, jobs are told apart by them, as in ``east/7``.
``Timelimit`` (or ``TimelimitRaw``), ``User``, ``Account``, ``Partition``, ``QOS``, ``Priority``, ``NodeList`` and
``Suspended`` are read where they are there, and so is ``AllocGRES`` where ``AllocTRES`` has no GPU. A record that is
wrong is left out and counted. `requests_of` says what is read of types of GPU, dependencies and arrays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from jigsaw_opt.documents.readers.slurm.records import (
    LAST,
    is_job,
    records_of,
    requests_of,
    settle_requests,
    wait_in_turn,
)
from jigsaw_opt.documents.readers.table import Accept, JobTable, Row, anything, from_first, headed
from jigsaw_opt.documents.readers.tally import (
    NEVER_STARTED,
    NO_GPU,
    STILL_RUNNING,
    Found,
    Tally,
    Unfinished,
    wrong_record,
)
from jigsaw_opt.documents.readers.times import duration_us
from jigsaw_opt.problem.workload import TraceJob, Workload

_COLUMNS = ("JobID", "Submit", "Start", "End", "AllocTRES")
_ASKED = ("JobID", "State", "Submit", "Start", "End", "Elapsed", "AllocTRES", "ReqTRES")
_TEXTS = {"user": "User", "account": "Account", "queue": "Partition", "qos": "QOS"}
_STATED = ("Suspended", "Timelimit", *_TEXTS.values(), "Priority", "NodeList", "JobName", LAST)
_COMPONENT = re.compile(r"(?P<job>[^+]+)\+[0-9]+")
_ARRAY = re.compile(r"(?P<array>[^_]+)_\[(?P<tasks>[0-9,:-]+)(?:%[0-9]+)?\]")
"""Tasks of an array that have not started stand in one record."""
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?(?::([0-9]{1,9}))?")
_MOST_TASKS = 10**6
_MIG = re.compile(r"gres/gpu:[^=]*[0-9]g\.[0-9]+gb")
_CANCELLED, _PENDING = "cancelled while pending", "still pending"
_SHARES = ("gres/shard", "gres/mps")
_UNKNOWN_END = "ended, with no End and no Elapsed that is a time"
ENDED_STATES = (
    *("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "BOOT_FAIL"),
    *("DEADLINE", "LAUNCH_FAILED", "RECONFIG_FAIL", "REVOKED"),
)
"""States in which a job has ended, also where no End is told."""
_CLOCKS_CHANGE_US = 2 * 3_600_000_000
"""Local clocks are set back by two hours at most."""
_CHANGED = "jobs over a change of the clocks, which end Elapsed after their Start (TZ=UTC sacct tells the times right)"
_CLOCK_STEP_US = 1_800_000_000
"""Local clocks are moved by multiples of this."""
_MOST_DIGITS = 8
_MINUTE_US = 60_000_000
_NO_LIMIT = frozenset({"unlimited", "partition_limit", "infinite", "invalid"})


class _SacctLine(NamedTuple):
    """The content of a line: a job's duration, or why the line is no job."""

    line: int
    submit_us: int
    gpus: int
    duration_us: int
    reason: str = ""
    stated: Mapping[str, Any] = {}


def resembles(head: str) -> int:
    """Return how many of its columns the beginning of a text has; 0 where it is of another format."""
    return headed(head, _COLUMNS, "|")


def read_slurm(data: bytes | str, source: str = "sacct.txt", accept: Accept = anything) -> Workload:
    """Read what ``sacct -P`` prints.

    `data`: the content of the file; text, or bytes in UTF-8. `accept`: returns what is wrong with a job that has a
    model, one text a problem.
    """
    table = JobTable(data, source, (), "|", records=records_of)
    if missing := [repr(name) for name in _COLUMNS if not table.has(name)]:
        parted = next((sign for sign in ",;\t" for head in table.columns[:1] if sign in head), "")
        what = "no bars between columns" if len(table.columns) == 1 else f"no column {', '.join(missing)}"
        what += f", but {parted!r}" if parted else ""
        if is_job(table.columns[0] if table.columns else ""):
            what = "no header, as sacct -n leaves it out"
        hint = f"print it with TZ=UTC sacct -X -P -o {','.join((*_ASKED, *_STATED))}"
        table.lines.add(1, what, hint, code="missing-field")
    clusters: dict[str, dict[str, _SacctLine]] = {}
    for row in table:
        name = row.text("JobID")
        if "." in name and not name.endswith("]"):  # the tasks of an array may be abbreviated as in 7_[1-9,...]
            table.tally.remark("steps of jobs passed over")
            continue
        records = clusters.setdefault(row.optional_text("Cluster"), {})
        if name and records.pop(name, None) is not None:
            table.tally.remark("earlier records of a job passed over, as its last one counts (sacct -D)")
        record = _record(name, row, table.tally)
        records[name] = record if row.good else _SacctLine(row.number, 0, 0, 0, wrong_record(row.wrong))
    return from_first(table.workload_of(source, _jobs_of_all(clusters, table.tally), accept), table.zoned)


def _jobs_of_all(clusters: Mapping[str, Mapping[str, _SacctLine]], tally: Tally) -> Iterator[tuple[int, Found]]:
    """Yield the jobs of all clusters by line, each under the name of its cluster where there are several."""
    found = (
        (line, job if len(clusters) == 1 else _of_cluster(cluster, job))
        for cluster, records in clusters.items()
        for line, job in _jobs(_settled(records, tally), tally)
    )
    return iter(sorted(found, key=lambda one: one[0])) if len(clusters) > 1 else found


def _of_cluster(cluster: str, job: Found) -> Found:
    """Return a job with its cluster before its own name, and those of other jobs and of arrays."""
    if isinstance(job, str):
        return job
    own = job.job if isinstance(job, Unfinished) else job
    array = None if own.array is None else f"{cluster}/{own.array}"
    after = None if own.after is None else tuple(f"{cluster}/{name}" for name in own.after)
    named = replace(own, name=f"{cluster}/{own.name}", array=array, after=after)
    return job._replace(job=named) if isinstance(job, Unfinished) else named


def _settled(records: Mapping[str, _SacctLine], tally: Tally) -> dict[str, _SacctLine]:
    """Return the records of a cluster with what only all of them together tell."""
    found = {name: one.stated for name, one in records.items() if one.stated}
    settled = settle_requests(found, tally)
    for name, end_us in _moved_ends({name: one.pop("told") for name, one in settled.items() if "told" in one}):
        settled[name]["end_us"] = end_us
    for name, after in wait_in_turn(found, sorted(found, key=lambda name: records[name].submit_us)):
        settled[name]["after"] = after or None
    return {name: one._replace(stated=settled.get(name, {})) for name, one in records.items()}


def _moved_ends(told: Mapping[str, tuple[int, int, int]]) -> Iterator[tuple[str, int]]:
    """Yield the ends of jobs that were suspended and ran over a change of the clocks, which other jobs show.

    `told`: start, end and microseconds by which the end is later than start and elapsed time, by name.
    """
    shown = [one for one in told.values() if one[2] > 0 and _is_clock_step(one[2])]
    for name, (start_us, end_us, gap_us) in told.items():
        if gap_us < _CLOCK_STEP_US or _is_clock_step(gap_us):
            continue
        near = [one for one in shown if one[0] < end_us and start_us < one[1] and one[2] < gap_us]
        if near and start_us <= max(one[0] for one in near) < min(one[1] for one in near) <= end_us:
            yield name, end_us - near[0][2]


def _is_clock_step(gap_us: int) -> bool:
    """Return whether a change of the clocks alone may move an end by so much."""
    return gap_us % _CLOCK_STEP_US == 0 and gap_us <= _CLOCKS_CHANGE_US


def _jobs(records: Mapping[str, _SacctLine], tally: Tally) -> Iterator[tuple[int, Found]]:
    """Yield the jobs, or why there is none, with the components of each put together."""
    parts: dict[str, list[_SacctLine]] = {}
    for name, record in records.items():
        component = _COMPONENT.fullmatch(name)
        parts.setdefault(component["job"] if component else name, []).append(record)
    for name, components in parts.items():
        for _ in components[1:]:
            tally.remark("further components of heterogeneous jobs, each counted with its job")
        ran = [one for one in components if not one.reason]
        line = components[0].line
        unfinished = next((one.reason for one in components if one.reason in (STILL_RUNNING, _PENDING)), "")
        if unfinished or not ran:
            for task in tasks_of(name):
                yield line, _unfinished(task, unfinished, components) if unfinished else components[0].reason
            continue
        submit_us, longest_us = min(one.submit_us for one in ran), max(one.duration_us for one in ran)
        job = TraceJob.lasting(name, submit_us, sum(one.gpus for one in ran), longest_us)
        yield line, replace(job, **_stated_by_all([one.stated for one in ran]))


def _unfinished(name: str, reason: str, components: Sequence[_SacctLine]) -> Unfinished | str:
    """Return a job that waits or runs, with what is known of it; the reason alone where it asks for no GPU."""
    known = [one for one in components if one.gpus]
    if not known:
        return reason
    starts = [one.stated.get("start_us") for one in known]
    stated = {**known[0].stated, "start_us": None if reason == _PENDING else max(filter(None, starts)), "end_us": None}
    return Unfinished.of(name, min(one.submit_us for one in known), sum(one.gpus for one in known), reason, **stated)


def _stated_by_all(components: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the first component states, from the first start to the last end, with the longest limit."""
    limits, asked = ([one[name] for one in components] for name in ("time_limit_us", "gpu_types"))
    return {
        **components[0],
        "start_us": min(one["start_us"] for one in components),
        "end_us": max(one["end_us"] for one in components),
        "time_limit_us": None if None in limits else max(limits),
        "gpu_types": None if None in asked else tuple(dict.fromkeys(name for own in asked for name in own or ())),
        "nodes": tuple(dict.fromkeys(name for one in components for name in one["nodes"] or ())) or None,
        "ran_on": components[0]["ran_on"] if len({one["ran_on"] for one in components}) == 1 else None,
    }


def tasks_of(name: str) -> Sequence[str]:
    """Return the tasks that a record stands for, as three in ``7_[1,4-8:4]``; itself where it does not say all."""
    found = _ARRAY.fullmatch(name)
    matches = [_RANGE.fullmatch(part) for part in found["tasks"].split(",")] if found else []
    ranges = [
        range(int(match[1]), int(match[2] or match[1]) + 1, max(1, int(match[3] or 1))) for match in matches if match
    ]
    if found is None or len(ranges) < len(matches) or not 0 < sum(map(len, ranges)) <= _MOST_TASKS:
        return (name,)
    return [f"{found['array']}_{task}" for tasks in ranges for task in tasks]


def _record(name: str, row: Row, tally: Tally) -> _SacctLine:
    allocated = _resources(row, "AllocTRES", "AllocGRES")
    requested = _resources(row, "ReqTRES") if row.has("ReqTRES") else {}
    resources = allocated or requested
    state = row.optional_text("State")
    counts = {name: int(amount) for name, amount in resources.items() if _is_gpu(name)}
    gpus = counts.get("gres/gpu", sum(counts.values()))
    reason, elapsed_us = "", None
    if resources and gpus == 0:
        share = next((name for name in _SHARES if any(one.partition(":")[0] == name for one in resources)), "")
        reason = f"with a share of a GPU only ({share})" if share else NO_GPU
    elif row.is_missing("Start") or state.startswith("PENDING"):
        cancelled = state.startswith("CANCELLED")
        reason = _CANCELLED if cancelled else _PENDING if state.startswith("PENDING") else NEVER_STARTED
    elif row.is_missing("End") and state.startswith(ENDED_STATES):
        elapsed_us = _elapsed_us(row)
        reason = _UNKNOWN_END if elapsed_us is None else ""
    elif row.is_missing("End") or state.startswith(("RUNNING", "SUSPENDED")):
        reason = STILL_RUNNING
    if reason in (STILL_RUNNING, _PENDING) and gpus:
        start_us = row.moment("Start") if reason == STILL_RUNNING else None
        asked = requests_of(name, row, allocated, requested, tally)
        stated = {"start_us": start_us, "time_limit_us": _limit_us(row), **_texts(row), **asked}
        return _SacctLine(row.number, row.moment("Submit"), gpus, 0, reason, stated)
    if reason:
        return _SacctLine(row.number, 0, 0, 0, reason)
    lasted_us = _duration_us(row, tally) if elapsed_us is None else elapsed_us
    submit_us = row.moment("Submit")
    if not row.good:
        return _SacctLine(row.number, 0, 0, 0)
    if not allocated and lasted_us == 0:
        unknown = not state or state.startswith("CANCELLED")
        return _SacctLine(row.number, 0, 0, 0, _CANCELLED if unknown else NEVER_STARTED)
    if gpus == 0:
        return _SacctLine(row.number, 0, 0, 0, NO_GPU)
    if not allocated:
        tally.remark("jobs whose AllocTRES is empty though they ran, with the GPUs of ReqTRES")
    if any(map(_MIG.fullmatch, resources)):
        tally.remark("jobs with parts of GPUs (MIG), each of which counts as one GPU")
    stated = _stated(row, submit_us, lasted_us, tally) | requests_of(name, row, allocated, requested, tally)
    return _SacctLine(row.number, submit_us, gpus, lasted_us, "", stated)


def _stated(row: Row, submit_us: int, lasted_us: int, tally: Tally) -> dict[str, Any]:
    """Return what a record states beyond the work of its job."""
    told_us = row.moment("Start")
    gap_us = 0 if row.is_missing("End") else row.moment("End") - told_us - lasted_us
    if row.good and told_us < submit_us - _CLOCKS_CHANGE_US:
        row.add("Start is before Submit", code="wrong-order")
    elif row.good and told_us < submit_us:
        tally.remark("jobs with a Start before their Submit, as by a change of the clocks, which start when submitted")
    start_us = max(told_us, submit_us)
    suspended_us = row.duration("Suspended") if row.has("Suspended") and not row.is_missing("Suspended") else None
    end_us = start_us + lasted_us + (suspended_us or 0)
    told = {} if suspended_us is not None else {"told": (told_us, told_us + lasted_us + gap_us, gap_us)}
    if suspended_us:
        tally.remark("jobs that were suspended, which end Elapsed and Suspended after their Start")
    elif row.is_missing("End"):
        tally.remark("jobs that have ended without an End, which is taken to be Start and Elapsed")
    elif gap_us < -_CLOCKS_CHANGE_US and gap_us < -lasted_us:
        row.add("End is before Start", code="wrong-order")
    elif gap_us > 0 and suspended_us is None and not _is_clock_step(gap_us):
        end_us += gap_us
        tally.remark("jobs that were suspended, as their End is later than Start and Elapsed")
    elif gap_us:
        tally.remark(_CHANGED)
    limit_us = _limit_us(row)
    if limit_us is not None and lasted_us > limit_us:
        tally.remark("jobs that ran longer than their Timelimit")
    return {"start_us": start_us, "end_us": end_us, "time_limit_us": limit_us, **told, **_texts(row)}


def _texts(row: Row) -> dict[str, Any]:
    """Return whose job it is, where it was submitted, and its priority."""
    priority = row.optional("Priority", least=0)
    return {"priority": priority, **{name: row.stated(column) for name, column in _TEXTS.items()}}


def _limit_us(row: Row) -> int | None:
    """Return the time limit; ``UNLIMITED`` and ``Partition_Limit`` state none, and neither does a limit of 0."""
    for column, unit_us in (("Timelimit", 0), ("TimelimitRaw", _MINUTE_US)):
        text = row.optional_text(column)
        if not text or text.lower() in _NO_LIMIT or row.is_missing(column):
            continue
        limit_us = duration_us(text if text.count(":") != 1 else f"00:{text}") if not unit_us else None
        return limit_us or row.duration(column, _MINUTE_US) or None
    return None


def _elapsed_us(row: Row) -> int | None:
    """Return the elapsed time, or None where there is none that is a time."""
    elapsed = row.optional_text("Elapsed")
    found = duration_us(elapsed if elapsed.count(":") != 1 else f"00:{elapsed}")
    if found is None and row.has("ElapsedRaw") and not row.is_missing("ElapsedRaw"):
        found = row.microseconds("ElapsedRaw")
    return found


def _duration_us(row: Row, tally: Tally) -> int:
    """Return the elapsed time; between local times a change of the clocks would count."""
    found = _elapsed_us(row)
    if found is not None:
        return found
    if row.has("Elapsed") and not row.is_missing("Elapsed"):
        tally.remark("jobs whose Elapsed is no time, which last from Start to End")
    lasted_us = row.moment("End") - row.moment("Start")
    if row.good and lasted_us < 0:
        row.add("End is before Start", code="wrong-order")
    return max(0, lasted_us)


def _resources(row: Row, column: str, former: str = "") -> dict[str, str]:
    """Return the resources of a job by name, as in ``cpu=8,gres/gpu:a100=4``.

    `former`: column of early versions of Slurm, as in ``gpu:v100:2``, of which GPUs are read where `column` has none.
    """
    found: dict[str, str] = {}
    words = row.optional_text(column).split(",")
    if row.has(former) and not any(_is_gpu(word.strip().partition("=")[0]) for word in words):
        column = former
        words += _of_former(row.optional_text(former))
    for part in filter(None, words):
        name, _, amount = (word.strip() for word in part.partition("="))
        found[name] = amount
        if _is_gpu(name) and not (amount.isascii() and amount.isdecimal() and len(amount) < _MOST_DIGITS):
            row.add(f"{column} has a whole number of GPUs, not {part[:40]!r}", code="malformed")
            found[name] = "1"
    return found


def _of_former(text: str) -> Iterator[str]:
    """Yield the GPUs of ``gpu:4`` or ``gpu:v100:2(S:0-1)`` as ``gres/gpu=4`` and ``gres/gpu:v100=2``."""
    for part in text.split(","):
        name, _, amount = part.strip().partition("(")[0].rpartition(":")
        if _is_gpu(f"gres/{name}"):
            yield f"gres/{name}={amount}"


def _is_gpu(resource: str) -> bool:
    return resource == "gres/gpu" or resource.startswith("gres/gpu:")
