"""A Ray cluster that is running already (extra ``ray``): joining it, and objects in its processes."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from jigsaw_opt.errors import MissingEngineError, UsageError
from jigsaw_opt.system.companions import LostCompanionError, Maker, retried

_CONNECT_SECONDS = 5.0


def require_cluster(address: str) -> None:
    """Refuse an address at which nobody listens, and any where Ray is not installed.

    This finds out in seconds what takes Ray minutes. Only for ``host:port``; the other forms Ray refuses at once.
    """
    if find_spec("ray") is None:
        raise MissingEngineError("Ray", "jigsaw-opt[ray]")
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        return
    try:
        socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"no Ray cluster at {address!r}: {error}", code="failed", path="address") from error


@contextmanager
def joined(address: str) -> Iterator[None]:
    """Join the cluster as a driver, unless this process has; leaving it ends all that is under way."""
    import ray

    if ray.is_initialized():
        yield
        return
    try:
        ray.init(address, logging_level=logging.ERROR, log_to_driver=False)
        # Ray tells of lost workers on standard output, which is for data; no setting of its own keeps it from that.
        from ray._private import worker as driver

        vars(driver)["_worker_logs_enabled"] = False
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UsageError(f"no Ray cluster at {address!r}: {error}", code="failed", path="address") from error
    try:
        yield
    finally:
        ray.shutdown()


def cores() -> int:
    """Return the number of cores of the cluster that this process has joined."""
    import ray

    resources: Any = ray.cluster_resources
    return int(resources().get("CPU", 0))


def cause(error: Exception) -> str:
    """Return in a line why Ray has given something up."""
    return str(error).strip().rpartition("\n")[2] or type(error).__name__


class RayCompanion:
    """An object in a process of the cluster that this process has joined, which takes a core.

    What its making comes to, the first question is answered with, once a core is free.
    """

    def __init__(self, make: Maker) -> None:
        import ray

        remote: Any = ray.remote
        self._actor = remote(num_cpus=1)(make).remote()

    def ask(self, name: str, *arguments: Any) -> Any:
        """Call a method of the object and return its answer."""
        import ray
        from ray.exceptions import RayError

        try:
            return ray.get(retried(lambda: getattr(self._actor, name).remote(*arguments)))
        except (RayError, AttributeError, TypeError) as error:
            raise LostCompanionError(cause(error)) from error

    def end(self) -> None:
        """End it at once."""
        import ray

        ray.kill(self._actor)
