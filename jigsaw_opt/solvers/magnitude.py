"""How large the numbers of an instance become, and so which parts of the solvers hold them.

Documents hold numbers of 53 bits, and times, objectives and sums are products of them; Python holds them all.
"""

from __future__ import annotations

from jigsaw_opt.formulations.timetable.windows import serial_end, serial_limit
from jigsaw_opt.problem.operations import Operations

__all__ = ["beyond", "engine_holds", "largest_objective", "largest_time", "orders_fit", "schedules_fit"]

_ENGINE = 2**60
"""CP-SAT counts with 63 bits and adds several numbers of its models."""
_SCHEDULES = 2**61
_ORDERS = {"finite": 2**61, "cyclic": 2**55}
"""On the cyclic horizon starts grow by many periods."""


def largest_time(operations: Operations) -> int:
    """A moment that no schedule passes in which some operation runs at any moment before its end, in microseconds."""
    return serial_end(operations) * max(job.slots for job in operations.jobs)


def largest_objective(operations: Operations) -> int:
    """The objective that goes with it."""
    return serial_limit(operations) * max(job.slots for job in operations.jobs)


def beyond(operations: Operations) -> int:
    """More than any time or objective of an order of operations; 64 bits hold it where they hold these."""
    return 2**62 if orders_fit(operations) else 2**7 * largest_objective(operations)


def schedules_fit(operations: Operations) -> bool:
    """Whether arrays of 64 bits hold list schedules."""
    return largest_time(operations) < _SCHEDULES


def orders_fit(operations: Operations) -> bool:
    """Whether arrays of 64 bits hold schedules as orders of operations, and their objectives."""
    return largest_objective(operations) < _ORDERS[operations.horizon]


def engine_holds(operations: Operations) -> bool:
    """Whether models of CP-SAT hold times and objectives of plans worth finding."""
    return serial_limit(operations) < _ENGINE
