"""What happens to a cluster that is scheduled while it runs: events with their times, and how a journal holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from dataclasses import fields as columns
from typing import Any

from jigsaw_opt.documents.decoding import made
from jigsaw_opt.errors import Code, UsageError, kind_of
from jigsaw_opt.problem.cluster import Link, Server
from jigsaw_opt.problem.rules.report import Place, Report
from jigsaw_opt.problem.workload import LARGEST, LONGEST_NAME, MOST_GPUS, STATED, TraceJob, job_problems
from jigsaw_opt.scheduling.plain import ANYTHING, TRUTH, Plain, Shape, conforms, fields, listed, number, optional, whole


@dataclass(frozen=True)
class ClusterEvent:
    """What happens to a cluster, and when."""

    time_us: int


@dataclass(frozen=True)
class _OfJob(ClusterEvent):
    """What happens to a job."""

    job: str


@dataclass(frozen=True)
class OfServer(ClusterEvent):
    """What happens to a server."""

    server: str


@dataclass(frozen=True)
class OfGpu(ClusterEvent):
    """What happens to a GPU, by its name as in ``s0/3``."""

    gpu: str


@dataclass(frozen=True)
class OfLink(ClusterEvent):
    """What happens to a link."""

    link: str


@dataclass(frozen=True)
class JobSubmitted(ClusterEvent):
    """A job is there to be run, in a queue, from now on; from its time of submission on where that is later."""

    job: TraceJob
    queue: str = ""


@dataclass(frozen=True)
class JobProgressed(_OfJob):
    """A job has done so many iterations in all, of those that it could go on from.

    They are iterations at full depth on the GPUs that it asks for, as in `TraceJob.iterations`; a fraction counts. Two
    reports from the same GPUs tell its speed. After a loss the number may be smaller than before.
    """

    iterations: float


@dataclass(frozen=True)
class JobRunning(ClusterEvent):
    """A job runs: one that the scheduler does not know yet, or one that it believes to wait or to run elsewhere.

    It runs on these GPUs since `started_us`, with the jobs that have just the same ones, and has done so many
    iterations, as in `JobProgressed`; None for as many as is known, and of a job that was not known for none. The next
    step tells no start of it. Of a job that is known its record and its queue are not read again.
    """

    job: TraceJob
    gpus: tuple[str, ...]
    started_us: int
    iterations: float | None = None
    queue: str = ""


class JobFinished(_OfJob):
    """A job has ended by itself and left its GPUs."""


class JobCancelled(_OfJob):
    """A job is no longer wanted; if it runs, the next step stops it."""


@dataclass(frozen=True)
class StartFailed(_OfJob):
    """A start or move that a step told of did not happen, or the job failed at once: it waits with its progress.

    The named GPUs are to blame for it, and count as failed.
    """

    reason: str = ""
    gpus: tuple[str, ...] = ()


class JobRequeued(_OfJob):
    """A job has left its GPUs without having ended, and waits with the progress of its last report."""


class JobHeld(_OfJob):
    """A job is not to be started until it is released; if it runs, it goes on until something stops it."""


class JobReleased(_OfJob):
    """A job that was held may be started again."""


class JobFrozen(_OfJob):
    """The policy neither stops nor moves a job while it runs, until it is thawed."""


class JobThawed(_OfJob):
    """The policy may stop and move a job again."""


@dataclass(frozen=True)
class PriorityChanged(_OfJob):
    """A job has another weight, at least 1, or goes to the foreground or the background from now on."""

    weight: int
    foreground: bool = False


@dataclass(frozen=True)
class QuotaChanged(ClusterEvent):
    """The jobs of a queue that the policy is told of ask for so many GPUs at most; None for as many as there are.

    Those that it has been told of stay; the others wait until there is room in the quota.
    """

    queue: str
    gpus: int | None


@dataclass(frozen=True)
class ServerAdded(ClusterEvent):
    """The cluster has one server more, with links to what there is already; its GPUs have the next numbers."""

    server: Server
    links: tuple[Link, ...] = ()


class ServerCordoned(OfServer):
    """Nothing is put on a server any more until it is back; what runs there goes on to its end where it is."""


class ServerDrained(OfServer):
    """A server is to be empty: the next step takes its jobs away, and none is put there until it is back."""


class ServerLost(OfServer):
    """A server has failed, and with it what ran there."""


class ServerBack(OfServer):
    """A server that was cordoned, drained or lost can be used again."""


class GpuFailed(OfGpu):
    """A GPU has failed, and with it the jobs that ran on it."""


class GpuBack(OfGpu):
    """A GPU that had failed can be used again."""


class LinkDown(OfLink):
    """A link has failed; jobs whose servers no other route joins stop."""


class LinkUp(OfLink):
    """A link that was down can be used again."""


class PolicyBack(ClusterEvent):
    """The policy decides again after ``fifo`` has decided in its place (`LiveScheduler`, `fall_back`)."""


TIME: Shape = whole(LARGEST)
"""A time in microseconds."""


def _text(least: int, length: str, but: str = "") -> Shape:
    """Return the shape of a text that can be encoded and is not longer than names are."""
    pattern = rf"^[^{but}\ud800-\udfff]{{{least},{LONGEST_NAME}}}$"
    return {"type": "string", "pattern": pattern, "x-expected": f"a text of {length}"}


NAME = _text(1, f"1 to {LONGEST_NAME} characters")
"""A name."""
_TEXT = _text(0, f"at most {LONGEST_NAME} characters")
_PART = _text(1, f"1 to {LONGEST_NAME} characters without '/'", "/")
_SIZE = whole(LARGEST, 1)
_DONE = number(0, 1e24)
SERVER: Shape = fields(
    name=_PART,
    gpu_type=NAME,
    gpus=whole(MOST_GPUS, 1),
    gpu_memory=_SIZE,
    fabric_bandwidth=_SIZE,
    fabric_latency_us=TIME,
)
"""A server as a journal and a state hold it."""
LINK: Shape = fields(name=_PART, ends=listed(_PART, 2, 2), bandwidth=_SIZE, latency_us=TIME)
"""A link as a journal and a state hold it."""
_JOB: Shape = {
    **fields(**{column.name: ANYTHING for column in columns(TraceJob)}),
    "required": [column.name for column in columns(TraceJob) if column.name not in STATED],
}

_OF_JOB, _OF_SERVER, _OF_GPU, _OF_LINK = {"job": NAME}, {"server": NAME}, {"gpu": NAME}, {"link": NAME}
_KINDS: Mapping[str, tuple[type, Mapping[str, Shape]]] = {
    "submit": (JobSubmitted, {"job": _JOB, "queue": _TEXT}),
    "running": (
        JobRunning,
        {"job": _JOB, "gpus": listed(NAME, 1), "started_us": TIME, "iterations": optional(_DONE), "queue": _TEXT},
    ),
    "progress": (JobProgressed, {**_OF_JOB, "iterations": _DONE}),
    "finish": (JobFinished, _OF_JOB),
    "cancel": (JobCancelled, _OF_JOB),
    "start_failed": (StartFailed, {**_OF_JOB, "reason": _TEXT, "gpus": listed(NAME)}),
    "requeued": (JobRequeued, _OF_JOB),
    "held": (JobHeld, _OF_JOB),
    "released": (JobReleased, _OF_JOB),
    "frozen": (JobFrozen, _OF_JOB),
    "thawed": (JobThawed, _OF_JOB),
    "priority": (PriorityChanged, {**_OF_JOB, "weight": _SIZE, "foreground": TRUTH}),
    "quota": (QuotaChanged, {"queue": _TEXT, "gpus": optional(whole(LARGEST))}),
    "server_added": (ServerAdded, {"server": SERVER, "links": listed(LINK)}),
    "server_cordoned": (ServerCordoned, _OF_SERVER),
    "server_drained": (ServerDrained, _OF_SERVER),
    "server_lost": (ServerLost, _OF_SERVER),
    "server_back": (ServerBack, _OF_SERVER),
    "gpu_failed": (GpuFailed, _OF_GPU),
    "gpu_back": (GpuBack, _OF_GPU),
    "link_down": (LinkDown, _OF_LINK),
    "link_up": (LinkUp, _OF_LINK),
    "policy_back": (PolicyBack, {}),
}
_NAMES = {kind: name for name, (kind, _) in _KINDS.items()}
_RECORDS = {("submit", "job"): TraceJob, ("running", "job"): TraceJob, ("server_added", "server"): Server}
"""What is no plain value in an event, beside links."""


def encode_record(record: object) -> Plain:
    """Return a job, server or link as an object of JSON with every field but what a job does not state."""
    found = {column.name: getattr(record, column.name, None) for column in columns(record)}  # type: ignore[arg-type]
    return {
        name: list(value) if isinstance(value, tuple | list) else value
        for name, value in found.items()
        if value is not None or name not in STATED or not isinstance(record, TraceJob)
    }


def check_job(tree: Plain, place: Place, report: Report) -> None:
    """Report what is wrong with a job as a journal and a state hold it."""
    conforms(tree, _JOB, place, report)
    if isinstance(tree, dict) and set(_JOB["required"]) <= tree.keys() <= _JOB["properties"].keys():
        for problem in job_problems(TraceJob(**tree)):
            report.add((place, problem.path), problem.message, code=problem.code)


def entry_of(event: object, report: Report) -> Plain:
    """Return an event as an object of JSON, its kind under ``event``, and report all that is wrong in itself.

    `event`: an event that is not to be trusted: it may be anything, and so may what it holds. `report`: takes the
    problems; where there are any, the object is of no use but for what they do not name.
    """
    name = _NAMES.get(type(event))
    if name is None:
        report.add(
            "$", f"must be an event, as in JobFinished(time_us, job); is {kind_of(event)[:100]}", code="wrong-type"
        )
        return {}
    tree: dict[str, Plain] = {"event": name, **encode_record(event)}
    shapes = dict(_KINDS[name][1])
    for key, kind in ((key, kind) for (of, key), kind in _RECORDS.items() if of == name):
        if type(tree[key]) is kind:
            tree[key] = encode_record(tree[key])
        else:
            report.add(("$", key), f"must be a {kind.__name__}; is {kind_of(tree[key])[:100]}", code="wrong-type")
            shapes[key] = ANYTHING
    if name == "server_added":
        tree["links"] = _encode_links(tree["links"], report)
        if tree["links"] is None:
            shapes["links"] = ANYTHING
    _check_values(tree, shapes, report)
    return tree


def _encode_links(links: object, report: Report) -> list[Plain] | None:
    """Return links as objects of JSON, or None where they are none, which is reported."""
    if not isinstance(links, list | tuple):
        report.add(("$", "links"), f"must be a tuple of links; is {kind_of(links)[:100]}", code="wrong-type")
        return None
    wrong = [k for k, link in enumerate(links) if type(link) is not Link]
    for k in wrong:
        report.add((("$", "links"), k), f"must be a Link; is {kind_of(links[k])[:100]}", code="wrong-type")
    return None if wrong else list(map(encode_record, links))


def _check_values(tree: Plain, shapes: Mapping[str, Shape], report: Report) -> None:
    """Report where values under known keys are wrong; a key that is missing is for others to report."""
    for key, shape in {"time_us": TIME, **shapes}.items():
        if key not in tree:
            continue
        if shape is _JOB:
            check_job(tree[key], ("$", key), report)
        else:
            conforms(tree[key], shape, ("$", key), report)


def encode_event(event: ClusterEvent) -> Plain:
    """Return an event as an object of JSON, its kind under ``event``."""
    report = Report()
    tree = entry_of(event, report)
    if report.problems:
        raise UsageError(*report.problems)
    return tree


def completed(tree: Plain, time_us: int) -> Plain:
    """Return an event as an object of JSON with its time, and with the defaults of what is left out.

    `tree`: is not to be trusted, and comes back as far as it is no event.
    """
    if _wrong_kind(tree) is not None:
        return tree
    kind = tree["event"]
    found = {**_defaults(_KINDS[kind][0]), **tree, "time_us": time_us}
    for (of, key), record in _RECORDS.items():
        if of == kind and isinstance(found.get(key), dict):
            found[key] = {**_defaults(record), **({"submit_us": time_us} if key == "job" else {}), **found[key]}
    return found


def _defaults(kind: Any) -> dict[str, Plain]:
    """Return the defaults of the fields of a class, as values of JSON, but for what a job does not state."""
    found = {column.name: column.default for column in columns(kind) if column.default is not MISSING}
    return {
        name: [] if value == () else value
        for name, value in found.items()
        if kind is not TraceJob or name not in STATED
    }


def event_schemas() -> Mapping[str, Shape]:
    """Return by kind the JSON Schema of what `completed` takes, with values that have a default left out or not."""
    found = dict[str, Shape]()
    for name, (kind, shapes) in _KINDS.items():
        may_lack = _defaults(kind).keys()
        required = ["event", *(key for key in shapes if key not in may_lack)]
        found[name] = {**fields(event={"const": name}, time_us=TIME, **shapes), "required": required}
    return found


def decode_event(tree: Plain) -> ClusterEvent:
    """Return the event that `encode_event` gave."""
    report = Report()
    wrong = _wrong_kind(tree)
    if wrong is not None:
        path, code = wrong
        report.add(path, f"is no event: 'event' is one of {', '.join(_KINDS)}", code=code)
        report.raise_if_any()
    shapes = _KINDS[tree["event"]][1]
    keys = fields(event=ANYTHING, time_us=ANYTHING, **dict.fromkeys(shapes, ANYTHING))
    conforms(tree, keys, "$", report)
    _check_values(tree, shapes, report)
    report.raise_if_any()
    return event_of(tree)


def _wrong_kind(tree: Plain) -> tuple[str, Code] | None:
    """Return path and code of what is wrong with the kind of an event; None where nothing is."""
    if not isinstance(tree, dict):
        return "$", "wrong-type"
    if "event" not in tree:
        return "$", "missing-field"
    if not isinstance(tree["event"], str):
        return "$.event", "wrong-type"
    return None if tree["event"] in _KINDS else ("$.event", "unknown-value")


def event_of(tree: Plain) -> ClusterEvent:
    """Return the event of an object in which nothing is wrong."""
    event: ClusterEvent = made(_KINDS[tree["event"]][0], {key: value for key, value in tree.items() if key != "event"})
    return event
