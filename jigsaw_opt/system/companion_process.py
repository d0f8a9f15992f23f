"""The program of the process of a `LocalCompanion`: it makes an object and calls its methods, as it is asked to."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection
from typing import Any

_LOOK_SECONDS = 1.0
"""Seconds between two looks at whether the parent lives: a process that it has forked may hold its end of the pipe."""


def main(descriptor: int) -> None:
    """Answer until the parent ends or closes the pipe, then end at once, whatever other threads are at.

    `descriptor`: number of the open file of this end of the pipe.
    """
    connection, parent = Connection(descriptor), os.getppid()
    try:
        held = _answered(connection, parent, None)
        while True:
            _answered(connection, parent, held)
    except (EOFError, OSError):
        pass
    finally:
        os._exit(0)


def _answered(connection: Connection, parent: int, held: Any) -> Any:
    """Carry out the next call and tell what came of it; the first one makes the object, and is asked for as None."""
    while not connection.poll(_LOOK_SECONDS):
        if os.getppid() != parent:
            raise EOFError
    try:
        message = connection.recv()
        found = message() if held is None else getattr(held, message[0])(*message[1])
        answer = (None, None if held is None else found)
    except EOFError:
        raise
    except Exception as error:
        connection.send((f"{type(error).__name__}: {error}", None))
        raise EOFError from error
    connection.send(answer)
    return found
