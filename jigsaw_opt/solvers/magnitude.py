"""How large the numbers of an instance become, and so which parts of the solvers hold them.

Documents hold numbers of 53 bits, and times, objectives and sums are products of them; Python holds them all.
"""

from __future__ import annotations

from jigsaw_opt.formulations.timetable.windows import serial_end, serial_limit
from jigsaw_opt.problem.pieces import Pieces

__all__ = ["beyond", "engine_holds", "largest_objective", "largest_time", "orders_fit", "schedules_fit"]

_ENGINE = 2**60
"""CP-SAT counts with 63 bits and adds several numbers of its models."""
_SCHEDULES = 2**61
_ORDERS = {"finite": 2**61, "cyclic": 2**55}
"""On the cyclic horizon starts grow by many periods."""


def largest_time(pieces: Pieces) -> int:
    """A moment that no schedule passes in which some piece runs at any moment before its end, in microseconds."""
    return serial_end(pieces) * max(job.slots for job in pieces.jobs)


def largest_objective(pieces: Pieces) -> int:
    """The objective that goes with it."""
    return serial_limit(pieces) * max(job.slots for job in pieces.jobs)


def beyond(pieces: Pieces) -> int:
    """More than any time or objective of an order of pieces; 64 bits hold it where they hold these."""
    return 2**62 if orders_fit(pieces) else 2**7 * largest_objective(pieces)


def schedules_fit(pieces: Pieces) -> bool:
    """Whether arrays of 64 bits hold list schedules."""
    return largest_time(pieces) < _SCHEDULES


def orders_fit(pieces: Pieces) -> bool:
    """Whether arrays of 64 bits hold schedules as orders of pieces, and their objectives."""
    return largest_objective(pieces) < _ORDERS[pieces.horizon]


def engine_holds(pieces: Pieces) -> bool:
    """Whether models of CP-SAT hold times and objectives of plans worth finding."""
    return serial_limit(pieces) < _ENGINE
