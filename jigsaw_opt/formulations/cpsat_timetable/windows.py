"""What a limit on the objective says about the times of each job."""

from __future__ import annotations

from collections.abc import Sequence

from jigsaw_opt.formulations.cpsat_timetable.variables import Window
from jigsaw_opt.problem.pieces import Pieces

__all__ = ["windows"]


def windows(pieces: Pieces, iteration_us: Sequence[int], limit: int) -> tuple[Window, ...]:
    """Window of each job in plans whose objective is at most `limit`.

    Parameters
    ----------
    pieces
        The instance, cut.
    iteration_us
        A lower bound on the length of an iteration, by job.
    limit
        Largest objective of interest; from it and the earliest ends of the other jobs follows a job's deadline.
    """
    ends = [job.release_us + job.iterations * least for job, least in zip(pieces.jobs, iteration_us, strict=True)]
    if pieces.objective == "makespan":
        deadlines = [limit] * len(ends)
    else:
        slack = limit - sum(job.weight * end for job, end in zip(pieces.jobs, ends, strict=True))
        deadlines = [end + slack // job.weight for job, end in zip(pieces.jobs, ends, strict=True)]
    return tuple(
        Window(job.release_us, least, deadline)
        for job, least, deadline in zip(pieces.jobs, iteration_us, deadlines, strict=True)
    )
