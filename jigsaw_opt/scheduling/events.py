"""What happens to a cluster that is scheduled while it runs: events with their times, and how a journal holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields as columns

from jigsaw_opt.documents.report import Report
from jigsaw_opt.problem.cluster import Link, Server
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.plain import (
    MOST,
    TRUTH,
    Plain,
    Shape,
    conforms,
    fields,
    listed,
    number,
    optional,
    whole,
)

__all__ = [
    "JOB",
    "ClusterEvent",
    "JobCancelled",
    "JobFinished",
    "JobProgressed",
    "JobSubmitted",
    "LinkDown",
    "LinkUp",
    "PriorityChanged",
    "QuotaChanged",
    "ServerAdded",
    "ServerBack",
    "ServerDrained",
    "ServerLost",
    "decode_event",
    "decode_link",
    "encode_event",
    "encode_record",
]


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """A job is there to be run, in a queue; its time of submission is that of the event, whatever the job says."""

    time_us: int
    job: TraceJob
    queue: str = ""


@dataclass(frozen=True, slots=True)
class JobProgressed:
    """A job has done so many iterations in all, of those that it could go on from.

    They are iterations at full depth on the GPUs that it asks for, as in `TraceJob.iterations`; a fraction counts. Two
    reports from the same GPUs tell its pace. After a loss the number may be smaller than before.
    """

    time_us: int
    job: str
    iterations: float


@dataclass(frozen=True, slots=True)
class JobFinished:
    """A job has ended by itself and left its GPUs."""

    time_us: int
    job: str


@dataclass(frozen=True, slots=True)
class JobCancelled:
    """A job is no longer wanted; if it runs, the next step stops it."""

    time_us: int
    job: str


@dataclass(frozen=True, slots=True)
class PriorityChanged:
    """A job has another weight, at least 1, or goes to the foreground or the background from now on."""

    time_us: int
    job: str
    weight: int
    foreground: bool = False


@dataclass(frozen=True, slots=True)
class QuotaChanged:
    """The jobs of a queue that the policy is told of ask for so many GPUs at most; None for as many as there are.

    Those that it has been told of stay; the others wait until there is room in the quota.
    """

    time_us: int
    queue: str
    gpus: int | None


@dataclass(frozen=True, slots=True)
class ServerAdded:
    """The cluster has one server more, with links to what there is already; its GPUs have the next numbers."""

    time_us: int
    server: Server
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerDrained:
    """A server is to be empty: the next step takes its jobs away, and none is put there until it is back."""

    time_us: int
    server: str


@dataclass(frozen=True, slots=True)
class ServerLost:
    """A server has failed, and with it what ran there."""

    time_us: int
    server: str


@dataclass(frozen=True, slots=True)
class ServerBack:
    """A server that was drained or lost can be used again."""

    time_us: int
    server: str


@dataclass(frozen=True, slots=True)
class LinkDown:
    """A link has failed; jobs whose servers no other route joins stop."""

    time_us: int
    link: str


@dataclass(frozen=True, slots=True)
class LinkUp:
    """A link that was down can be used again."""

    time_us: int
    link: str


ClusterEvent = (
    JobSubmitted
    | JobProgressed
    | JobFinished
    | JobCancelled
    | PriorityChanged
    | QuotaChanged
    | ServerAdded
    | ServerDrained
    | ServerLost
    | ServerBack
    | LinkDown
    | LinkUp
)

_TEXT: Shape = {"type": "string"}
_OWN_GPUS = whole(10**6)
JOB: Shape = fields(
    name=_TEXT,
    submit_us=whole(),
    model=_TEXT,
    gpus=whole(10**6, 1),
    iterations=optional(whole(MOST, 1)),
    min_gpus=_OWN_GPUS,
    max_gpus=_OWN_GPUS,
    weight=whole(MOST, 1),
    batch_size=optional(whole(MOST, 1)),
    foreground=TRUTH,
)
"""A job as a journal and a state hold it."""

_OF_JOB, _OF_SERVER, _OF_LINK = {"job": _TEXT}, {"server": _TEXT}, {"link": _TEXT}
_KINDS: Mapping[str, tuple[type, Mapping[str, Shape]]] = {
    "submit": (JobSubmitted, {"job": JOB, "queue": _TEXT}),
    "progress": (JobProgressed, {**_OF_JOB, "iterations": number(0, 1e24)}),
    "finish": (JobFinished, _OF_JOB),
    "cancel": (JobCancelled, _OF_JOB),
    "priority": (PriorityChanged, {**_OF_JOB, "weight": whole(MOST, 1), "foreground": TRUTH}),
    "quota": (QuotaChanged, {"queue": _TEXT, "gpus": optional(whole(MOST))}),
    "server_added": (ServerAdded, {"server": {"$ref": "#/$defs/server"}, "links": listed({"$ref": "#/$defs/link"})}),
    "server_drained": (ServerDrained, _OF_SERVER),
    "server_lost": (ServerLost, _OF_SERVER),
    "server_back": (ServerBack, _OF_SERVER),
    "link_down": (LinkDown, _OF_LINK),
    "link_up": (LinkUp, _OF_LINK),
}
_NAMES = {kind: name for name, (kind, _) in _KINDS.items()}


def encode_record(record: object) -> Plain:
    """A job, server or link as an object of JSON with every field."""
    found = {column.name: getattr(record, column.name) for column in columns(record)}  # type: ignore[arg-type]
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def decode_link(tree: Plain) -> Link:
    """The link of an object of the right shape."""
    return Link(**{**tree, "ends": tuple(tree["ends"])})


def encode_event(event: ClusterEvent) -> Plain:
    """An event as an object of JSON, its kind under ``event``."""
    tree = {"event": _NAMES[type(event)], **encode_record(event)}
    for key in ("job", "server"):
        if not isinstance(tree.get(key, ""), str):
            tree[key] = encode_record(tree[key])
    if "links" in tree:
        tree["links"] = list(map(encode_record, tree["links"]))
    return tree


def decode_event(tree: Plain) -> ClusterEvent:
    """The event that `encode_event` gave.

    Parameters
    ----------
    tree
        Not to be trusted.

    Raises
    ------
    InvalidInputError
        It is none, with every problem and its path from ``$``.
    """
    report = Report()
    name = tree.get("event") if isinstance(tree, dict) else None
    if not isinstance(name, str) or name not in _KINDS:
        report.add("$", f"is no event: 'event' is one of {', '.join(_KINDS)}")
        report.raise_if_any()
    kind, shapes = _KINDS[str(name)]
    conforms(tree, fields(event=_TEXT, time_us=whole(), **shapes), "$", report)
    report.raise_if_any()
    made = {key: value for key, value in tree.items() if key != "event"}
    if kind is JobSubmitted:
        made["job"] = TraceJob(**made["job"])
    elif kind is ServerAdded:
        made |= {"server": Server(**made["server"]), "links": tuple(map(decode_link, made["links"]))}
    event: ClusterEvent = kind(**made)
    return event
