"""Services over a small cluster, each asked over HTTP without a network."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed (extra serve)")
pytest.importorskip("msgspec", reason="msgspec is not installed (extra serve)")

from starlette.testclient import TestClient

from jigsaw_opt.scheduling import LiveScheduler
from jigsaw_opt.serving.application import ServedPaths
from jigsaw_opt.serving.journal_store import JournalStore
from jigsaw_opt.serving.service import Service, ServiceLimits
from jigsaw_opt.serving.tokens import Tokens
from tests.scheduling.live_cases import star

START_US = 1_796_000_000_000_000


class HandClock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now_us = START_US

    def __call__(self) -> int:
        return self.now_us


class Served:
    """A service, and a client that asks it."""

    def __init__(self, service: Service, application: ServedPaths, client: TestClient) -> None:
        self.service, self.application, self.client = service, application, client

    def post(self, body: object, status: int = 200, path: str = "/v1/events", **headers: str) -> Any:
        """Post events; the answer, which has the status."""
        response = self.client.post(path, json=body, headers={key.replace("_", "-"): v for key, v in headers.items()})
        assert response.status_code == status, response.text
        return response.json()

    def get(self, path: str, status: int = 200) -> Any:
        """Get an answer, which has the status."""
        response = self.client.get(path)
        assert response.status_code == status, response.text
        return response.json()

    def changes(self, after: int = 0, seconds: float = 10) -> list[Any]:
        """Changes after a number, of which there will be some."""
        found: list[Any] = self.get(f"/v1/changes?after={after}&timeout_s={seconds}")["changes"]
        return found


def service(
    folder: Path, policy: str = "fifo", make: Callable[..., LiveScheduler] = LiveScheduler, **own: Any
) -> Service:
    """Return a service over two servers of four GPUs that is not started."""
    limits = ServiceLimits(**{"lease_s": 0.3} | own.pop("limits", {}))
    own.setdefault("clock", HandClock())
    store = JournalStore(folder / "served.db", limits.lease_s)

    def made(given: Any, **more: Any) -> LiveScheduler:
        return make(star("v", "v"), **given, **more)

    return Service(store, made, {"policy": policy}, limits=limits, **own)


@contextmanager
def served(folder: Path, policy: str = "fifo", tokens: Tokens | None = None, **own: Any) -> Iterator[Served]:
    """Serve in the block."""
    found = service(folder, policy, **own)
    found.start()
    application = ServedPaths(found, tokens)
    try:
        with TestClient(application.app, "http://localhost", raise_server_exceptions=True) as client:
            yield Served(found, application, client)
    finally:
        found.stop()


def copied(found: Service, folder: Path) -> Path:
    """Return a folder with what is on disk now, as a crash at this moment would leave it."""
    folder.mkdir()
    for name in ("served.db", "served.db-wal"):
        shutil.copy(found.store.path.parent / name, folder / name)
    return folder


def submit(name: str, gpus: int = 4, **more: Any) -> dict[str, Any]:
    """Return the event of a job that is submitted."""
    return {"event": "submit", "job": {"name": name, "model": "m", "gpus": gpus, "iterations": 1000, **more}}
