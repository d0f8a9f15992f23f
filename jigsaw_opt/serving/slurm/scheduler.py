"""The scheduler behind the client: a live one in this process, or one that a service of `jigsaw serve` runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import quote, urlsplit

from jigsaw_opt.errors import JigsawError, UsageError
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.live.events import ClusterEvent, encode_event
from jigsaw_opt.scheduling.live.plan_change import JobAssignment, JobMove, JobStart, JobStop, PlanChange
from jigsaw_opt.scheduling.live.scheduler import LiveScheduler

Read = TypeVar("Read")
_STATES = ("up", "down", "closed", "closed")
"""What the numbers of states mean in a view of a service."""
_PATIENCE_S = 60.0


class ServiceError(JigsawError):
    """A service does not answer, or not as it should: what it knows now is to be asked anew."""


class KnownState(NamedTuple):
    """What a scheduler knows already: the GPUs of each job, none where it waits, and servers that are not ``up``."""

    jobs: Mapping[str, tuple[str, ...]]
    servers: Mapping[str, str]


class SchedulerBackend(Protocol):
    """What the client asks of a scheduler."""

    def known(self) -> KnownState:
        """Return what it knows before the client tells it anything."""

    def handle(self, *events: ClusterEvent) -> None:
        """Take all of these events in; raises `UsageError`, and takes none in, where one cannot be."""

    def step(self, now_us: int) -> Sequence[PlanChange]:
        """Return what changes, or what would change, in the order in which it was decided."""

    def expected_start(self, job: str, past: Sequence[TraceJob]) -> tuple[int | None, int | None, int | None]:
        """Return when a waiting job will start: the ends of an interval that holds nine in ten, the median between.

        Parameters
        ----------
        job
            Name of the job.
        past
            Jobs that ended before, in order of submission.

        Returns
        -------
        tuple[int | None, int | None, int | None]
            Times in microseconds; None for one that is not foreseen.
        """


class LocalScheduler:
    """A live scheduler in this process.

    `live`: the scheduler. `shadow`: whether it decides on a copy, so that only events change what it believes to run.
    `samples`: how many simulations a prediction takes.
    """

    def __init__(self, live: LiveScheduler, shadow: bool, samples: int = 30) -> None:
        self._live, self._shadow, self._samples = live, shadow, samples

    def known(self) -> KnownState:
        """Return what it knows: it begins with the client, so nothing."""
        return KnownState({}, {})

    def handle(self, *events: ClusterEvent) -> None:
        """Take all of these events in; raises `UsageError`, and takes none in, where one cannot be."""
        for live in (self._live.copy(), self._live) if len(events) > 1 else (self._live,):
            for event in events:
                live.handle(event)

    def step(self, now_us: int) -> Sequence[PlanChange]:
        """Return what changes now, or what would change."""
        return [(self._live.copy() if self._shadow else self._live).step(now_us)]

    def expected_start(self, job: str, past: Sequence[TraceJob]) -> tuple[int | None, int | None, int | None]:
        """Return when a waiting job will start, by the jobs that ended before."""
        found = self._live.when(job, past, self._samples)
        (low_us, high_us), (middle_us, _) = found.interval_us(0.9), found.interval_us(0.0)
        return low_us, middle_us, high_us


class ServedScheduler:
    """The scheduler of a service, which goes on while the client is away.

    `url`: where it listens, as in ``http://127.0.0.1:8440``; over plain HTTP only this machine, as the token is sent.
    `token`: who asks; empty for a service without tokens. `cluster`: what Slurm has. `shadow`: whether the client does
    not act; the service has to agree.
    """

    def __init__(self, url: str, token: str, cluster: Cluster, shadow: bool) -> None:
        parts = urlsplit(url)
        is_own = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
        if not parts.hostname or not (is_own or parts.scheme == "https"):
            raise UsageError(f"{url!r} is neither https://HOST nor http:// on this machine", code="invalid", path="url")
        self._url, self._at, self._connect = url, parts, HTTPConnection if is_own else HTTPSConnection
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._cluster, self._shadow, self._after, self._has_told = cluster, shadow, 0, False

    def known(self) -> KnownState:
        """Return who has which GPUs there; raises `UsageError` where the service is for other nodes, or acts not so."""
        return self._ask("/v1/view", self._known)

    def handle(self, *events: ClusterEvent) -> None:
        """Take all of these events in, or none, with a `UsageError`. The service gives them their time."""
        self._has_told = True
        trees = [{key: value for key, value in encode_event(event).items() if key != "time_us"} for event in events]
        self._ask("/v1/events", lambda answer: answer["without_effect"], trees)

    def step(self, now_us: int) -> Sequence[PlanChange]:
        """Return what has changed; after events it waits a moment for what is decided on them."""

        def read(answer: Any) -> list[PlanChange]:
            found = [_change(tree) for tree in answer["changes"]]
            self._after, self._has_told = answer["sequence"], False
            return found

        return self._ask(f"/v1/changes?after={self._after}&timeout_s={0.5 * self._has_told}", read)

    def expected_start(self, job: str, past: Sequence[TraceJob]) -> tuple[int | None, int | None, int | None]:
        """Return when a waiting job will start, as the service says it: jobs last as they state."""
        return self._ask(
            f"/v1/jobs/{quote(job)}/start",
            lambda told: (told["intervals_us"]["90"][0], told["median_us"], told["intervals_us"]["90"][1]),
        )

    def _known(self, view: Any) -> KnownState:
        """Return what a view tells; refuse other nodes than Slurm has, and a service that acts otherwise."""
        servers, index = view["servers"], self._cluster.gpus
        names, firsts = [server.name for server in self._cluster.servers], [gpus.start for gpus in index.of_server]
        if (servers["name"], servers["first"], len(view["gpus"]["job"])) != (names, firsts, len(index.names)):
            told = f"schedules other nodes than Slurm has: {', '.join(servers['name'])[:200]}"
            raise UsageError(f"{self._url} {told}", code="contradiction", path="url")
        if view["shadow"] != self._shadow:
            told = "is a shadow, so the client must not --act" if view["shadow"] else "acts: give it --shadow, or --act"
            raise UsageError(f"{self._url} {told}", code="contradiction", path="url")
        gpus: dict[int, list[str]] = {}
        for column in ("job", "second"):
            for gpu, job in zip(index.names, view["gpus"][column], strict=True):
                gpus.setdefault(job, []).append(gpu)
        jobs = {name: tuple(gpus.get(k, ())) for k, name in enumerate(view["jobs"]["name"])}
        out = {name: _STATES[k] for name, k in zip(names, servers["state"], strict=True) if k}
        self._after = view["sequence"]
        return KnownState(jobs, out)

    def _ask(self, path: str, read: Callable[[Any], Read], body: object = None) -> Read:
        """Return what is read from an answer; events that cannot be are a `UsageError`, all else a `ServiceError`."""
        try:
            with closing(self._connect(self._at.hostname or "", self._at.port, timeout=_PATIENCE_S)) as connection:
                told = None if body is None else json.dumps(body)
                where = self._at.path.rstrip("/") + path
                connection.request("POST" if told else "GET", where, told, self._headers)
                answer = connection.getresponse()
                tree = json.loads(answer.read())
            if answer.status != 200:
                words = "; ".join(problem["message"] for problem in tree["problems"])
                if answer.status in (413, 422):
                    raise UsageError(words, code="invalid", path="events")
                raise ServiceError(f"{answer.status}: {words}")
            return read(tree)
        except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
            raise ServiceError(str(error) or type(error).__name__) from None


def _change(tree: Any) -> PlanChange:
    """Return the change that a service tells."""
    made = JobAssignment.restored
    starts = [JobStart(made(one["to"]), one["reason"]) for one in tree["starts"]]
    stops = [JobStop(one["job"], tuple(one["gpus"]), one["reason"]) for one in tree["stops"]]
    moves = [JobMove(made(one["before"]), made(one["to"]), one["reason"]) for one in tree["moves"]]
    return PlanChange(tree["time_us"], tuple(starts), tuple(stops), tuple(moves), failure=tree["failure"])
