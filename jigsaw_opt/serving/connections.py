"""Connections to a service: no more than there are descriptors for, and none that is silent for long."""

from __future__ import annotations

import asyncio
import resource
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

_SILENCE_S = 10  # how long the head of a request may take, from the connection or the last answer on
_PATIENCE_S = 5  # how long open connections may go on after the end was asked for
_MOST_PENDING = 128  # connections that are accepted at once, before any of them can be closed


class Connection(H11Protocol):
    """A connection that is closed where the head of a request does not come in time.

    `most`: connections at a time; beyond them the one is closed that has been without a request for longest.
    """

    def __init__(self, most: int, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._most = most

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        if len(self.connections) > self._most:
            own = [one for one in self.connections if isinstance(one, Connection)]
            timers = {one: timer for one in own if (timer := one.timeout_keep_alive_task) is not None}
            silent = min(timers, key=lambda one: timers[one].when())
            silent._unset_keepalive_if_required()
            silent.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take bytes in; those of a head that is not whole yet do not prolong the wait for it."""
        self.conn.receive_data(data)
        self.handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._unset_keepalive_if_required()


def server_of(application: ASGIApp, most: int, silence_s: int = _SILENCE_S) -> uvicorn.Server:
    """Return what serves an application over at most so many connections, fewer where descriptors are few.

    Half of the descriptors are left to files, and to connections that are accepted and closed at once.
    """
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if descriptors != resource.RLIM_INFINITY:
        most = min(most, descriptors // 2)
    options: dict[str, Any] = {"log_config": None, "access_log": False, "server_header": False, "ws": "none"}
    options |= {"http": partial(Connection, most), "timeout_keep_alive": silence_s}
    options |= {"timeout_graceful_shutdown": _PATIENCE_S, "backlog": max(1, min(_MOST_PENDING, most // 4))}
    return uvicorn.Server(uvicorn.Config(application, **options))
