"""The formats of traces by name: tables of jobs as data, and readers of their own for what is no such table.

To read one more table, add a `TraceFormat` to `READERS`; docs/extending.md walks through one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NamedTuple

from jigsaw_opt.documents.file_bytes import unpacked
from jigsaw_opt.documents.readers.lines import Lines
from jigsaw_opt.documents.readers.table import Accept, JobTable, Row, anything, from_first, headed
from jigsaw_opt.documents.readers.tally import NEVER_STARTED, NO_GPU, STILL_RUNNING, Found, Tally, Unfinished
from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.workload import StageTimes, TraceJob, Workload
from jigsaw_opt.text import nearest, readable

_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?")
_NUMBERS = ("gpus", "submit", "end", "seconds", "iterations")
_LASTS = ("start", "duration", "seconds")
"""What a job that never started lacks."""
_WITH_MEMORY = re.compile(r"^(.*[0-9])m([0-9]+)$")
"""A type of GPU with its memory in GB, as those of the list ``V100M16|V100M32``."""
_WHOLE_GPU = 1000
"""Of Alibaba's ``gpu_milli``."""
_MOST_ADAPTIVE_GPUS = 64
_MS = 1_000
_SECOND_US = 1_000_000


class TraceNotes(NamedTuple):
    """What a trace tells beside its jobs: counts of what was decided, and times of the stages of models."""

    tally: Tally
    stages: dict[str, StageTimes]


