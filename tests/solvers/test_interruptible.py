"""A signal while something is computed sets the cancel flag; without any result it is an interrupt."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.stop import interruptible


@pytest.fixture(autouse=True)
def python_handler() -> Iterator[None]:
    """Have Ctrl-C handled as a program does, also where the tests run with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_signal_sets_the_flag_and_the_block_goes_on() -> None:
    options = Options()
    with interruptible(options):
        signal.raise_signal(signal.SIGINT)
        assert options.cancel.is_set()


def test_no_result_after_a_signal_is_an_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible(Options()):
        signal.raise_signal(signal.SIGINT)
        raise OutOfTimeError("nothing was found")


def test_no_result_without_a_signal_is_a_limit() -> None:
    options = Options()
    options.cancel.set()
    with pytest.raises(OutOfTimeError), interruptible(options):
        raise OutOfTimeError("nothing was found")
