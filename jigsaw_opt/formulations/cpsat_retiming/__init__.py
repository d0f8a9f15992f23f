"""Some placed jobs timed anew between fixed others, as a CP-SAT model; see ``docs/search.md`` for it in formulas.

Every worker keeps its GPU; levels and starts are free. On the finite horizon the latest end or the weighted sum of all
ends is least; on the cyclic horizon the period is given and any solution will do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_model import new_model
from jigsaw_opt.formulations.cpsat_retiming.timing import add_disjoint, add_job
from jigsaw_opt.formulations.cpsat_retiming.variables import Frame, RetimingTask, TaskVariables, add_depth_rule
from jigsaw_opt.formulations.disjoint import Busy

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["Busy", "CpSatRetiming", "Frame", "RetimedTiming", "RetimingTask", "build"]


@dataclass(frozen=True, slots=True)
class RetimedTiming:
    """Levels and starts of one job.

    `levels, blocks, transfers`: level and start of each slot, and start of each transfer, in microseconds; the first
    index is the iteration.
    """

    levels: list[tuple[int, ...]]
    blocks: list[list[int]]
    transfers: list[list[int]]


@dataclass(frozen=True, slots=True)
class CpSatRetiming:
    """Variables and constraints.

    `tasks`: variables, one entry for each job.
    """

    tasks: Sequence[TaskVariables]
    proto: cp_model.CpModel

    def plan(self, value: Callable[[cp_model.IntVar], int]) -> list[RetimedTiming]:
        """Return the timing of each job in a solution, given the value of each variable."""
        return [
            RetimedTiming(
                [tuple(_chosen(literals, value) for literals in row) for row in task.levels],
                [[value(start) for start in row] for row in task.starts],
                [[value(start) for start in row] for row in task.moves],
            )
            for task in self.tasks
        ]

    def hint(self, timings: Sequence[RetimedTiming]) -> None:
        """Offer a timing to the engine as its first solution."""
        for job_vars, timing in zip(self.tasks, timings, strict=True):
            for rows, values in ((job_vars.starts, timing.blocks), (job_vars.moves, timing.transfers)):
                for variables, starts in zip(rows, values, strict=True):
                    for variable, start in zip(variables, starts, strict=True):
                        self.proto.add_hint(variable, start)
            for literals_of, levels in zip(job_vars.levels, timing.levels, strict=True):
                for literals, level in zip(literals_of, levels, strict=True):
                    # A single level is no choice, and its literal is fixed already.
                    for d, literal in literals.items() if len(literals) > 1 else ():
                        self.proto.add_hint(literal, d == level)


def build(tasks: Sequence[RetimingTask], frame: Frame, busy_gpus: Busy, busy_links: Busy) -> CpSatRetiming:
    """Build the model.

    Parameters
    ----------
    tasks
        The jobs to be timed.
    frame
        Period, objective, and its limits.
    busy_gpus, busy_links
        Intervals that others take, by GPU and by link.
    """
    proto = new_model()
    jobs = [TaskVariables(task) for task in tasks]
    for job_vars in jobs:
        add_depth_rule(proto, job_vars)
        add_job(proto, job_vars, frame)
    add_disjoint(proto, jobs, frame, busy_gpus, busy_links)
    if frame.period is None:
        _add_objective(proto, jobs, frame)
    return CpSatRetiming(jobs, proto)


def _add_objective(proto: cp_model.CpModel, jobs: Sequence[TaskVariables], frame: Frame) -> None:
    """Minimise the latest end of a job, or the weighted sum of all ends (specification: objective)."""
    objective = proto.new_int_var(frame.bound, frame.limit, "objective")
    proto.minimize(objective)
    if frame.weighted:
        proto.add(objective == sum(job_vars.task.job.weight * job_vars.ends[-1] for job_vars in jobs))
        return
    for job_vars in jobs:
        proto.add(objective >= job_vars.ends[-1])


def _chosen(literals: Mapping[int, cp_model.IntVar], value: Callable[[cp_model.IntVar], int]) -> int:
    if len(literals) == 1:
        return next(iter(literals))
    return next(level for level, literal in literals.items() if value(literal))
