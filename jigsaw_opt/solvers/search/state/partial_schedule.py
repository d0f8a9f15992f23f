"""A timetable from which single jobs are taken out and into which they are laid again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jigsaw_opt.problem.plan import JobPlan
from jigsaw_opt.problem.timetable import JobDecision, Timetable, assemble, job_end
from jigsaw_opt.solvers.greedy.placed import PlacedJob
from jigsaw_opt.solvers.search.loads import Ground, Loads
from jigsaw_opt.solvers.search.state.calendar import Timeline, union
from jigsaw_opt.solvers.search.state.insertion import Begun, Laid, lay

__all__ = ["Board"]


class Board:
    """A timetable under construction.

    Parameters
    ----------
    ground
        The instance.
    period
        Length of the circle, or None for a finite horizon.
    moment
        What starts earlier is history: once on the timelines it never leaves them.

    Attributes
    ----------
    loads
        Who is where.
    laid
        Each job as it is laid, or None.
    begun
        What is history of each job, or None.
    gpus, links
        Timelines.
    """

    def __init__(self, ground: Ground, period: int | None, moment: int = 0) -> None:
        self.ground, self.period, self.moment = ground, period, moment
        self.loads = Loads(ground)
        self.laid: list[Laid | None] = [None] * len(ground.pieces.jobs)
        self.begun: list[Begun | None] = [None] * len(ground.pieces.jobs)
        self.gpus = [Timeline(period) for _ in ground.layout.gpus]
        self.links = [Timeline(period) for _ in range(ground.layout.links)]

    def channel(self, spot: PlacedJob) -> Timeline:
        """When the links of a spot are free together."""
        return union([self.links[link] for link in spot.links], self.period)

    def lay(
        self, index: int, spot: PlacedJob, begin: int, latest: int | None, channel: Timeline | None = None
    ) -> Laid | None:
        """The job laid at a spot; the board does not change. The spot's `channel` may be given."""
        gpus = [self.gpus[gpu] for gpu in spot.gpus]
        link = self.channel(spot) if channel is None else channel
        return lay(self.ground.pieces.jobs[index], spot, gpus, link, begin, latest, self.begun[index])

    def put(self, index: int, laid: Laid) -> None:
        """Take a laid job in."""
        self.laid[index] = laid
        self.loads.place(index, laid.spot, [max(column) for column in zip(*laid.levels, strict=True)])
        self._book(laid, Timeline.add)

    def take(self, index: int) -> Laid:
        """Take a job out."""
        laid = self.laid[index]
        if laid is None:
            raise ValueError(f"job {index} is not laid")
        self.laid[index] = None
        self.loads.unplace(index)
        self._book(laid, Timeline.remove)
        return laid

    def admits(self, laid: Laid) -> bool:
        """Whether what a job starts from the moment on is free where it lies."""
        return all(
            timeline.earliest(start, end - start) == start
            for timeline, start, end in self._intervals(laid)
            if start >= self.moment
        )

    def begin(self, index: int, laid: Laid) -> bool:
        """Make what a job has started before the moment busy for good; false where that overlaps something."""
        self.begun[index] = Begun(self.moment, laid)
        free = True
        for timeline, start, end in self._intervals(laid):
            if start < self.moment:
                free = free and timeline.earliest(start, end - start) == start
                timeline.add(start, end)
        return free

    def _book(self, laid: Laid, change: Callable[[Timeline, int, int], None]) -> None:
        for timeline, start, end in self._intervals(laid):
            if start >= self.moment:
                change(timeline, start, end)

    def _intervals(self, laid: Laid) -> Iterator[tuple[Timeline, int, int]]:
        """What the blocks and transfers of a job take."""
        spot = laid.spot
        links = [self.links[link] for link in spot.links]
        for levels, starts, moves, exchange in zip(
            laid.levels, laid.blocks, laid.transfers, spot.exchange, strict=True
        ):
            for gpu, table, level, start in zip(spot.gpus, spot.tables, levels, starts, strict=True):
                yield self.gpus[gpu], start, start + table[level - 1]
            for link in links:
                for start, duration in zip(moves, exchange, strict=True):
                    yield link, start, start + duration

    def timetable(self) -> Timetable:
        """The timetable of a full board."""
        gpus = self.ground.layout.gpus
        decisions = [
            JobDecision([gpus[gpu] for gpu in it.spot.gpus], it.levels, it.blocks, it.transfers)
            for it in self.laid
            if it is not None
        ]
        return Timetable(assemble(self.ground.pieces, decisions), self.period)

    def adopt(self, index: int, plan: JobPlan) -> None:
        """Take a job in as a plan has it; the plan keeps to the rules together with the jobs laid already."""
        self.put(index, self.read(index, plan))

    def read(self, index: int, plan: JobPlan) -> Laid:
        """A job as a plan has it, with its levels as they are; the board does not change."""
        ground = self.ground
        job = ground.pieces.jobs[index]
        gpus = [ground.number[name] for name in plan.gpus]
        rows = tuple(tuple(block.level for block in it.blocks) for it in plan.iterations)
        spot = ground.planned(index, gpus, rows, [job.levels] * job.slots, ground.demands[index])
        blocks = [[block.start_us for block in it.blocks] for it in plan.iterations]
        moves = [[transfer.start_us for transfer in it.transfers] for it in plan.iterations]
        return Laid(job, spot, list(rows), blocks, moves, min(blocks[0]), job_end(plan))