Refine = Callable[[Row, TraceJob, TraceNotes], TraceJob]


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """A table with one job a line, as data.

    A job lasts for its ``duration``, for whole ``seconds`` of its model, for its ``iterations``, or until its ``end``.
    Where a trace says how long jobs lasted, those without a GPU and those that never started are left out and counted;
    where its ``end`` says so, one that has started and not ended is kept as unfinished.

    `what`: what such a trace is called in a sentence. `columns`: columns that must be there, as
    ``gpus=num_gpu,submit=time``, by what they say: a field of `TraceJob`, ``submit``, ``start``, ``end``, ``duration``
    or ``seconds``; others are for `refine`. A bar parts the names that a column may have. Jobs without a name are
    called after their line; those without a model have ``seconds``. `optional`: columns that may be there. `unit_us`:
    microseconds of the unit of times; None for dates and times, of which the first submission is time 0. `refine`: adds
    what no column says alone; it may note problems of the line. `forms`: the columns of a table without a header; of
    several, the one with as many cells counts, or else the first. `separator`: what stands between cells; empty for a
    comma, a semicolon, a tab or a bar.
    """

    what: str
    columns: str
    optional: str = ""
    unit_us: int | None = _SECOND_US
    refine: Refine | None = None
    forms: Sequence[Sequence[str]] = ()
    separator: str = ""

    def resembles(self, head: str) -> int:
        """Return how many of its columns the beginning of a text has; 0 where it is of another format."""
        columns = _pairs(self.columns)
        if not self.forms:
            names = [name.split("|") for name in columns.values()]
            return len(names) if all(any(headed(head, (one,)) for one in each) for each in names) else 0
        cells = head.lstrip().partition("\n")[0].split(self.separator)
        found = dict(zip(next((form for form in self.forms if len(form) == len(cells)), ()), cells, strict=False))
        numbers = (found.get(columns[key], "").strip() for key in _NUMBERS if key in columns)
        return len(cells) if all(map(_NUMBER.fullmatch, numbers)) else 0

    def read(self, data: bytes | str, source: str, accept: Accept = anything) -> Workload:
        """Read a trace of this format."""
        form, stated = self._form(data, source) if self.forms else None, _pairs(self.columns)
        required = form or [name for name in stated.values() if "|" not in name]
        table = JobTable(data, source, required, self.separator, form)
        columns = {key: name for key, names in stated.items() for name in [_only(table, names)] if name}
        columns |= {key: name for key, name in _pairs(self.optional).items() if table.has(name)}
        notes = TraceNotes(table.tally, {})
        workload = table.workload(source, lambda row: self._job(row, columns, notes), accept, notes.stages)
        return from_first(workload, table.zoned) if self.unit_us is None else workload

    def _form(self, data: bytes | str, source: str) -> Sequence[str]:
        """Return the columns of a text without a header, by the number of cells in its first line."""
        first = next((line for _, line in Lines(data, source)), "")
        size = first.count(self.separator) + 1
        return next((form for form in self.forms if len(form) == size), self.forms[0])

    def _job(self, row: Row, columns: Mapping[str, str], notes: TraceNotes) -> Found:
        lasts = [columns[key] for key in _LASTS if key in columns]
        gpus = row.integer(columns["gpus"], least=0 if lasts else 1)
        if lasts and row.good and not gpus:
            return NO_GPU
        never = row.good and any(map(row.is_missing, lasts))
        ends = "duration" not in columns and "end" in columns
        waits = row.good and ends and row.is_missing(columns["end"])
        if never and not waits:
            return NEVER_STARTED
        name = row.text(columns["name"]) if "name" in columns else f"line-{row.number}"
        submit_us, stated = self._time_us(row, columns["submit"]), self._stated(row, columns)
        if "start" in columns and not never:
            stated["start_us"] = self._time_us(row, columns["start"])
        if waits:
            return Unfinished.of(name, submit_us, gpus, NEVER_STARTED if never else STILL_RUNNING, **stated)
        if ends or "duration" in columns:
            job = TraceJob.lasting(name, submit_us, max(1, gpus), self._lasted_us(row, columns, stated))
        else:
            work = [columns[key] for key in ("seconds", "iterations") if key in columns]
            model = row.shared(columns["model"]) if "model" in columns else "seconds"
            job = TraceJob(name, submit_us, model, gpus, row.integer(work[0]) if work else None)
        job = replace(job, **stated) if stated else job
        return job if self.refine is None else self.refine(row, job, notes)

    def _lasted_us(self, row: Row, columns: Mapping[str, str], stated: dict[str, Any]) -> int:
        """Return how long a job lasted, and state its end where its start is stated."""
        start_us, end = stated.get("start_us"), columns.get("end")
        end_us = None if end is None or row.is_missing(end) else self._time_us(row, end)
        if "duration" in columns:
            lasted_us = row.duration(columns["duration"])
        else:
            lasted_us = (end_us or 0) - (start_us or 0)
            if row.good and lasted_us < 0:
                row.add(f"{end} is before {columns['start']}: {row.text(columns['start'])}", code="wrong-order")
        if start_us is not None:
            stated["end_us"] = start_us + lasted_us if end_us is None else end_us
        return max(0, lasted_us)

    def _time_us(self, row: Row, column: str) -> int:
        return row.moment(column) if self.unit_us is None else row.microseconds(column, self.unit_us)

    def _stated(self, row: Row, columns: Mapping[str, str]) -> dict[str, Any]:
        """Return what a line states of a job beyond its work."""
        found: dict[str, Any] = {key: row.stated(columns[key]) for key in ("user", "queue", "qos") if key in columns}
        found |= {key: row.integer(columns[key]) for key in ("batch_size", "weight") if key in columns}
        if "gpu_types" in columns:
            names = (name.strip().lower() for name in (row.stated(columns["gpu_types"]) or "").split("|"))
            found["gpu_types"] = tuple(_WITH_MEMORY.sub(r"\1-\2gb", name) for name in names if name) or None
        return found


def _pairs(columns: str) -> dict[str, str]:
    """Return the names of columns by what they say."""
    return dict(pair.split("=") for pair in columns.split(",") if pair)


def _only(table: JobTable, names: str) -> str | None:
    """Return the column that is there of those that a bar parts; any other number of them than one is a problem."""
    each = names.split("|")
    found = [name for name in each if table.has(name)]
    if len(each) > 1 and len(found) != 1:
        told = f"{'two columns' if found else 'no column'} {' or '.join(map(repr, each))}"
        table.lines.add(1, told, code="missing-field")
    return found[0] if found else None


