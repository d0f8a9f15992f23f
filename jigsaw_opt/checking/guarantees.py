"""Guarantees of jobs: the deadline, and the mean time an iteration (specification: deadline, pace)."""

from __future__ import annotations

from collections.abc import Iterator

from jigsaw_opt.checking.violation import Violation
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.task_graph import TaskGraphJob

__all__ = ["guarantees"]


def guarantees(job: Job | TaskGraphJob, path: str, end_us: int, period_us: int | None) -> Iterator[Violation]:
    """Check the deadline of a job, and its guarantee of the mean time an iteration.

    `period_us`: the period of a cyclic plan, at least 1; None on the finite horizon.
    """
    deadline = job.deadline_us
    if deadline is not None and end_us > deadline:
        message = f"ends at {end_us}, {end_us - deadline} us after its deadline at {deadline}"
        yield Violation("deadline", path, message)
    limit, iterations = job.pace_us, job.iterations
    # The product spares a division that would have to be rounded.
    if limit is not None and period_us is not None and period_us > limit * iterations:
        message = (
            f"{iterations} iterations within the period of {period_us} us are "
            f"{period_us - limit * iterations} us slower than {limit} us each"
        )
        yield Violation("pace", path, message)
