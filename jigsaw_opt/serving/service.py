"""A live scheduler with a thread of its own, which takes events in, steps, and writes all of it down."""

from __future__ import annotations

import hashlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from msgspec import to_builtins
from msgspec.json import decode, encode

from jigsaw_opt.errors import InvalidInputError, JigsawError, Problem, UsageError
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.scheduling import LiveScheduler, decode_event
from jigsaw_opt.scheduling.live.events import completed
from jigsaw_opt.scheduling.plain import Plain
from jigsaw_opt.serving.answers import AcceptedEvents, NumberedChange, StoryRow, change_of, story_of
from jigsaw_opt.serving.board import ClusterBoard
from jigsaw_opt.serving.journal_store import JournalStore, StoreError

_log = logging.getLogger(__name__)
_SECOND_US, _MINUTE_US = 1_000_000, 60_000_000
_MOST_AT_ONCE = 256  # requests that are taken in before a step
_LONGEST_PAUSE_S = 1.0  # between two looks whether a late decision is there, and between two tries to write


class BusyError(JigsawError):
    """The service ends, or a request takes too long: try again later."""


class FullError(JigsawError):
    """Too many requests wait: try again later."""


class NotOwnError(JigsawError):
    """A job was submitted by somebody else, and the role does not reach further."""


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """How much a service takes, and for how long it waits.

    `body_bytes, events`: longest body, and most events in it. `waiting`: most requests that wait to be taken in.
    `polls, connections`: most connections that wait for changes, and most of all. `body_s, request_s`: seconds in which
    a body must come, and that a request may take beside what it asks to wait for changes. `lease_s`: seconds after
    which the file of a service that is gone may be taken. `snapshot_entries`: entries of the journal after which a
    snapshot takes their place. `kept_entries`: so many numbers back changes and stories are kept.
    """

    body_bytes: int = 4 * 2**20
    events: int = 1000
    waiting: int = 400
    polls: int = 500
    connections: int = 1000
    body_s: float = 10.0
    request_s: float = 30.0
    lease_s: float = 5.0
    snapshot_entries: int = 1000
    kept_entries: int = 100_000


@dataclass(frozen=True, slots=True)
class EventRequest:
    """Events to be taken in together.

    `events`: objects of JSON, which are not to be trusted. `listed`: whether they came as a list, so that paths name
    their places. `who`: name of the caller. `own`: whether only jobs of the caller may be touched. `key`: by which the
    request is known if it is sent again; empty for none.
    """

    events: Sequence[Plain]
    listed: bool = True
    who: str = ""
    own: bool = False
    key: str = ""
    answer: Future[Any] = field(default_factory=Future)

    @property
    def digest(self) -> bytes:
        """What tells another request with the same key."""
        return hashlib.sha256(encode([self.listed, self.events])).digest()

    @property
    def unread(self) -> list[str]:
        """What no event of the request changes."""
        has_time = any(isinstance(event, dict) and "time_us" in event for event in self.events)
        return ["'time_us' is not read: the clock of the service gives the time"] * has_time

    @contextmanager
    def problems_at(self, k: int) -> Iterator[None]:
        """Raise what is wrong with an event with where it stands in the body."""
        try:
            yield
        except (InvalidInputError, UsageError) as error:
            place = f"$[{k}]" if self.listed else "$"
            found = [replace(problem, path=place + problem.path.removeprefix("$")) for problem in error.problems]
            raise InvalidInputError(found) from None


