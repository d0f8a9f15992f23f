"""Count the work of a call, so that a test of speed gives the same result on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_executed(call: Callable[[], object]) -> int:
    """Return how many lines of Python a call executes, each turn of a loop counted.

    It is called once before, for the first call may load modules and fill caches. Work inside functions written in C
    is not seen.
    """
    call()
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
