"""Changes of a placement: a data-parallel job leaves its GPUs and levels, and finds others beside what is there."""

from __future__ import annotations

from collections import Counter
from random import Random

from jigsaw_opt.problem.operations import Operations
from jigsaw_opt.problem.timetable import Gpu
from jigsaw_opt.solvers.activities.placing import SlotPlacement, complete
from jigsaw_opt.solvers.activities.workers import PlacedWorkers, WorkerPlacing

__all__ = ["WorkerMoves"]


class WorkerMoves:
    """Draws neighbours of placements."""

    def __init__(self, operations: Operations) -> None:
        self.operations = operations
        self.placing = {in_time: WorkerPlacing(operations, in_time) for in_time in (False, True)}

    def moved(self, placement: SlotPlacement, random: Random) -> SlotPlacement | None:
        """Return a placement with one data-parallel job elsewhere or at other levels; None where that finds no room."""
        count = len(self.operations.jobs)
        if not count:
            return None
        chosen = random.randrange(count)
        workers = list(map(PlacedWorkers, placement.gpus, placement.levels))
        memory, load = self._taken(placement, workers, chosen)
        found = self.placing[placement.in_time].place(random, [chosen], memory, load)
        if found is None or found[chosen] == workers[chosen]:
            return None
        workers[chosen] = found[chosen]
        return complete(self.operations, placement.gpus[count:], workers, placement.in_time)

    def _taken(
        self, placement: SlotPlacement, workers: list[PlacedWorkers], without: int
    ) -> tuple[Counter[Gpu], Counter[Gpu]]:
        """Return bytes and microseconds of each GPU that other jobs take throughout.

        Memory intervals are checked later.
        """
        operations = self.operations
        servers = operations.cluster.servers
        memory: Counter[Gpu] = Counter()
        load: Counter[Gpu] = Counter()
        for number, (job, own) in enumerate(zip(operations.jobs, workers, strict=True)):
            for worker, gpu in enumerate(own.gpus) if number != without else ():
                table = job.blocks[worker].duration_us[servers[gpu[0]].gpu_type]
                memory[gpu] += job.state_bytes
                load[gpu] += sum(table[row[worker] - 1] for row in own.levels)
        for graph, gpus in zip(operations.task_graphs, placement.gpus[len(workers) :], strict=True):
            for slot, gpu, blocks in zip(graph.shape.slots, gpus, graph.blocks_of, strict=True):
                tables = (graph.shape.blocks[block].duration_us for block in blocks)
                memory[gpu] += slot.memory
                load[gpu] += graph.job.iterations * sum(table[servers[gpu[0]].gpu_type] for table in tables)
        return memory, load
