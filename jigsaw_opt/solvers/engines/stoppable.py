"""Running an engine that blocks, so that it can be stopped."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

__all__ = ["run_stoppable"]

T = TypeVar("T")
_POLL_SECONDS = 0.02


def run_stoppable(call: Callable[[], T], stopped: Callable[[], bool], cancel: Callable[[], None], name: str) -> T:
    """Run an engine in a thread of its own, and return what it returns.

    Parameters
    ----------
    call
        Blocks until the engine has ended.
    stopped
        Whether the engine should end; asked every few milliseconds.
    cancel
        Makes the engine end soon; called again as long as it has not.
    name
        Of the thread.
    """
    with ThreadPoolExecutor(1, thread_name_prefix=f"jigsaw-{name}") as pool:
        future = pool.submit(call)
        try:
            while not wait([future], _POLL_SECONDS).done:
                if stopped():
                    cancel()
        finally:
            # A second Ctrl-C lands here; the engine must not outlive the call.
            if not future.done():
                cancel()
    return future.result()
