"""The integer program over whole schedules (equations 10 to 13): exact where all schedules are listed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from jigsaw_opt.formulations.algebra import AlgebraicModel, Expression

if TYPE_CHECKING:
    import pulp

__all__ = ["ScheduleChoice", "build"]

Choice: TypeAlias = "tuple[tuple[pulp.LpVariable, ...], ...]"


@dataclass(frozen=True, slots=True)
class ScheduleChoice:
    """The program and its variables.

    `program`: the program; its objective is the makespan in slots.
    """

    program: AlgebraicModel
    choice: Choice

    def chosen(self, values: Sequence[float]) -> int:
        """Return the number of the schedule that the values of all columns choose."""
        first = self.choice[0]
        # All jobs have the same schedule, so that the first job says which. The largest value is taken, as floats may
        # be a little off 1.
        return max(range(len(first)), key=lambda k: values[self.program.column(first[k])])


def build(ends: Sequence[Sequence[int]]) -> ScheduleChoice:
    """Build the program that chooses one of the listed schedules, ``Y``.

    Parameters
    ----------
    ends
        End of every job in every schedule, ``a_j(y^k) + rho_j(y^k)`` by schedule and job; at least one of each.
    """
    program = AlgebraicModel("sjf_bco")
    jobs, schedules = range(len(ends[0])), range(len(ends))
    choice = tuple(tuple(program.binary(f"x_{j}_{k}") for k in schedules) for j in jobs)
    makespan = program.time("makespan", 0, max(map(max, ends)))
    program.minimize(makespan)
    _every_end_is_within_the_makespan(program, makespan, choice, ends)
    _every_job_has_one_schedule(program, choice)
    _all_jobs_have_the_same(program, choice)
    return ScheduleChoice(program, choice)


def _every_end_is_within_the_makespan(
    program: AlgebraicModel, makespan: Expression, choice: Choice, ends: Sequence[Sequence[int]]
) -> None:
    """Add equation (10): ``makespan >= sum_k T_j(y^k) x_j^k``."""
    for j, row in enumerate(choice):
        program.add(makespan >= program.total(ends[k][j] * x for k, x in enumerate(row)), f"end_{j}")


def _every_job_has_one_schedule(program: AlgebraicModel, choice: Choice) -> None:
    """Add equation (11): ``sum_k x_j^k = 1``."""
    for j, row in enumerate(choice):
        program.add(program.total(row) == 1, f"one_{j}")


def _all_jobs_have_the_same(program: AlgebraicModel, choice: Choice) -> None:
    """Add equation (12): ``x_j^k = x_j'^k``, for neighbours, which says it for all."""
    for j, (row, following) in enumerate(pairwise(choice)):
        for k, (mine, other) in enumerate(zip(row, following, strict=True)):
            program.add(mine == other, f"same_{j}_{k}")
