"""GPUs and levels of data-parallel jobs beside slots of task-graph ones, by the placement of `greedy`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import Gpu
from jigsaw_opt.solvers.placement.assignment import Assignment, ProblemData
from jigsaw_opt.solvers.placement.construction import balanced, level_caps, packed
from jigsaw_opt.solvers.placement.layout import Layout, demands, shapes
from jigsaw_opt.solvers.placement.levels import by_caps


class PlacedWorkers(NamedTuple):
    """A data-parallel job on its GPUs.

    `levels`: level of each worker, by iteration.
    """

    gpus: tuple[Gpu, ...]
    levels: tuple[tuple[int, ...], ...]

    @property
    def deepest(self) -> list[int]:
        """Return the largest level of each worker."""
        return [max(column) for column in zip(*self.levels, strict=True)]


class WorkerPlacing:
    """Draws GPUs and levels for data-parallel jobs."""

    def __init__(self, operations: Operations, in_time: bool = False) -> None:
        self.operations, self.in_time = operations, in_time
        self.forms = [shapes(demand) for demand in demands(operations) or ()]
        self.layout = Layout(operations, in_time)
        self._number = {gpu: g for g, gpu in enumerate(self.layout.gpus)}
        self._table = ProblemData(operations, [forms[0] for forms in self.forms], self.layout)

    def place(
        self, random: Random | None, jobs: Iterable[int], memory: Mapping[Gpu, int], load: Mapping[Gpu, float]
    ) -> dict[int, PlacedWorkers] | None:
        """Place some jobs; None where one finds no room.

        `random`: chance; None for the plain rules. `memory, load`: by GPU, bytes and microseconds that others take.
        """
        if not self.forms:
            return None
        layout = Layout(self.operations, self.in_time)
        for g, gpu in enumerate(layout.gpus):
            layout.memory[g] -= 0 if self.in_time else memory[gpu]
            layout.load[g] = int(load[gpu] * (random.uniform(0.5, 1.5) if random else 1.0))
        asked = [random.choice(forms) if random else forms[0] for forms in self.forms]
        # The longest go first; they have the most to lose.
        order = sorted(jobs, key=lambda job: -max(asked[job].slot_us.values()))
        if random:
            random.shuffle(order)
        table = ProblemData(self.operations, asked, layout)
        # Balanced loads make shorter periods; packing finds room where balance leaves too little in one place.
        for strategy in (balanced, packed):
            placement = strategy(layout, asked, order)
            found = None if placement is None else self._assigned(table, placement, order)
            if found is not None:
                return self._with_levels(random, layout, found)
        return None

    def on(self, job: int, gpus: Sequence[Gpu]) -> PlacedWorkers | None:
        """Return a job alone on given GPUs; None where memory or routes do not admit it."""
        if not self.forms:
            return None
        demand, numbers = self.forms[job][0], [self._number[gpu] for gpu in gpus]
        state = [demand.job.state_bytes] * len(self.layout.gpus)
        caps = level_caps(self.layout, demand, numbers, state)
        found = self._table.assignment(job, demand, numbers, caps)
        return None if found is None else self._with_levels(None, self.layout, {job: found})[job]

    def _assigned(
        self, table: ProblemData, placement: list[list[int]], order: Sequence[int]
    ) -> dict[int, Assignment] | None:
        caps, found = table.caps(placement), dict[int, Assignment]()
        for job in order:
            assignment = table.assignment(job, table.demands[job], placement[job], caps[job])
            if assignment is None:
                return None
            found[job] = assignment
        return found

    def _with_levels(
        self, random: Random | None, layout: Layout, found: Mapping[int, Assignment]
    ) -> dict[int, PlacedWorkers]:
        """Put the deepest levels on GPUs of least load where their order is open, with blocks before or not."""
        load, adding = list(layout.load), random is None or random.random() < 0.5
        placed = {}
        for job, assignment in found.items():
            levels = []
            for row in checking_deadline(assignment.plan.rows):
                keys = [load[gpu] for gpu in assignment.gpus]
                caps = assignment.caps or [assignment.job.levels] * len(row)
                own = row if assignment.plan.fixed else by_caps(row, caps, keys) or row
                levels.append(tuple(own))
                for gpu, table, level in zip(assignment.gpus, assignment.tables, own, strict=True):
                    load[gpu] += table[level - 1] if adding else 0
            placed[job] = PlacedWorkers(tuple(layout.gpus[gpu] for gpu in assignment.gpus), tuple(levels))
        return placed
