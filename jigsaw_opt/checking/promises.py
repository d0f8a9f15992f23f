"""What jobs promise of their ends and of their pace (specification: deadline, pace)."""

from __future__ import annotations

from collections.abc import Iterator

from jigsaw_opt.checking.jobs import CheckedJob
from jigsaw_opt.checking.shaped import CheckedShapedJob
from jigsaw_opt.checking.violation import Violation

__all__ = ["promises"]


def promises(job: CheckedJob | CheckedShapedJob, period_us: int | None) -> Iterator[Violation]:
    """The deadline of a job, and its pace.

    Parameters
    ----------
    job
        The job.
    period_us
        The period of a cyclic plan, at least 1; None on the finite horizon.
    """
    deadline, end = job.job.deadline_us, job.end_us
    if deadline is not None and end > deadline:
        message = f"ends at {end}, {end - deadline} us after its deadline at {deadline}"
        yield Violation("deadline", job.path, message)
    pace, iterations = job.job.pace_us, job.job.iterations
    if pace is not None and period_us is not None and period_us > pace * iterations:
        message = (
            f"{iterations} iterations within the period of {period_us} us are "
            f"{period_us - pace * iterations} us slower than {pace} us each"
        )
        yield Violation("pace", job.path, message)
