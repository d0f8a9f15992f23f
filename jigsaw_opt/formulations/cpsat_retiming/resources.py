"""GPUs and links, each for one operation at a time (specification: exclusive), on either horizon of known length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_retiming.variables import Frame, TaskVariables
from jigsaw_opt.formulations.disjoint import LINKS, Busy, User, add_no_overlaps, operation_intervals

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["Busy", "add_disjoint"]

_MOST_TURNS = 2
"""An operation starts less than two periods after 0, or at their end where it takes no time."""


def add_disjoint(
    model: cp_model.CpModel, jobs: Sequence[TaskVariables], frame: Frame, busy_gpus: Busy, busy_links: Busy
) -> None:
    """Require that blocks and transfers overlap neither each other nor what is fixed (specification: exclusive)."""
    users: dict[tuple[str, int], list[User]] = {}
    for j, job_vars in enumerate(jobs):
        for slot, gpu in enumerate(job_vars.task.gpus):
            users.setdefault(("gpu", gpu), []).append((j, slot))
        for link in job_vars.task.channel.links:
            users.setdefault(("link", link), []).append((j, LINKS))

    def intervals(user: User) -> list[cp_model.IntervalVar]:
        """Return the intervals of a job's slot, or of its transfers."""
        job_vars, slot = jobs[user[0]], user[1]
        if slot == LINKS:
            operations = [
                pair for row, sizes in zip(job_vars.moves, job_vars.durations, strict=True) for pair in zip(row, sizes)
            ]
        else:
            operations = [(row[slot], sizes[slot]) for row, sizes in zip(job_vars.starts, job_vars.sizes, strict=True)]
        return [
            interval
            for start, size in operations
            # An operation of no length is in nobody's way, but its interval could not lie within another one.
            if not (isinstance(size, int) and size == 0)
            for interval in operation_intervals(model, start, size, frame.period, _MOST_TURNS)
        ]

    add_no_overlaps(model, users, {"gpu": busy_gpus, "link": busy_links}, intervals, frame.period)
