"""The variables of the exact model on CP-SAT, by kind of job, and the times that operations are laid down on.

Times are absolute, or modulo a period (specification: cyclic-horizon).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.timetable import variables
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph
from jigsaw_opt.problem.instance import Horizon

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat.memory import Presence

    Expression = cp_model.LinearExpr | int


@dataclass(frozen=True, slots=True)
class Start:
    """The start of an operation.

    `offset`: the variable that resources see: the start itself, or its residue modulo the period. `turns`: whole
    periods before it; 0 where times are absolute.
    """

    start: Expression
    offset: cp_model.IntVar
    turns: Expression = 0


class Axis:
    """Absolute times from 0 to a limit.

    `period`: that of a plan that repeats but of which all that shares a GPU or link lies within one period anyway
    (`spans_suffice`); None on the finite horizon. A plan of which no operation runs for a while can be drawn together
    there, so one run lasts no longer than its operations in turn.
    """

    def __init__(self, limit: int, period: int | None = None) -> None:
        self.limit = self.span = limit
        self.period = period

    @property
    def horizon(self) -> Horizon:
        """Whether plans repeat."""
        return "finite" if self.period is None else "cyclic"

    def start(self, model: cp_model.CpModel, release_us: int, most_periods: int) -> Start:
        """Add a start that is not before the release, and return it."""
        start = model.new_int_var(min(release_us, self.limit), self.limit, "")
        return Start(start, start)

    def later(self, periods: int) -> int:
        """Return the length of so many periods."""
        return 0 if self.period is None else periods * self.period

    def clock(self, model: cp_model.CpModel) -> cp_model.IntVar | int:
        """Return the moment at which the clock of a job reads 0."""
        return 0

    def residue(
        self, model: cp_model.CpModel, clock: Expression, start: cp_model.IntVar, literal: cp_model.IntVar | None = None
    ) -> cp_model.IntVar:
        """Return where a start on the clock of a job lies on the axis."""
        return start

    def offset(self, start_us: int, first_us: int) -> int:
        """Return where a start lies on the axis in a plan whose first operation starts at `first_us`."""
        return start_us

    def intervals(
        self,
        model: cp_model.CpModel,
        offset: cp_model.IntVar,
        size: Expression,
        literal: cp_model.IntVar,
        end: Expression | None = None,
    ) -> list[cp_model.IntervalVar]:
        """Return the intervals that an operation takes of a resource where a literal holds."""
        return [_interval(model, offset, size, literal, self.limit, end)]


class ModuloAxis(Axis):
    """Times modulo a period.

    Operations last at most a period, so two of them overlap modulo the period exactly where two of the intervals from
    their residues and from a period later overlap. So every operation is laid down twice.
    """

    def __init__(self, period: int) -> None:
        super().__init__(period, period)
        # What begins in the first period may end in the second.
        self.span = 2 * period

    def start(self, model: cp_model.CpModel, release_us: int, most_periods: int) -> Start:
        """Add a start at most so many periods after the first one, and return it."""
        offset = model.new_int_var(0, self.limit - 1, "")
        turns = model.new_int_var(0, most_periods, "")
        return Start(offset + self.limit * turns, offset, turns)

    def clock(self, model: cp_model.CpModel) -> cp_model.IntVar | int:
        """Return the offset of a job: the moment of the period at which its clock reads 0."""
        return model.new_int_var(0, self.limit - 1, "")

    def residue(
        self, model: cp_model.CpModel, clock: Expression, start: cp_model.IntVar, literal: cp_model.IntVar | None = None
    ) -> cp_model.IntVar:
        """Return the residue of a start on the clock of a job, where a literal holds.

        The clock begins within the first period, and the start is at most a period later: one period lies before it.
        """
        residue, turns = model.new_int_var(0, self.limit - 1, ""), model.new_int_var(0, 1, "")
        enforced = [] if literal is None else [literal]
        model.add(residue == clock + start - self.limit * turns).only_enforce_if(enforced)
        return residue

    def offset(self, start_us: int, first_us: int) -> int:
        """Return the residue of a start where the first operation has residue 0."""
        return (start_us - first_us) % self.limit

    def intervals(
        self,
        model: cp_model.CpModel,
        offset: cp_model.IntVar,
        size: Expression,
        literal: cp_model.IntVar,
        end: Expression | None = None,
    ) -> list[cp_model.IntervalVar]:
        """Return the intervals that an operation takes of a resource where a literal holds, now and one period later.

        `offset`: residue of its start, in microseconds. `size`: its duration, in microseconds, at most one period.
        """
        return [_interval(model, start, size, literal, 3 * self.limit) for start in (offset, offset + self.limit)]


def block_size(model: cp_model.CpModel, times: Sequence[int], literals: Mapping[int, cp_model.IntVar]) -> Expression:
    """Return the duration of a block at the level that is chosen for it, in microseconds.

    `times`: durations by level, in microseconds.
    """
    sizes = {d: times[d - 1] for d in literals}
    least, most = min(sizes.values()), max(sizes.values())
    if least == most:
        return least
    size = model.new_int_var(least, most, "")
    for d, literal in literals.items():
        model.add(size == sizes[d]).only_enforce_if(literal)
    return size


def _interval(
    model: cp_model.CpModel,
    start: Expression,
    size: Expression,
    literal: cp_model.IntVar,
    limit: int,
    end: Expression | None = None,
) -> cp_model.IntervalVar:
    if isinstance(size, int):
        return model.new_optional_fixed_size_interval_var(start, size, literal, "")
    if end is None:
        end = model.new_int_var(0, limit, "")
        model.add(end == start + size).only_enforce_if(literal)
    return model.new_optional_interval_var(start, size, end, literal, "")


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
