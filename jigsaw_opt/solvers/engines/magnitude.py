"""How large the numbers of an instance become, and so which parts of the solvers hold them.

Documents hold numbers of 53 bits, and times, objectives and sums are products of them; Python holds them all.
"""

from __future__ import annotations

from jigsaw_opt.formulations.timetable.windows import serial_end, serial_limit
from jigsaw_opt.problem.compiled.operations import Operations

_ENGINE = 2**60
"""CP-SAT counts with 63 bits and adds several numbers of its models."""
EXACT_FLOATS = 2**53
"""Below it, floats state whole numbers exactly, so that a bound which an engine states as a float proves something."""
_SCHEDULES = 2**61
"""Arrays have 64 bits, and kernels add a few times of a list schedule."""
_ORDERS = {"finite": 2**61, "cyclic": 2**55}
"""The same for orders of operations. On the cyclic horizon starts grow by many periods."""


def largest_objective(operations: Operations) -> int:
    """Return an objective that no schedule exceeds in which some operation always runs before its end."""
    return serial_limit(operations) * max(job.slots for job in operations.jobs)


def progress_sum(operations: Operations) -> int:
    """Return a sum of progress that no job exceeds whose progress is limited, in millionths."""
    limited = ((job, job.rule.progress) for job in operations.jobs)
    return max((job.iterations * job.levels * own.efficiency.most for job, own in limited if own), default=0)


def infinity(operations: Operations) -> int:
    """Return more than any time or objective of an order of operations; it fits in 64 bits where these do."""
    return 2**62 if orders_fit(operations) else 2**7 * largest_objective(operations)


def schedules_fit(operations: Operations) -> bool:
    """Return whether arrays of 64 bits hold list schedules."""
    return serial_end(operations) * max(job.slots for job in operations.jobs) < _SCHEDULES


def orders_fit(operations: Operations) -> bool:
    """Return whether arrays of 64 bits hold schedules as orders of operations, and their objectives."""
    return largest_objective(operations) < _ORDERS[operations.horizon]


def engine_excess(largest: int) -> str | None:
    """Return why models of CP-SAT do not hold objectives up to `largest`; None where they do."""
    return None if largest < _ENGINE else f"its objective goes up to {largest:,}, and less than {_ENGINE:,} is taken"


def first_excess(*measures: tuple[str, int, int]) -> str | None:
    """Return the first of several counts that is above its limit, in words; None where none is."""
    excesses = (f"{count:,} {what}, and at most {most:,} are taken" for what, count, most in measures if count > most)
    return next(excesses, None)