class Service:
    """One live scheduler behind a queue of requests.

    `store`: where all is kept; `start` takes its lease. `make`: makes the scheduler of `arguments`, to which journal
    and clock are given by keyword. `arguments`: values of JSON, which are kept with the state; ``policy`` among them is
    what the policy is called. `clock`: returns the time in microseconds. `budget_s`: seconds that a step waits for the
    policy. `shadow`: whether it only tells what it would do. `limits`: how much it takes. `on_change, on_end`: are
    called when there is a change, and when the service has failed.
    """

    def __init__(
        self,
        store: JournalStore,
        make: Callable[..., LiveScheduler],
        arguments: Plain,
        *,
        clock: Callable[[], int] = lambda: time.time_ns() // 1000,
        budget_s: float = 0.1,
        shadow: bool = False,
        limits: ServiceLimits | None = None,
    ) -> None:
        self.store, self.shadow, self.limits = store, shadow, limits or ServiceLimits()
        self.policy, self.clock, self._budget_s, self._now_us = arguments["policy"], clock, budget_s, 0
        self._make, self._arguments = partial(make, journal=self._note, clock=lambda: self._now_us), arguments
        self.live = self._make(arguments)
        self.on_change: Callable[[], object] = lambda: None
        self.on_end: Callable[[], object] = lambda: None
        self.unwritable = self.failure = ""
        self.counts = dict.fromkeys(("events", "refused", "steps", "late", "failures", "changes"), 0)
        self.sequence = self.last_change = self.oldest = 0
        self.waiting: queue.Queue[EventRequest | None] = queue.Queue(self.limits.waiting)
        # `is_stale`: whether the file has to be read before anything is taken in.
        self._replaying, self._ending, self.is_stale = False, False, True
        self._requests, self._who, self._owners = list[EventRequest](), "", dict[str, str]()
        self._newest_change = self._minute = 0
        self._is_due, self._next_step_s, self._pause_s = True, 0.0, 0.0
        self._wake_us: int | None = None
        self._shadow: LiveScheduler | None = None
        self._told: Plain = [[], [], [], ""]
        self._thread = threading.Thread(target=self._run, name="service")
        self.board = self._seen()

    def post(self, request: EventRequest) -> Future[Any]:
        """Have events taken in by the thread of the service; the answer comes once they are on disk."""
        if self._ending:
            raise BusyError("the service ends")
        try:
            self.waiting.put_nowait(request)
        except queue.Full:
            raise FullError(f"{self.limits.waiting} requests wait already") from None
        return request.answer

    # From beginning to end ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Take the lease, go on from what is kept, and begin to take requests in."""
        self.store.take_lease()
        if error := self._written(self._snapshot):
            raise error  # what follows in the journal is of these arguments
        self._thread.start()

    def _load(self) -> None:
        """Bring the scheduler to what is on disk; after a crash, entries are replayed with the arguments of then.

        Replaying may take longer than the lease lasts, so this is done in a block that writes: nobody else can then.
        """
        snapshot, entries = self.store.start()
        self._replaying, self.sequence, lost = True, 0, tuple[str, ...]()
        kept: Plain = {"state": None, "arguments": self._arguments, "owners": {}, "told": self._told}
        if snapshot is not None:
            self.sequence, kept = snapshot[0], decode(snapshot[1])
        self._owners, self._told, self.oldest = kept["owners"], kept["told"], self.sequence - self.limits.kept_entries
        arguments = kept["arguments"] if entries else self._arguments
        self.live = self._make(arguments)
        if kept["state"] is not None and (lost := self.live.restore(kept["state"])) and entries:
            hint = "start it once with what they were decided with, and end it in order"
            told = f"{len(entries)} entries of the journal follow a state of other files or another version"
            raise InvalidInputError([Problem("$.inputs", told, hint, code="mismatch")])
        for self.sequence, who, entry in entries:
            self._replay(decode(entry), who)
        if arguments != self._arguments:
            state, self.live = self.live.state(), self._make(self._arguments)
            lost = self.live.restore(state)
        for told in lost:
            _log.warning("what is kept goes on: %s", told)
        self._replaying, self._is_due, self._shadow, self.is_stale = False, True, None, False
        self._newest_change = self.last_change = self.store.last_change()

    def stop(self) -> None:
        """Take in what waits, save the state and give the lease back."""
        self._ending = True
        with suppress(queue.Full):
            self.waiting.put_nowait(None)
        self._thread.join()
        with suppress(StoreError):
            self.store.close()

    def _run(self) -> None:
        """Take requests in and step, until the end; the only thread that changes anything."""
        try:
            while not (self._ending and self.waiting.empty()):
                self._round()
            self._written(self._snapshot)
        except BaseException as error:  # noqa: BLE001 - whatever it is, nothing more may be acknowledged
            self.failure = str(error) if isinstance(error, JigsawError) else repr(error)
            _log.error("the service ends", exc_info=not isinstance(error, JigsawError))
            self._ending = True
            self.on_end()
        while self._requests or not self.waiting.empty():
            for request in self._requests:
                request.answer.set_exception(BusyError("the service ends"))
            self._requests = self._next()

    def _round(self) -> None:
        """Take in what waits, write it in one transaction, show it, answer, and step."""
        requests = self._requests = self._next()
        answers = list[AcceptedEvents | JigsawError]()
        if requests and (error := self._written(lambda: answers.extend(map(self._answer, requests)))):
            answers = [error] * len(requests)
        self._requests = []
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, AcceptedEvents):
                request.answer.set_result(answer)
            else:
                request.answer.set_exception(answer)
        if not self._ending and time.monotonic() >= self._next_step_s:
            self._tick()
            if self._is_due or self._shadow or (self._wake_us is not None and self._wake_us <= self._now_us):
                self._written(self._step)
            since = self.sequence - self.oldest - self.limits.kept_entries
            if since >= self.limits.snapshot_entries and not self._pause_s:
                self._written(self._snapshot)
        if not requests:
            self._written(lambda: None)  # the lease is held, and what could not be written is tried again

    def _next(self) -> list[EventRequest]:
        """Wait for requests, or until it is time for a step or for the lease; return them."""
        due_s = self.limits.lease_s if self._wake_us is None else (self._wake_us - self.clock()) / _SECOND_US
        wait_s = max(0.0 if self._is_due else due_s, self._next_step_s - time.monotonic(), 0.0)
        found: list[EventRequest | None] = []
        with suppress(queue.Empty):
            found.append(self.waiting.get(not self._ending, min(wait_s, self.limits.lease_s / 3)))
            while len(found) < _MOST_AT_ONCE:
                found.append(self.waiting.get_nowait())
        return [one for one in found if one is not None and one.answer.set_running_or_notify_cancel()]

    def _written(self, what: Callable[[], object]) -> StoreError | None:
        """Do what changes the state, with all that is to be written of it, and show it.

        Where that cannot be written nothing of it has been, which is tried again later, and the error is returned.
        """
        before, counts = (self.sequence, self.oldest), dict(self.counts)
        try:
            with self.store.writing():
                if self.is_stale:
                    self._load()
                    before = self.sequence, self.oldest
                self._tick()
                self._who = ""
                what()
                board = self._seen()
                if (minute := board.head[0] // _MINUTE_US) > self._minute:
                    self.store.execute("INSERT OR IGNORE INTO usage VALUES (?, ?, ?, ?)", board.head[0], *board.usage)
        except StoreError as error:
            _log.warning("%s", error)
            self.unwritable, self._next_step_s = str(error), time.monotonic() + _LONGEST_PAUSE_S
            self.counts, self._is_due = counts, True
            self.is_stale |= self.sequence != before[0]
            self.oldest = before[1]
            return error
        self.board, self._minute, self.unwritable = board, max(minute, self._minute), ""
        if self._newest_change > self.last_change:
            self.last_change = self._newest_change
            with suppress(RuntimeError):  # nobody waits any more
                self.on_change()
        return None

    def _tick(self) -> None:
        """Read the clock; time never goes back."""
        self._now_us = max(self._now_us, self.clock(), self.live.read(lambda state: state.now_us))

    def _seen(self) -> ClusterBoard:
        return self.live.read(lambda state: ClusterBoard.of(state, self.sequence, self.policy, self.shadow))

    # Events -------------------------------------------------------------------------------------------------

    def _answer(self, request: EventRequest) -> AcceptedEvents | JigsawError:
        """Take the events of a request in, all or none; return what is to be answered."""
        try:
            return self._take_in(request)
        except JigsawError as error:
            self.counts["refused"] += 1
            return error

    def _take_in(self, request: EventRequest) -> AcceptedEvents:
        if request.key and (known := self.store.request(request.who, request.key)) is not None:
            if known[0] != request.digest:
                told = "another request had this Idempotency-Key"
                raise InvalidInputError([Problem("Idempotency-Key", told, code="duplicate-name")])
            return decode(known[1], type=AcceptedEvents)
        self._require_own(request)
        entries = [completed(event, self._now_us) for event in request.events]
        self._who, unread = request.who, list(request.unread)
        if len(entries) > 1:
            if any(isinstance(entry, dict) and entry.get("event") == "server_added" for entry in entries):
                self.live.settle()  # a server is added after a late decision, and the copy has none
            _tried_on(self.live.copy(), entries, request)
        for k, entry in enumerate(entries):
            with request.problems_at(k):
                unread += self._handle(entry, request.who)
        self.counts["events"] += len(entries)
        # Progress alone gives a policy nothing to decide; a shadow begins anew at every question.
        self._is_due |= self.shadow or any(entry["event"] != "progress" for entry in entries)
        answer = AcceptedEvents(len(entries), unread, self.sequence)
        if request.key:
            row = request.who, request.key, request.digest, time.time_ns() // 1000, encode(answer)
            self.store.execute("INSERT INTO requests VALUES (?, ?, ?, ?, ?)", *row)
        return answer

    def _require_own(self, request: EventRequest) -> None:
        """Refuse events on jobs that others have submitted, where the caller may touch only its own."""
        for event in request.events if request.own else ():
            name = event.get("job") if isinstance(event, dict) else None
            if isinstance(name, str) and self._owners.get(name, request.who) != request.who:
                raise NotOwnError(f"job {name!r} is not one that {request.who!r} has submitted")

    def _handle(self, entry: Plain, who: str) -> Sequence[str]:
        """Take an event in, once or again; return what of it has no effect."""
        event, job, unread = decode_event(entry), entry.get("job"), tuple[str, ...]()
        name = job["name"] if isinstance(job, dict) else job
        before = self._gpus_of(name)
        if self._replaying:
            self.live.replay(entry)
        else:
            unread = self.live.handle(event)
        if name is not None and not self._replaying:
            row = StoryRow(self.sequence, event.time_us, who, entry["event"], before, self._gpus_of(name), event=entry)
            self._add_story(row, name, 0)
        if isinstance(job, dict):
            self._owners.setdefault(name, who)  # a report that it runs takes it from nobody
        elif not self.live.read(lambda state: name in state.numbers):
            self._owners.pop(name or "", None)
        return unread

    def _gpus_of(self, name: str | None) -> tuple[str, ...]:
        """Return the names of the GPUs that a job was told to run on."""
        return self.live.read(lambda state: state.told[name].gpus if name in state.told else ())

    # Steps --------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        """Ask the policy, or have a copy of the scheduler asked, and keep what changes."""
        if self.shadow:
            self._shadow = self._shadow or self.live.copy()
        change = (self._shadow or self.live).step(self._now_us, self._budget_s)
        self._is_due, self._wake_us = change.late, change.wake_us
        self._pause_s = min(max(2 * self._pause_s, self._budget_s, 0.01), _LONGEST_PAUSE_S) if change.late else 0.0
        self._next_step_s = time.monotonic() + self._pause_s
        for what, is_one in (("steps", True), ("late", change.late), ("failures", change.failure != "")):
            self.counts[what] += is_one
        if not self.shadow:
            self._keep(change_of(change, self.sequence, shadow=False))
        elif not change.late:
            self._shadow = None
            self._tell_shadow(change_of(change, self.sequence + 1, shadow=True))

    def _tell_shadow(self, change: NumberedChange) -> None:
        """Note what would change, if it is not what was told last."""
        told = decode(encode([change.stops, change.moves, change.starts, change.failure]))
        if told != self._told:
            self._note({"event": "shadow", "change": to_builtins(change)})
            self._told = told
            self._keep(change)

    def _keep(self, change: NumberedChange) -> None:
        """Have a change written, and with it what it means to each job."""
        if not (change.stops or change.moves or change.starts or change.failure or change.shadow):
            return
        self.store.execute("INSERT INTO changes VALUES (?, ?)", change.sequence, encode(change))
        for part, (name, story) in enumerate(story_of(change)):
            self._add_story(story, name, part)
        self._newest_change = change.sequence
        self.counts["changes"] += 1

    def _add_story(self, row: StoryRow, job: str, part: int) -> None:
        self.store.execute("INSERT INTO stories VALUES (?, ?, ?, ?)", row.sequence, part, job, encode(row))

    # What is kept -------------------------------------------------------------------------------------------

    def _note(self, entry: Plain) -> None:
        """Write an entry of the journal before it is taken in."""
        if not self._replaying:
            self.store.execute("INSERT INTO entries VALUES (?, ?, ?)", self.sequence + 1, self._who, encode(entry))
            self.sequence += 1

    def _snapshot(self) -> None:
        """Write the state in place of the entries that led to it."""
        kept = {"state": self.live.state(), "arguments": self._arguments, "owners": self._owners, "told": self._told}
        self.oldest = self.sequence - self.limits.kept_entries
        self.store.compact(self.sequence, encode(kept), self.oldest)

    def _replay(self, entry: Plain, who: str) -> None:
        """Do again what the entry of number `sequence` says."""
        if entry["event"] == "shadow":
            self._told = [entry["change"][key] for key in ("stops", "moves", "starts", "failure")]
        elif entry["event"] in ("step", "taken"):
            self.live.replay(entry)
        else:
            self._handle(entry, who)


def tried(service: Service, request: EventRequest) -> tuple[list[str], NumberedChange]:
    """Return what of events has no effect, and what a step would change after them; nothing is kept."""
    twin = service.live.copy()
    now_us = max(service.clock(), twin.read(lambda state: state.now_us))
    unread = _tried_on(twin, [completed(event, now_us) for event in request.events], request)
    return [*request.unread, *unread], change_of(twin.step(now_us), service.sequence, service.shadow)


def _tried_on(twin: LiveScheduler, entries: Sequence[Plain], request: EventRequest) -> list[str]:
    """Take all events in, or raise all that is wrong with them; return what of them has no effect."""
    report, unread = Report(), list[str]()
    for k, entry in enumerate(entries):
        try:
            with request.problems_at(k):
                unread += twin.handle(decode_event(entry))
        except InvalidInputError as error:
            list(map(report.note, error.problems))
    report.raise_if_any()
    return unread
