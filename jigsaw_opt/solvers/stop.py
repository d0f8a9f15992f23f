"""Computing that a signal ends in place of the program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.system.interrupts import on_interrupt


@contextmanager
def interruptible(options: Options) -> Iterator[None]:
    """Let a signal set the cancel flag of the options in place of ending the program.

    What is computed in the block looks at the flag, and ends within a second of it with its best result.
    """
    came: list[bool] = []

    def cancel() -> None:
        came.append(True)
        options.cancel.set()

    with on_interrupt(cancel):
        try:
            yield
        except OutOfTimeError:
            if came:
                raise KeyboardInterrupt from None
            raise
