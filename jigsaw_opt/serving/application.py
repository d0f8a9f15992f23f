"""The paths of a service over HTTP: what each takes, who may ask, and what it answers."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
from anyio import CapacityLimiter, to_thread
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from jigsaw_opt.errors import Code, InvalidInputError, JigsawError, Problem, UsageError
from jigsaw_opt.scheduling import LiveScheduler
from jigsaw_opt.serving import answers as shown
from jigsaw_opt.serving.answers import ChangesQuery, JobsQuery, NoQuery, misfits
from jigsaw_opt.serving.metrics import Metrics
from jigsaw_opt.serving.openapi import document
from jigsaw_opt.serving.page import cluster_page
from jigsaw_opt.serving.service import EventRequest, FullError, NotOwnError, Service, tried
from jigsaw_opt.serving.tokens import OWN_EVENTS, ROLES, Caller, Tokens

_MOST_SHOWN, _HEARTBEAT_S = 1000, 15.0
_MOST_SLOW = 1  # each takes about a second of the processor, which events need too; more were not tried

_READ, _SUBMIT, _OPEN = 0, 1, -1
_STATUSES = ((FullError, 429), (NotOwnError, 403), (InvalidInputError, 422), (UsageError, 409))
_TOO_LONG = "it took too long; events may be sent again with the same Idempotency-Key"
_CODES: dict[int, Code] = {403: "not-allowed", 404: "unknown-name", 405: "unknown-name", 429: "too-large"}
_UNROUTED = {404: "there is no such path", 405: "the path does not take this method"}
_OWN_HOSTS = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?", re.IGNORECASE)
"""Names of this machine; a page of another site may be open in a browser here, and have its own name lead here."""


class Refusal(Exception):  # noqa: N818 - an answer, not a fault
    """An answer other than 2xx: what is wrong, and headers."""

    def __init__(self, status_code: int, path: str, message: str, code: Code, **headers: str) -> None:
        super().__init__(status_code)
        self.status_code, self.problems, self.headers = status_code, [Problem(path, message, code=code)], headers


class Endpoint(NamedTuple):
    """A path and a method, as ``openapi.json`` tells of them, and what answers.

    `call`: is given the parameters of the query, of the type `query`, beside request and caller. `role`: number in
    `ROLES`, or less for everyone.
    """

    path: str
    call: Callable[[HttpRequest, Caller, Any], Awaitable[Response]]
    role: int = _READ
    query: type[msgspec.Struct] = NoQuery
    method: str = "GET"


class ServedPaths:
    """The paths over a service.

    `tokens`: who may ask what; None for everyone everything.
    """

    def __init__(self, service: Service, tokens: Tokens | None = None) -> None:
        self._service, self._tokens, self._limits = service, tokens, service.limits
        self._metrics = Metrics(service)
        self._changed = asyncio.Event()
        self.is_ending, self._slow = False, CapacityLimiter(_MOST_SLOW)
        job = "/v1/jobs/{name}"
        self.endpoints = (
            Endpoint("/v1/events", self._events, _SUBMIT, method="POST"),
            Endpoint("/v1/what-if", self._what_if, method="POST"),
            Endpoint("/v1/changes", self._changes, query=ChangesQuery),
            Endpoint("/v1/cluster", partial(self._shown, "cluster_seen")),
            Endpoint("/v1/view", partial(self._shown, "view")),
            Endpoint("/v1/usage", self._usage),
            Endpoint("/v1/caller", self._asker),
            Endpoint("/v1/jobs", self._jobs, query=JobsQuery),
            Endpoint(f"{job}/explanation", partial(self._asked, LiveScheduler.explain)),
            Endpoint(f"{job}/start", partial(self._asked, LiveScheduler.when)),
            Endpoint(job, self._story),
            Endpoint("/metrics", self._tell_metrics),
            Endpoint("/v1/metrics", self._tell_metrics),
            Endpoint("/openapi.json", self._openapi),
            Endpoint("/healthz", partial(self._health, False), _OPEN),
            Endpoint("/readyz", partial(self._health, True), _OPEN),
        )
        routes = [Route(one.path, self._guarded(one), methods=[one.method]) for one in self.endpoints]
        routes.append(Route("/", _page))
        around = [Middleware(_encoded), Middleware(GZipMiddleware, compresslevel=1)]
        handlers = {HTTPException: _refused}
        self.app = Starlette(routes=routes, middleware=around, exception_handlers=handlers, lifespan=self._lifespan)
        self.app.router.redirect_slashes = False  # a redirection would be answered before who asks is checked

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self._service.on_change = partial(asyncio.get_running_loop().call_soon_threadsafe, self._wake)
        yield
        self._service.on_change = lambda: None

    def end(self) -> None:
        """Have connections that wait for changes answered now."""
        self.is_ending = True
        self._service.on_change()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # Around every path --------------------------------------------------------------------------------------

    def _guarded(self, endpoint: Endpoint) -> Callable[[HttpRequest], Awaitable[Response]]:
        """Return what answers a path, with who asks checked before and every refusal made an answer."""

        async def answered(request: HttpRequest) -> Response:
            began = time.monotonic()
            try:
                caller = Caller() if endpoint.role == _OPEN else self._caller(request, endpoint)
                query = _query(request, endpoint.query)
                async with asyncio.timeout(self._limits.request_s + getattr(query, "timeout_s", 0.0)):
                    response = await endpoint.call(request, caller, query)
            except (Refusal, JigsawError, TimeoutError, ClientDisconnect) as error:
                response = await _refused(request, error)
            self._metrics.requests.labels(endpoint.method, endpoint.path, response.status_code).inc()
            self._metrics.seconds.labels(endpoint.path).observe(time.monotonic() - began)
            return response

        return answered

    def _caller(self, request: HttpRequest, endpoint: Endpoint) -> Caller:
        if self._tokens is None:
            if not _OWN_HOSTS.fullmatch(request.headers.get("host", "")):
                told = "without tokens only names of this machine are answered: localhost, 127.0.0.1, [::1]"
                raise Refusal(403, "Host", told, "not-allowed")
            return Caller()
        caller = self._tokens.caller(request.headers.get("authorization", ""))
        if caller is None:
            told = "a known token is needed, as in Authorization: Bearer TOKEN"
            raise Refusal(401, "Authorization", told, "not-allowed", **{"WWW-Authenticate": "Bearer"})
        if caller.role < endpoint.role:
            told = f"the role {ROLES[caller.role]!r} may not do this"
            raise Refusal(403, "Authorization", told, "not-allowed")
        return caller

    async def _events_of(self, request: HttpRequest, caller: Caller) -> EventRequest:
        """Return the events of a body, which are not to be trusted yet."""
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise Refusal(415, "Content-Type", "must be application/json", "unknown-format")
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_s):
                async for part in request.stream():
                    body += part
                    if len(body) > self._limits.body_bytes:
                        told = f"the body has more than {self._limits.body_bytes} bytes"
                        raise Refusal(413, "$", told, "too-large")
        except TimeoutError:
            raise Refusal(408, "$", "the body did not come in time", "failed") from None
        try:
            tree = msgspec.json.decode(body)
        except (ValueError, RecursionError) as error:
            raise Refusal(400, "$", f"is not JSON: {error}", "not-json") from None
        events, key = tree if isinstance(tree, list) else [tree], request.headers.get("idempotency-key", "")
        if not 1 <= len(events) <= self._limits.events:
            raise Refusal(422, "$", f"must be 1 to {self._limits.events} events", "wrong-count")
        if len(key) > 200:
            raise Refusal(400, "Idempotency-Key", "has more than 200 characters", "too-large")
        return EventRequest(events, isinstance(tree, list), caller.name, caller.role == _SUBMIT, key)

    # Paths --------------------------------------------------------------------------------------------------

    async def _events(self, request: HttpRequest, caller: Caller, _: object) -> Response:
        found = await self._events_of(request, caller)
        kinds = [event.get("event") if isinstance(event, dict) else None for event in found.events]
        if found.own and not all(kind in OWN_EVENTS for kind in kinds if isinstance(kind, str)):
            told = f"the role {ROLES[_SUBMIT]!r} may send {', '.join(sorted(OWN_EVENTS))}"
            raise Refusal(403, "$", told, "not-allowed")
        return _json(await asyncio.wrap_future(self._service.post(found)))

    async def _what_if(self, request: HttpRequest, caller: Caller, _: object) -> Response:
        found = await self._events_of(request, caller)
        return _json(await self._slowly(lambda: shown.Tried(*tried(self._service, found))))

    async def _changes(self, request: HttpRequest, _: Caller, query: ChangesQuery) -> Response:
        is_stream = "text/event-stream" in request.headers.get("accept", "")
        last = request.headers.get("last-event-id", "") if is_stream else ""
        after = int(last) if last.isascii() and last.isdigit() and len(last) < 17 else query.after
        if after < self._service.oldest:
            told = "changes so old are no longer kept: read /v1/cluster, and go on after its sequence"
            raise Refusal(410, "after", told, "outdated")
        if (is_stream or query.timeout_s) and self._metrics.polls >= self._limits.polls:
            told = f"{self._metrics.polls} connections wait for changes already"
            raise Refusal(429, "", told, "too-large")
        if is_stream:
            headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
            return StreamingResponse(self._stream(after), media_type="text/event-stream", headers=headers)
        await self._wait(after, query.timeout_s)
        found = await self._changes_after(after)
        last_number = found[-1][0] if found else max(after, self._service.last_change)
        return _json({"changes": [msgspec.Raw(body) for _, body in found], "sequence": last_number})

    async def _changes_after(self, after: int) -> list[tuple[int, bytes]]:
        if self._service.last_change <= after:
            return []
        return await run_in_threadpool(self._service.store.changes, after, _MOST_SHOWN)

    async def _wait(self, after: int, seconds: float) -> None:
        """Wait for a change, so long at most, and not beyond the end of the service."""
        self._metrics.polls += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while self._service.last_change <= after and not self.is_ending:
                        await self._changed.wait()
        finally:
            self._metrics.polls -= 1

    async def _stream(self, after: int) -> AsyncIterator[bytes]:
        """Yield changes as server-sent events, until the client or the service ends."""
        yield b": changes of the plan\n\n"
        while not self.is_ending:
            for number, body in await self._changes_after(after):
                yield b"event: change\nid: %d\ndata: %b\n\n" % (number, body)
                after = number
            await self._wait(after, _HEARTBEAT_S)
            if self._service.last_change <= after:
                yield b": still there\n\n"

    async def _shown(self, what: str, *_: object) -> Response:
        board = self._service.board
        return await run_in_threadpool(lambda: _json(getattr(board, what)))

    async def _usage(self, *_: object) -> Response:
        columns = list(zip(*await run_in_threadpool(self._service.store.usage), strict=True))
        return _json(shown.UsageSeen(*map(list, columns or [()] * 4)))

    async def _asker(self, _: HttpRequest, caller: Caller, __: object) -> Response:
        return _json(shown.CallerSeen(caller.name, ROLES[caller.role]))

    async def _jobs(self, _: HttpRequest, __: Caller, query: JobsQuery) -> Response:
        board = self._service.board
        if query.after is not None and query.after not in board.numbers:
            raise _no_job(query.after, "after")
        begin = -1 if query.after is None else board.numbers[query.after]
        found = {index: job for index, job in board.jobs.items() if query.state in (None, board.phase(job))}
        rest = [job for index, job in found.items() if index > begin]
        page = rest[: query.limit]
        following = page[-1].trace.name if len(rest) > len(page) else None
        return _json(shown.JobsSeen(list(map(board.seen, page)), following, len(found)))

    async def _story(self, request: HttpRequest, *_: object) -> Response:
        name, board = unquote(request.path_params["name"]), self._service.board
        job = board.jobs[board.numbers[name]] if name in board.numbers else None
        rows = await run_in_threadpool(self._service.store.story, name, _MOST_SHOWN)
        if job is None and not rows:
            raise _no_job(name)
        return _json({"job": None if job is None else board.seen(job), "story": list(map(msgspec.Raw, rows))})

    async def _asked(self, ask: Callable[[LiveScheduler, str], Any], request: HttpRequest, *_: object) -> Response:
        """Return what the scheduler says of a job."""
        name = unquote(request.path_params["name"])
        if name not in self._service.board.numbers:
            raise _no_job(name)
        return _json(await self._slowly(lambda: ask(self._service.live, name).plain()))

    async def _slowly(self, call: Callable[[], object]) -> object:
        """Return what takes time and is done on a copy of the scheduler, few at a time; others are not kept waiting."""
        if self._service.is_stale:  # the scheduler has taken in what could not be written
            raise JigsawError(self._service.unwritable)
        return await to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._slow)

    async def _tell_metrics(self, *_: object) -> Response:
        text = await run_in_threadpool(generate_latest, self._metrics.registry)
        return Response(text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _health(self, is_asked_for_all: bool, *_: object) -> Response:
        failure = self._service.failure or self._service.unwritable or "the service ends" * self.is_ending
        reason = failure * is_asked_for_all
        return _json(shown.Health(not reason, reason), 503 if reason else 200)

    async def _openapi(self, *_: object) -> Response:
        return _json(document())


def _encoded(application: ASGIApp) -> ASGIApp:
    """Have an application find paths as they were sent, so that `%2F` in the name of a job does not divide them."""

    async def found(scope: Scope, receive: Receive, send: Send) -> None:
        if raw := scope.get("raw_path"):
            scope["path"] = raw.decode("latin-1")
        await application(scope, receive, send)

    return found


async def _page(_: HttpRequest) -> Response:
    """Return the page, which asks for all else; it needs no token and tells nothing of the cluster."""
    page = cluster_page()
    return Response(page.text, 200, page.headers, "text/html")


def _query(request: HttpRequest, kind: type[msgspec.Struct]) -> msgspec.Struct:
    """Return the parameters of a query."""
    given = dict(request.query_params)
    for path, message, code in misfits(given, kind):
        raise Refusal(400, path, message, code)
    return msgspec.convert(given, kind, strict=False)


def _json(body: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, {"Cache-Control": "no-store"}, "application/json")


def _no_job(name: str, path: str = "name") -> Refusal:
    return Refusal(404, path, f"there is no job {name!r}", "unknown-name")


async def _refused(_: HttpRequest, error: Exception) -> Response:
    """Return the answer for what was raised."""
    status: int = getattr(error, "status_code", 0) or next((n for kind, n in _STATUSES if isinstance(error, kind)), 503)
    told, path = _UNROUTED.get(status) or str(error) or _TOO_LONG, "$" * (status == 403)
    problems = getattr(error, "problems", ()) or [Problem(path, told, code=_CODES.get(status, "failed"))]
    if status == 409 and problems[0].code == "unknown-name":
        status = 404  # the job has ended since its name was looked up
    response = _json(shown.Refused(tuple(problems)), status)
    again = {"Retry-After": "1"} if status in (409, 429, 503) else {}
    response.headers.update(getattr(error, "headers", None) or again)
    return response
