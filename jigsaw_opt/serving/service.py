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
from typing import Any

from msgspec import convert, to_builtins
from msgspec.json import decode, encode

from jigsaw_opt.errors import InvalidInputError, JigsawError, Problem, UsageError
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.scheduling import LiveScheduler, decode_event
from jigsaw_opt.scheduling.live.events import completed
from jigsaw_opt.scheduling.plain import Plain
from jigsaw_opt.serving.answers import AcceptedEvents, NumberedChange, StoryRow, change_of, story_of
from jigsaw_opt.serving.board import ClusterBoard
from jigsaw_opt.serving.journal_store import JournalStore, Statement, StoreError

_log = logging.getLogger(__name__)
_SECOND_US, _MINUTE_US = 1_000_000, 60_000_000
_MOST_AT_ONCE = 256  # requests that are taken in before a step
_STORY = "INSERT OR IGNORE INTO stories VALUES (?, ?, ?, ?)"
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
    `polls`: most connections that wait for changes. `body_s, request_s`: seconds in which a body must come, and that a
    request may take beside what it asks to wait for changes. `lease_s`: seconds after which the file of a service that
    is gone may be taken. `snapshot_entries`: entries of the journal after which a snapshot takes their place.
    `kept_entries`: so many numbers back changes and stories are kept.
    """

    body_bytes: int = 4 * 2**20
    events: int = 1000
    waiting: int = 1000
    polls: int = 500
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

    `store`: where all is kept; `start` takes its lease. `make`: makes the scheduler, to which journal and clock are
    given by keyword. `policy`: what the policy is called. `clock`: returns the time in microseconds. `budget_s`:
    seconds that a step waits for the policy. `shadow`: whether it only tells what it would do. `limits`: how much it
    takes. `on_change, on_end`: are called when there is a change, and when the service has failed.
    """

    def __init__(
        self,
        store: JournalStore,
        make: Callable[..., LiveScheduler],
        policy: str,
        *,
        clock: Callable[[], int] = lambda: time.time_ns() // 1000,
        budget_s: float = 0.1,
        shadow: bool = False,
        limits: ServiceLimits | None = None,
    ) -> None:
        self.store, self.policy, self.shadow, self.limits = store, policy, shadow, limits or ServiceLimits()
        self.clock, self._budget_s, self._now_us = clock, budget_s, 0
        self.live = make(journal=self._note, clock=lambda: self._now_us)
        self.on_change: Callable[[], object] = lambda: None
        self.on_end: Callable[[], object] = lambda: None
        self.unwritable = self.failure = ""
        self.counts = dict.fromkeys(("events", "refused", "steps", "late", "failures", "changes"), 0)
        self.sequence = self.last_change = self.oldest = 0
        self.waiting: queue.Queue[EventRequest | None] = queue.Queue(self.limits.waiting)
        self._replaying = self._ending = False
        self._request: EventRequest | None = None
        self._unwritten: list[Plain] = []
        self._derived: list[Statement] = []
        self._owners: dict[str, str] = {}
        self._since_snapshot = self._newest_change = self._minute = 0
        self._is_due, self._next_step_s, self._pause_s = True, 0.0, 0.0
        self._wake_us: int | None = None
        self._shadow: LiveScheduler | None = None
        self._told: Plain = [[], [], [], ""]
        self._thread = threading.Thread(target=self._run, name="service")
        self._look()

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
        snapshot, entries = self.store.start()
        self._replaying = True
        if snapshot is not None:
            self.sequence, self.oldest = snapshot[0], snapshot[0] - self.limits.kept_entries
            kept = decode(snapshot[1])
            lost = self.live.restore(kept["state"])
            if lost and entries:
                hint = "start it once with the former arguments, and end it in order"
                told = f"{len(entries)} entries of the journal follow a state of other arguments"
                raise InvalidInputError([Problem("$.inputs", told, hint, code="mismatch")])
            for told in lost:
                _log.warning("what is kept goes on: %s", told)
            self._owners, self._told = kept["owners"], kept["told"]
        for self.sequence, who, entry in entries:
            self._replay(decode(entry), who)
        self._replaying, self._since_snapshot = False, len(entries)
        self._newest_change = self.last_change = max(self._newest_change, self.store.last_change())
        self._flush()
        if not entries:
            self._snapshot()  # what follows in the journal is of these arguments
        self._look()
        self._thread.start()

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
            self._write(self._snapshot)
        except BaseException as error:  # noqa: BLE001 - whatever it is, nothing more may be acknowledged
            self.failure = str(error) if isinstance(error, JigsawError) else repr(error)
            _log.error("the service ends", exc_info=not isinstance(error, JigsawError))
            self._ending = True
            self.on_end()
        while not self.waiting.empty():
            for request in self._next():
                request.answer.set_exception(BusyError("the service ends"))

    def _round(self) -> None:
        """Take in what waits, show it, answer, and step."""
        requests = self._next()
        answers = [(request.answer, self._answer(request)) for request in requests]
        if requests:
            self._look()
        for future, answer in answers:
            if isinstance(answer, AcceptedEvents):
                future.set_result(answer)
            else:
                future.set_exception(answer)
        if not self._ending and time.monotonic() >= self._next_step_s:
            self._write(self._step_if_due)
        if self._derived or not requests:
            self._write(self._flush)
        if self._since_snapshot >= self.limits.snapshot_entries and not self._pause_s:
            self._write(self._snapshot)

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

    def _write(self, what: Callable[[], object]) -> None:
        """Do what writes; where that fails, it is tried again later."""
        try:
            what()
        except StoreError as error:
            _log.warning("%s", error)
            self.unwritable, self._next_step_s = str(error), time.monotonic() + _LONGEST_PAUSE_S

    def _tick(self) -> None:
        """Read the clock; time never goes back."""
        self._now_us = max(self._now_us, self.clock(), self.live.read(lambda state: state.now_us))

    def _look(self) -> None:
        self.board = self.live.read(lambda state: ClusterBoard.of(state, self.sequence, self.policy, self.shadow))
        if (minute := self.board.head[0] // _MINUTE_US) > self._minute:
            row = (self.board.head[0], *self.board.usage)
            self._minute = minute
            self._derived.append(("INSERT OR IGNORE INTO usage VALUES (?, ?, ?, ?)", row))

    # Events -------------------------------------------------------------------------------------------------

    def _answer(self, request: EventRequest) -> AcceptedEvents | JigsawError:
        """Take the events of a request in, all or none; return what is to be answered."""
        try:
            return self._take_in(request)
        except JigsawError as error:
            self.unwritable = str(error) if isinstance(error, StoreError) else self.unwritable
            self.counts["refused"] += 1
            return error

    def _take_in(self, request: EventRequest) -> AcceptedEvents:
        if request.key and (known := self.store.request(request.who, request.key)) is not None:
            if known[0] != request.digest:
                told = "another request had this Idempotency-Key"
                raise InvalidInputError([Problem("Idempotency-Key", told, code="duplicate-name")])
            return decode(known[1], type=AcceptedEvents)
        self._require_own(request)
        self._tick()
        entries = [completed(event, self._now_us) for event in request.events]
        if len(entries) > 1:
            _tried_on(self.live.copy(), entries, request)
        first, unread = self.sequence + 1, list[str]()
        self._request, self._unwritten = request, entries
        try:
            for k, entry in enumerate(entries):
                with request.problems_at(k):
                    unread += self._handle(entry, first + k, request.who)
        finally:
            self._request, self._unwritten = None, []
        self.counts["events"] += len(entries)
        # Progress alone gives a policy nothing to decide; a shadow begins anew at every question.
        self._is_due |= self.shadow or any(entry["event"] != "progress" for entry in entries)
        answer = AcceptedEvents(len(entries), [*request.unread, *unread], self.sequence)
        if request.key and answer.without_effect:  # known only now; what is sent again gets the same answer
            sql, values = "UPDATE requests SET body = ? WHERE who = ? AND key = ?", (request.who, request.key)
            self._derived.append((sql, (encode(answer), *values)))
            self._write(self._flush)
        return answer

    def _require_own(self, request: EventRequest) -> None:
        """Refuse events on jobs that others have submitted, where the caller may touch only its own."""
        for event in request.events if request.own else ():
            name = event.get("job") if isinstance(event, dict) else None
            if isinstance(name, str) and self._owners.get(name, request.who) != request.who:
                raise NotOwnError(f"job {name!r} is not one that {request.who!r} has submitted")

    def _handle(self, entry: Plain, sequence: int, who: str) -> Sequence[str]:
        """Take an event in, once or again; return what of it has no effect."""
        event, job, unread = decode_event(entry), entry.get("job"), tuple[str, ...]()
        name = job["name"] if isinstance(job, dict) else job
        before = self._gpus_of(name)
        if self._replaying:
            self.live.replay(entry)
        else:
            unread = self.live.handle(event)
        if name is not None:
            row = StoryRow(sequence, event.time_us, who, entry["event"], before, self._gpus_of(name), event=entry)
            self._add_story(row, name, 0)
        if isinstance(job, dict):
            self._owners[name] = who
        elif not self.live.read(lambda state: name in state.numbers):
            self._owners.pop(name or "", None)
        return unread

    def _gpus_of(self, name: str | None) -> tuple[str, ...]:
        """Return the names of the GPUs that a job was told to run on."""
        return self.live.read(lambda state: state.told[name].gpus if name in state.told else ())

    # Steps --------------------------------------------------------------------------------------------------

    def _step_if_due(self) -> None:
        self._tick()
        if not (self._is_due or self._shadow or (self._wake_us is not None and self._wake_us <= self._now_us)):
            return
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
        self._flush()
        self._look()

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
        self._derived.append(("INSERT OR IGNORE INTO changes VALUES (?, ?)", (change.sequence, encode(change))))
        for part, (name, story) in enumerate(story_of(change)):
            self._add_story(story, name, part)
        self._newest_change = change.sequence
        self.counts["changes"] += not self._replaying

    def _add_story(self, row: StoryRow, job: str, part: int) -> None:
        self._derived.append((_STORY, (row.sequence, part, job, encode(row))))

    def story(self, job: str, most: int) -> list[bytes]:
        """Return the last things that happened to a job, the oldest first, with what is still to be written."""
        unwritten = [values[3] for sql, values in list(self._derived) if sql is _STORY and values[2] == job]
        rows = self.store.story(job, most)
        return [*rows, *(row for row in unwritten if row not in rows)][-most:]

    # What is kept -------------------------------------------------------------------------------------------

    def _note(self, entry: Plain) -> None:
        """Write an entry of the journal, with the other ones of its request, before it is taken in."""
        if self._replaying or (self._request is not None and not self._unwritten):
            return
        request, bodies = self._request, self._unwritten or [entry]
        who, last = "" if request is None else request.who, self.sequence + len(bodies)
        rows = [(self.sequence + k, who, encode(body)) for k, body in enumerate(bodies, 1)]
        derived = [*self._derived, *(("INSERT INTO entries VALUES (?, ?, ?)", row) for row in rows)]
        if request is not None and request.key:
            answer = encode(AcceptedEvents(len(bodies), [], last))
            row = (who, request.key, request.digest, time.time_ns() // 1000, answer)
            derived.append(("INSERT INTO requests VALUES (?, ?, ?, ?, ?)", row))
        self._flush(derived)
        self._unwritten, self.sequence = [], last
        self._since_snapshot += len(bodies)

    def _flush(self, statements: Sequence[Statement] | None = None) -> None:
        """Write what follows from the journal and more, hold the lease, and tell those who wait for changes."""
        self.store.write(self._derived if statements is None else statements)
        self._derived, self.unwritable = [], ""
        if self._newest_change > self.last_change:
            self.last_change = self._newest_change
            with suppress(RuntimeError):  # nobody waits any more
                self.on_change()

    def _snapshot(self) -> None:
        """Write the state in place of the entries that led to it."""
        kept = {"state": self.live.state(), "owners": self._owners, "told": self._told}
        oldest = self.sequence - self.limits.kept_entries
        self.store.compact(self.sequence, encode(kept), self._derived, oldest)
        self._derived, self._since_snapshot, self.oldest = [], 0, oldest
        self._flush()

    def _replay(self, entry: Plain, who: str) -> None:
        """Do again what the entry of number `sequence` says."""
        if entry["event"] == "shadow":
            self._told = [entry["change"][key] for key in ("stops", "moves", "starts", "failure")]
            self._keep(convert(entry["change"], NumberedChange))
        elif entry["event"] not in ("step", "taken"):
            self._handle(entry, self.sequence, who)
        elif (change := self.live.replay(entry)) is not None:
            self._keep(change_of(change, self.sequence, shadow=False))


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
