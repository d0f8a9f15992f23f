"""The holes of one task-graph job, and how many equal pieces of other jobs each of them takes, as an integer program.

``docs/fill.md`` has it in formulas. The job keeps each of its GPUs within one period (barrier ``slot`` or ``job``), the
order of its blocks on each GPU follows from its edges, and its transfers use no link. So times are absolute ones, each
GPU has one hole between two of its blocks and one between the last and the first of the next period, and of pieces
only their number in each hole matters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_model import new_model
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


@dataclass(frozen=True, slots=True)
class Pieces:
    """Blocks that are alike, each on one GPU.

    `length_us`: duration of one block, in microseconds. `gpus`: largest number of GPUs that they may be on.
    """

    length_us: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Parts:
    """The pieces of an iteration of jobs that are alike.

    `weight`: weight of an iteration in the objective. `counts`: classes of pieces by number, and how many of each it
    has. `most`: iterations of all these jobs together, at most.
    """

    weight: int
    counts: tuple[tuple[int, int], ...]
    most: int


@dataclass(frozen=True, slots=True)
class HoleProblem:
    """One task-graph job of one iteration a period on GPUs that are alike, and pieces.

    `lengths_us`: durations of its operations, in microseconds. `orders`: ``orders[slot]``: its blocks in the order that
    edges give them. `gpus`: number of GPUs; those without a slot have one hole, the whole period. `jobs`: what
    iterations consist of. Where one has several pieces, that these wait for one another is left out.
    """

    graph: CompiledTaskGraph
    lengths_us: Sequence[int]
    orders: Sequence[tuple[int, ...]]
    gpus: int
    pieces: Sequence[Pieces]
    jobs: Sequence[Parts]
    least_us: int
    most_us: int

    @property
    def is_complete(self) -> bool:
        """Whether every iteration is one piece, so that what the program finds is a plan."""
        return all([count for _, count in job.counts] == [1] for job in self.jobs)

    @property
    def groups(self) -> list[list[int]]:
        """Slots whose holes are alike; -1 and below are GPUs without one.

        Where pieces are iterations and there are some for all GPUs, what the best of alike GPUs has, all may have.
        Elsewhere each GPU is a group.
        """
        idle = [(-1 - k, ()) for k in range(self.gpus - len(self.orders))]
        found: dict[object, list[int]] = {}
        together = self.is_complete and all(piece.gpus >= self.gpus for piece in self.pieces)
        for slot, order in [*enumerate(self.orders), *idle]:
            found.setdefault(order if together else slot, []).append(slot)
        return [*found.values()]


class CpSatHoles:
    """Variables and constraints; the objective is set by `aim`."""

    def __init__(self, problem: HoleProblem) -> None:
        self.problem, self.proto = problem, new_model()
        operations = range(problem.graph.size)
        # Where nothing runs for a period, all that is later can come a period earlier.
        limit = sum(problem.lengths_us) + problem.graph.size * problem.most_us
        self.period = self.proto.new_int_var(problem.least_us, problem.most_us, "period")
        self.starts = [self.proto.new_int_var(0, limit, "") for _ in operations]
        self.counts: dict[tuple[int, int, int], cp_model.IntVar] = {}
        self._add_waits()
        self._add_barrier()
        self._groups = problem.groups
        for number, group in enumerate(self._groups):
            for hole, room in enumerate(self._rooms(group[0])):
                self._add_hole(number, hole, room)
        self._add_gpus()
        self.value = sum(job.weight * self._iterations(job) for job in problem.jobs)

    def aim(self, value: int, period_us: int) -> None:
        """Maximise ``weight * period_us - value * period``: above 0 exactly where a solution has a better ratio.

        That is one step of Dinkelbach's method for the ratio of the weight of iterations to the period.
        """
        self.proto.maximize(self.value * period_us - value * self.period)

    def hint(self, starts: Sequence[int], period_us: int) -> None:
        """Offer times of the task-graph job, its holes filled in turn.

        `starts`: starts of its operations, in microseconds; the least is moved to 0.
        """
        self.proto.clear_hints()  # type: ignore[no-untyped-call]
        self.proto.add_hint(self.period, period_us)
        first = min(starts)
        for variable, start in zip(self.starts, starts, strict=True):
            self.proto.add_hint(variable, start - first)

    def holes(self, value: Callable[[cp_model.LinearExprT], int]) -> Mapping[int, list[tuple[int, int, int]]]:
        """Return by slot (GPUs without one from -1 down): start of a hole, class, number of pieces; hole by hole."""
        found: dict[int, list[tuple[int, int, int]]] = {}
        for (number, hole, kind), count in self.counts.items():
            if not value(count):
                continue
            group = self._groups[number]
            order = self.problem.orders[group[0]] if group[0] >= 0 else ()
            begin = value(self.starts[order[hole]]) + self.problem.lengths_us[order[hole]] if order else 0
            for slot in group:
                found.setdefault(slot, []).append((begin, kind, value(count)))
        return found

    def _end(self, operation: int) -> cp_model.LinearExpr:
        return self.starts[operation] + self.problem.lengths_us[operation]

    def _add_waits(self) -> None:
        """Add the edges, so many periods later (specification: edges-and-barrier)."""
        for before, after, lag in self.problem.graph.edges:
            if before != after:
                self.proto.add(self.starts[after] + lag * self.period >= self._end(before))

    def _add_barrier(self) -> None:
        """Keep what a barrier separates within one period; between barriers of the whole job, the period from 0 on."""
        for order in self.problem.orders:
            self.proto.add(self.starts[order[0]] + self.period >= self._end(order[-1]))
        if self.problem.graph.shape.barrier == "job":
            for operation in range(self.problem.graph.size):
                self.proto.add(self._end(operation) <= self.period)

    def _rooms(self, slot: int) -> list[cp_model.LinearExprT]:
        """Return the lengths of the holes of a GPU."""
        if slot < 0:
            return [self.period]
        order = self.problem.orders[slot]
        between = [self.starts[after] - self._end(before) for before, after in pairwise(order)]
        return [*between, self.starts[order[0]] + self.period - self._end(order[-1])]

    def _add_hole(self, number: int, hole: int, room: cp_model.LinearExprT) -> None:
        taken: list[cp_model.LinearExprT] = []
        for kind, piece in enumerate(self.problem.pieces):
            count = self.proto.new_int_var(0, self.problem.most_us // piece.length_us, "")
            self.counts[number, hole, kind] = count
            taken.append(piece.length_us * count)
        # Only the total length matters: pieces may stand in any order within a hole.
        self.proto.add(sum(taken) <= room)

    def _add_gpus(self) -> None:
        """Put pieces of a class on few GPUs where few workers have them."""
        for kind, piece in enumerate(self.problem.pieces):
            if piece.gpus >= self.problem.gpus:
                continue
            used = [self.proto.new_bool_var("") for _ in self._groups]
            for (number, _, own), count in self.counts.items():
                if own == kind:
                    self.proto.add(count == 0).only_enforce_if(~used[number])
            self.proto.add(sum(used) <= piece.gpus)

    def _iterations(self, parts: Parts) -> cp_model.IntVar:
        """Add the number of iterations of jobs, each with all of its pieces, and return it."""
        done = self.proto.new_int_var(0, parts.most, "")
        for kind, each in parts.counts:
            own = [len(self._groups[n]) * count for (n, _, piece), count in self.counts.items() if piece == kind]
            self.proto.add(sum(own) == each * done)
        return done


def block_orders(graph: CompiledTaskGraph, lengths_us: Sequence[int]) -> list[tuple[int, ...]] | None:
    """Return by slot its blocks in the order that edges give them; None where they leave the order of some open."""
    later: dict[int, set[int]] = {}
    for block in range(graph.blocks):
        later[block] = set(graph.longest_from(block, lengths_us))
    orders = []
    for own in graph.blocks_of:
        # In a total order, the number of own blocks behind a block gives its place.
        order = sorted(own, key=lambda block: -len(later[block].intersection(own)))
        if any(after not in later[before] for before, after in pairwise(order)):
            return None
        orders.append(tuple(order))
    return orders
