"""Variables of a task-graph job, and the axis that its operations are laid down on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from jigsaw_opt.formulations.cpsat_timetable.presence import Presence
from jigsaw_opt.problem.cluster import Routes
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph
from jigsaw_opt.problem.instance import Horizon

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    Expression: TypeAlias = cp_model.LinearExpr | int


class Gpus:
    """The GPUs of a cluster by number, server by server."""

    def __init__(self, routes: Routes) -> None:
        self.routes, self.cluster = routes, routes.cluster
        self.all = self.cluster.gpus.places

    def gpu_type(self, gpu: int) -> str:
        """Return the type of a GPU."""
        return self.cluster.servers[self.all[gpu][0]].gpu_type

    def memory(self, gpu: int) -> int:
        """Return the bytes of a GPU."""
        return self.cluster.servers[self.all[gpu][0]].gpu_memory


@dataclass(frozen=True, slots=True)
class Start:
    """The start of an operation.

    `offset`: the variable that resources see: the start itself, or its residue modulo the period. `turns`: whole
    periods before it; 0 where times are absolute.
    """

    start: Expression
    offset: cp_model.IntVar
    turns: Expression = 0


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


class TimeAxis:
    """Absolute times from 0 to a limit."""

    horizon: ClassVar[Horizon] = "finite"

    def __init__(self, limit: int) -> None:
        self.limit = self.span = limit

    def start(self, model: cp_model.CpModel, release_us: int, most_periods: int) -> Start:
        """Add a start that is not before the release, and return it."""
        start = model.new_int_var(min(release_us, self.limit), self.limit, "")
        return Start(start, start)

    def later(self, periods: int) -> Expression:
        """Return the length of so many periods."""
        return 0

    def offset(self, start_us: int, first_us: int) -> int:
        """Return where a start lies on the axis in a plan whose first operation starts at `first_us`."""
        return start_us

    def intervals(
        self, model: cp_model.CpModel, offset: cp_model.IntVar, size: Expression, literal: cp_model.IntVar
    ) -> list[cp_model.IntervalVar]:
        """Return the intervals that an operation takes of a resource where a literal holds."""
        return [_interval(model, offset, size, literal, self.limit)]


class SpanAxis(TimeAxis):
    """Absolute times of one run of a job, whose period is a variable.

    It holds where all that shares a GPU or link lies within one period anyway (`spans_suffice`). A plan of which no
    operation runs for a while can be drawn together there, so one run lasts no longer than its operations in turn.

    `limit`: time of all operations one after the other.
    """

    horizon: ClassVar[Horizon] = "cyclic"

    def __init__(self, limit: int, period: cp_model.IntVar) -> None:
        super().__init__(limit)
        self.period = period

    def later(self, periods: int) -> Expression:
        """Return the length of so many periods."""
        return periods * self.period


class ModuloAxis(TimeAxis):
    """Times modulo a period, which is a constant.

    A start is a residue and a number of whole periods. Operations last at most a period, so two of them overlap modulo
    the period exactly where two of the intervals from the residues and a period later overlap.
    """

    horizon: ClassVar[Horizon] = "cyclic"

    def __init__(self, period: int) -> None:
        super().__init__(period)
        # What begins in the first period may end in the second.
        self.span = 2 * period

    def start(self, model: cp_model.CpModel, release_us: int, most_periods: int) -> Start:
        """Add a start at most so many periods after the first one, and return it."""
        offset = model.new_int_var(0, self.limit - 1, "")
        turns = model.new_int_var(0, most_periods, "")
        return Start(offset + self.limit * turns, offset, turns)

    def later(self, periods: int) -> Expression:
        """Return the length of so many periods."""
        return periods * self.limit

    def offset(self, start_us: int, first_us: int) -> int:
        """Return the residue of a start where the first operation has residue 0."""
        return (start_us - first_us) % self.limit

    def intervals(
        self, model: cp_model.CpModel, offset: cp_model.IntVar, size: Expression, literal: cp_model.IntVar
    ) -> list[cp_model.IntervalVar]:
        """Return the intervals that an operation takes of a resource where a literal holds, now and one period later.

        `offset`: residue of its start, in microseconds. `size`: its duration, in microseconds, at most one period.
        """
        return [_interval(model, start, size, literal, 3 * self.limit) for start in (offset, offset + self.limit)]


def _interval(
    model: cp_model.CpModel, start: Expression, size: Expression, literal: cp_model.IntVar, limit: int
) -> cp_model.IntervalVar:
    if isinstance(size, int):
        return model.new_optional_fixed_size_interval_var(start, size, literal, "")
    end = model.new_int_var(0, limit, "")
    model.add(end == start + size).only_enforce_if(literal)
    return model.new_optional_interval_var(start, size, end, literal, "")
