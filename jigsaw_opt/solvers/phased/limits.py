"""What is known of the phased plans of an instance before one is made."""

from __future__ import annotations

import math
import time
from contextlib import suppress

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem import clock
from jigsaw_opt.problem.operations import Operations
from jigsaw_opt.solvers.bound_tightening import BOUND_WORK
from jigsaw_opt.solvers.bounds import Bound, stronger_bounds
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.proofs import first_bound

__all__ = ["phased_bound"]

_FIRST_SHARE, _BOUND_SHARE = 0.2, 0.1
"""Share of a time limit that may be over when the first bound ends, and up to which stronger ones are sought."""


def phased_bound(operations: Operations, options: Options, started: float) -> Bound:
    """Return what relaxations prove within a second or two, and a share of the time limit.

    `started`: when it began, on the monotonic clock, in seconds.
    """
    seconds = None if options.time_limit is None else started + _FIRST_SHARE * options.time_limit - time.monotonic()
    with clock.limited(clock.Clock(seconds, options.cancel)):
        best = first_bound(operations, options)
    end = math.inf if options.time_limit is None else started + _BOUND_SHARE * options.time_limit

    def stop() -> bool:
        return options.cancel.is_set() or time.monotonic() >= end

    with suppress(OutOfTimeError):
        for bound in stronger_bounds(operations, best.value, BOUND_WORK, stop, options.without_bounds):
            best = bound
    return best
