"""The variables of the exact model on CP-SAT, by kind of job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.timetable import variables
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat.axis import Axis, Start
    from jigsaw_opt.formulations.cpsat.presence import Presence

    Expression = cp_model.LinearExpr | int


@dataclass(slots=True)
class JobVariables(variables.JobVariables["cp_model.IntVar", "Expression"]):
    """Variables of one data-parallel job, on its own clock.

    `offset`: moment at which its clock reads 0. `presence`: when it is present; None where it is so always.
    """

    offset: cp_model.IntVar | int = 0
    presence: Presence | None = None


@dataclass(slots=True)
class TaskGraphVariables:
    """The variables of one task-graph job.

    `at`: ``at[slot][gpu]``: literal that the slot is on the GPU; only GPUs that it may be on. `on`:
    ``on[slot][server]``: literal that the slot is on the server. `links`: ``links[operation, link]``: literal that the
    transfer occupies the link for some time. `presence`: when it is present; None where it is so always.
    """

    graph: CompiledTaskGraph
    at: list[dict[int, cp_model.IntVar]] = field(default_factory=list)
    on: list[dict[int, cp_model.IntVar]] = field(default_factory=list)
    size: list[Expression] = field(default_factory=list)
    links: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)
    starts: list[list[Start]] = field(default_factory=list)
    presence: Presence | None = None

    def start(self, iteration: int, operation: int) -> Expression:
        """Return the start of an operation."""
        return self.starts[iteration][operation].start

    def end(self, iteration: int, operation: int) -> Expression:
        """Return the end of an operation."""
        return self.starts[iteration][operation].start + self.size[operation]


@dataclass(frozen=True, slots=True)
class InstanceVariables:
    """The variables of one instance, and the model of the engine that has them.

    `eligibility`: the instance, its GPUs and routes. `jobs, graphs`: variables of the data-parallel jobs and of those
    with a task graph. `axis`: the times that operations are laid down on.
    """

    proto: cp_model.CpModel
    eligibility: GpuEligibility
    jobs: Sequence[JobVariables]
    graphs: Sequence[TaskGraphVariables]
    axis: Axis