def _tell_parts(row: Row, job: TraceJob, notes: TraceNotes) -> TraceJob:
    """Tell that a pod of Alibaba has a part of a GPU; it takes a whole one, as plans share GPUs in time only."""
    has_part = job.gpus == 1 and row.good and not row.is_missing("gpu_milli")
    if has_part and row.integer("gpu_milli", least=0) < _WHOLE_GPU:
        notes.tally.remark("pods with a part of a GPU, which count as one GPU each")
    return job


def _tell_mode(row: Row, job: TraceJob, notes: TraceNotes) -> TraceJob:
    """Tell that the batch size of a job of Shockwave changes."""
    if row.has("mode") and row.text("mode") != "static":
        notes.tally.remark("jobs whose batch size changes (accordion, gns), read with that of their type throughout")
    return job


def _with_stages(row: Row, job: TraceJob, notes: TraceNotes) -> TraceJob:
    """Call a model of Muri after its batch size and GPUs too, as ``gpt2-4@8``: its stages depend on all of them."""
    model = f"{job.model}-{job.batch_size}@{job.gpus}"
    load, compute, network = (row.microseconds(column, _MS) for column in _STAGES)
    times = StageTimes(load, compute, network, row.microseconds("iteration_time", _MS, least=1))
    if row.good and not load + compute + network:
        row.add(f"no stage takes time: {', '.join(_STAGES)} are 0", code="empty")
    if row.good and notes.stages.setdefault(model, times) != times:
        row.add(f"the stages of model {model!r} are others than in the lines before", code="mismatch")
    return replace(job, model=model)


class TraceReader(NamedTuple):
    """A reader of what is no such table: a module with its ``resembles`` and, under `function`, its ``read``."""

    what: str
    module: str
    function: str

    def resembles(self, head: str) -> int:
        """Return how many marks of the format the beginning of a text has; 0 where it is of another format."""
        found: int = import_module(f"jigsaw_opt.documents.readers.{self.module}").resembles(head)
        return found

    def read(self, data: bytes | str, source: str, accept: Accept = anything, *columns: Mapping[str, str]) -> Workload:
        """Read a trace of this format; `columns` are those of `read_trace`."""
        module = import_module(f"jigsaw_opt.documents.readers.{self.module}")
        workload: Workload = getattr(module, self.function)(data, source, accept, *columns)
        return workload


