"""The bodies of answers and the parameters of queries, from which the schemas of the OpenAPI document come as well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, ValidationError, convert, structs

from jigsaw_opt.errors import Code, Problem
from jigsaw_opt.problem.workload import LARGEST
from jigsaw_opt.scheduling import JobStop, PlanChange
from jigsaw_opt.scheduling.plain import Plain

ServerState = Literal["up", "down", "drained", "cordoned"]
JobPhase = Literal["running", "waiting", "held"]
Number = Annotated[int, Meta(ge=0, le=LARGEST)]
_OF_WORD: dict[str, Code] = {"code": "unknown-value"}  # of a problem with a word; of others it is out-of-range


class Refused(Struct, frozen=True):
    """Why a request was refused."""

    problems: tuple[Problem, ...]


class AcceptedEvents(Struct, frozen=True):
    """Events that count, what of them has no effect, and the number of the last one."""

    accepted: Number
    without_effect: list[str]
    sequence: Number


class NumberedChange(Struct, frozen=True):
    """A change of the plan; of a shadow, nobody is to carry it out."""

    sequence: Number
    time_us: Number
    shadow: bool
    late: bool
    failure: str
    wake_us: int | None
    stops: tuple[JobStop, ...]
    moves: list[dict[str, Plain]]
    starts: list[dict[str, Plain]]


class Changes(Struct, frozen=True):
    """Changes after a number, and the number to go on from."""

    changes: list[NumberedChange]
    sequence: Number


class Tried(Struct, frozen=True):
    """What a step would change after events that are only tried."""

    without_effect: list[str]
    change: NumberedChange


class Moment(Struct, frozen=True):
    """What was decided last, and by whom."""

    time_us: Number
    sequence: Number
    policy: str
    shadow: bool


class ServerSeen(Struct, frozen=True):
    """A server, and its GPUs with who runs there."""

    name: str
    gpu_type: str
    gpus: Number
    gpu_memory: Number
    state: ServerState
    rack: str | None
    on: list[dict[str, Plain]]


class ClusterSeen(Moment, frozen=True):
    """The cluster at a moment."""

    servers: list[ServerSeen]
    switches: tuple[str, ...]
    links: list[dict[str, Plain]]
    quotas: dict[str, int]


class View(Moment, frozen=True):
    """All that a page of the cluster shows; under `servers`, `gpus` and `jobs` stand columns."""

    servers: dict[str, list[Any]]
    racks: list[str]
    gpus: dict[str, list[int]]
    jobs: dict[str, list[Any]]
    waiting: list[int]
    links_down: list[str]


class UsageSeen(Struct, frozen=True):
    """What was in use, up and waited for when something first happened in a minute; arrays of one length."""

    time_us: list[Number]
    in_use: list[Number]
    up: list[Number]
    waiting: list[Number]


class CallerSeen(Struct, frozen=True):
    """Who asks, by its token."""

    name: str
    role: Literal["read", "submit", "operate"]


class JobSeen(Struct, frozen=True):
    """A job that has not ended."""

    name: str
    model: str
    gpus: Number
    queue: str
    state: JobPhase
    weight: int
    foreground: bool
    submitted_us: Number
    progress: float
    iterations: int | None
    on: list[str]
    partners: list[str]
    reason: str


class JobsSeen(Struct, frozen=True):
    """Jobs in order of submission, the name to go on after, and how many there are."""

    jobs: list[JobSeen]
    next: str | None
    total: Number


class StoryRow(Struct, frozen=True):
    """Something that happened to a job: an event, or a part of a change, and its GPUs before and after."""

    sequence: Number
    time_us: Number
    who: str
    what: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    text: str = ""
    event: dict[str, Plain] | None = None


class JobStory(Struct, frozen=True):
    """A job, or None once it has ended, and what happened to it."""

    job: JobSeen | None
    story: list[StoryRow]


class Health(Struct, frozen=True):
    """Whether a service works, and what hinders it."""

    ok: bool
    reason: str = ""


class NoQuery(Struct, forbid_unknown_fields=True):
    """No parameters."""


class ChangesQuery(Struct, forbid_unknown_fields=True):
    """Which changes, and how long to wait for one."""

    after: Annotated[Number, Meta(description=f"an integer from 0 to {LARGEST}")] = 0
    timeout_s: Annotated[float, Meta(ge=0, le=60, description="a number of seconds from 0 to 60")] = 0.0


class JobsQuery(Struct, forbid_unknown_fields=True):
    """Which jobs."""

    state: Annotated[JobPhase | None, Meta(description="running, waiting or held", extra=_OF_WORD)] = None
    limit: Annotated[int, Meta(ge=1, le=1000, description="an integer from 1 to 1000")] = 100
    after: Annotated[str | None, Meta(description="the name of a job")] = None


def misfits(given: Mapping[str, Any], kind: type[Struct]) -> Iterator[tuple[str, str, Code]]:
    """Yield what is wrong with values by name for the fields of a type, each of which is described.

    Each is a name, what is wrong with the value under it, which is not repeated, and the code of the problem.
    """
    fields = {field.name: field for field in structs.fields(kind)}
    for name in (name for name in given if name not in fields):
        yield name, f"is not known here; known are: {', '.join(fields) or 'none'}", "unknown-field"
    for name, field in fields.items():
        try:
            if name in given:
                convert(given[name], field.type, strict=False)
            elif field.required:
                yield name, "is missing", "missing-field"
        except ValidationError:
            meta = field.type.__metadata__[-1]
            yield name, f"must be {meta.description}", (meta.extra or {}).get("code", "out-of-range")


def change_of(change: PlanChange, sequence: int, shadow: bool) -> NumberedChange:
    """Return a change as answers tell it, with the number of its step."""
    starts = [{"to": one.to.plain(), "reason": one.reason} for one in change.starts]
    moves = [
        {"before": one.before.plain(), "to": one.to.plain(), "restarts": one.restarts, "reason": one.reason}
        for one in change.moves
    ]
    head = (sequence, change.time_us, shadow, change.late, change.failure, change.wake_us)
    return NumberedChange(*head, change.stops, moves, starts)


def story_of(change: NumberedChange) -> Iterator[tuple[str, StoryRow]]:
    """Yield what a change means to each of its jobs: its name, and the GPUs before and after."""
    parts: list[tuple[str, str, Any, Any, str]] = [(one.job, "stop", one.gpus, (), one.reason) for one in change.stops]
    parts += [
        (one["to"]["job"], "move", one["before"]["gpus"], one["to"]["gpus"], one["reason"]) for one in change.moves
    ]
    parts += [(one["to"]["job"], "start", (), one["to"]["gpus"], one["reason"]) for one in change.starts]
    for job, what, before, after, reason in parts:
        what = "would " * change.shadow + what
        yield job, StoryRow(change.sequence, change.time_us, "", what, before, after, reason)