_STAGES = ("resource_time_0", "resource_time_1", "resource_time_2")
_START, _STEPS = ("job_type", "command"), ("steps_argument", "data", "total_steps")
_GAVEL = (
    (*_START, "folder", *_STEPS, "scale_factor", "priority", "slo", "arrival"),
    (*_START, *_STEPS, "arrival", "scale_factor"),
    (*_START, *_STEPS, "scale_factor", "priority", "slo", "arrival"),
    (*_START, "folder", *_STEPS, "scale_factor", "mode", "priority", "slo", "duration", "arrival"),
)
"""Traces of Gavel, of its earliest and earlier versions, and of Shockwave (NSDI 2023)."""
_AZURE = (
    *("vmid", "subscriptionid", "deploymentid", "vmcreated", "vmdeleted", "maxcpu", "avgcpu", "p95maxcpu"),
    *("vmcategory", "vmcorecount", "vmmemory"),
)
_ELASTICFLOW = TraceFormat(
    "a trace of ElasticFlow",
    "name=job_id,gpus=num_gpu,seconds=duration,submit=submit_time|submission_time",
    "model=model_name",
)
"""ASPLOS 2023, and the clusters that it published. Deadlines and batch sizes are not read."""
_POLLUX = TraceFormat(
    "a workload of Pollux or Sia", "name=name,submit=time,model=application,gpus=num_replicas,batch_size=batch_size"
)
"""OSDI 2021. Batch sizes are of all GPUs; how much work an application has is known to its profile only."""
READERS: Mapping[str, TraceFormat | TraceReader] = {
    "alibaba": TraceFormat(  # the GPU trace of 2023 (openb_pod_list)
        "pods of Alibaba's GPU trace",
        "name=name,gpus=num_gpu,submit=creation_time,end=deletion_time,start=scheduled_time",
        "qos=qos,gpu_types=gpu_spec",
        refine=_tell_parts,
    ),
    "azure": TraceFormat(  # vmtable.csv of 2017 (AzurePublicDatasetV1): a virtual core counts as a GPU
        "virtual machines of Azure",
        "name=vmid,gpus=vmcorecount,submit=vmcreated,start=vmcreated,end=vmdeleted",
        "user=subscriptionid",
        forms=(_AZURE,),
        separator=",",
    ),
    "csv": TraceReader("a workload in CSV", "workload_csv", "decode_workload"),
    "elasticflow": _ELASTICFLOW,
    "helios": TraceFormat(  # SenseTime's clusters (SC 2021), and trace_seren.csv of Acme (NSDI 2024)
        "a trace of Helios",
        "name=job_id,gpus=gpu_num,submit=submit_time,start=start_time,duration=duration",
        "end=end_time,user=user,queue=vc",
        unit_us=None,
    ),
    "itp": _ELASTICFLOW,
    "kubernetes": TraceReader("jobs of Kubernetes", "kubernetes.reading", "read_kubernetes"),
    "muri": TraceFormat(  # SIGCOMM 2022; in milliseconds, with the stages of an iteration: load, compute, exchange
        "a trace of Muri",
        "name=job_id,gpus=num_gpu,submit=submit_time,iterations=iterations,model=model_name,batch_size=batch_size,"
        "iteration=iteration_time,load=resource_time_0,compute=resource_time_1,network=resource_time_2",
        unit_us=_MS,
        refine=_with_stages,
    ),
    "gavel": TraceFormat(  # OSDI 2020, with arrivals in seconds
        "a trace of Gavel",
        "submit=arrival,model=job_type,gpus=scale_factor,iterations=total_steps",
        "weight=priority",
        refine=_tell_mode,
        forms=_GAVEL,
        separator="\t",
    ),
    "philly": TraceReader("jobs of Philly", "philly", "read_philly"),
    "pollux": _POLLUX,
    "sia": replace(_POLLUX, refine=lambda _, job, __: replace(job, min_gpus=1, max_gpus=_MOST_ADAPTIVE_GPUS)),
    "slurm": TraceReader("jobs of Slurm (sacct -P)", "slurm.reading", "read_slurm"),
    "tiresias": TraceFormat(  # NSDI 2019; its duration is that on the GPUs asked for
        "a trace of Tiresias", "name=job_id,gpus=num_gpu,submit=submit_time,model=model_name,seconds=duration"
    ),
}
"""Formats by name: in one that knows no iterations, an iteration is a second of the model."""


def read_trace(
    name: str, data: bytes | str, source: str, accept: Accept = anything, columns: Mapping[str, str] | None = None
) -> Workload:
    """Read a trace in the format called `name`.

    `accept`: returns what is wrong with a job that has a model, one text a problem. `columns`: what the text calls the
    columns of our own format, ``csv``; see `decode_workload`.
    """
    if name not in READERS:
        told = f"no format {name!r} of traces; {nearest(name, sorted(READERS))}"
        raise UsageError(told, code="unknown-value", path="workload")
    reader, given = READERS[name], (columns,) if columns else ()
    if given and name != "csv":
        told = f"names of columns are for workloads in our own format, and {readable(source)} is {name!r}"
        raise UsageError(told, code="unsupported", path="columns")
    text = unpacked(data, source) if isinstance(data, bytes) else data
    return reader.read(text, source, accept, *given)
