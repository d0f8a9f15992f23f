"""A plan of another instance where only activity networks state the new one: on its GPUs and in its order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import inf

from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph
from jigsaw_opt.problem.compiled.timetable import Gpu, Timetable
from jigsaw_opt.problem.plan import JobPlan, TaskGraphJobPlan
from jigsaw_opt.solvers.activities.heuristic import PlacedJobs
from jigsaw_opt.solvers.activities.placing import PlacedPart, placements
from jigsaw_opt.solvers.activities.ranks import in_order
from jigsaw_opt.solvers.placement.workers import PlacedWorkers, WorkerPlacing
from jigsaw_opt.solvers.resolve.fix import misplaced, same_shape
from jigsaw_opt.solvers.resolve.kept_order import KeptOrder

_PLACEMENTS = 4
"""Placements that are tried for jobs without an old one."""


class CarriedPlan:
    """An old plan whose jobs stay on their GPUs as far as these fit. Jobs are numbered with data-parallel ones first.

    `old`: its jobs that have the name and kind of one of the instance. `fixed`: by name of a data-parallel job, the
    names of the GPUs on which it stays.
    """

    def __init__(self, operations: Operations, old: Timetable, fixed: Mapping[str, Sequence[str]], seed: int) -> None:
        self.operations, self.old, self.seed = operations, old, seed
        self._workers = WorkerPlacing(operations)
        self._done: dict[int, JobPlan | TaskGraphJobPlan] = {}
        names, place_of = dict[int, tuple[str, ...]](), operations.cluster.gpus.place_of
        workers, graphs = {job.name: job for job in old.jobs}, {job.name: job for job in old.task_graph_jobs}
        for number, job in enumerate(operations.jobs):
            plan = workers.get(job.name)
            gpus = tuple(fixed.get(job.name, () if plan is None else plan.gpus))
            if gpus and not any(misplaced(operations, job, gpus)):
                names[number] = gpus
                if plan is not None and plan.gpus == gpus and same_shape(job, plan):
                    self._done[number] = plan
        for number, graph in enumerate(operations.task_graphs, len(operations.jobs)):
            done = graphs.get(graph.job.name)
            if done is not None and _fits(operations, graph, done.gpus):
                names[number] = done.gpus
                if _same_operations(graph, done):
                    self._done[number] = done
        self._gpus = {number: tuple(place_of[name] for name in own) for number, own in names.items()}
        if (old.period_us is None) != (operations.horizon == "finite"):
            self._done = {}
        self._bound = [number for number, job in enumerate(operations.jobs) if job.name in fixed]

    def parts(self) -> Iterator[Iterator[Timetable]]:
        """Yield timetables of several attempts, those that keep most of the plan first; not all are correct.

        At first jobs keep their levels; then they get others; then half of those that may move are placed anew, and
        half of those.
        """
        free = [number for number in self._gpus if number not in self._bound]
        for keeps, count in ((True, len(free)), *((False, len(free) >> n) for n in range(len(free).bit_length() + 1))):
            part = self._part([*self._bound, *free[:count]], keeps)
            if part is not None:
                yield self._timetables(part)

    def _part(self, numbers: Iterable[int], keeps_levels: bool) -> PlacedPart | None:
        """Return jobs on their old GPUs; None where one of them finds no levels there."""
        count = len(self.operations.jobs)
        workers, slots = dict[int, PlacedWorkers](), dict[int, tuple[Gpu, ...]]()
        for number in numbers:
            gpus, done = self._gpus[number], self._done.get(number)
            if number >= count:
                slots[number - count] = gpus
            elif keeps_levels and done is not None:
                workers[number] = PlacedWorkers(gpus, done.levels)
            else:
                found = self._workers.on(number, gpus)
                if found is None:
                    return None
                workers[number] = found
        return PlacedPart(workers, slots)

    def _timetables(self, part: PlacedPart) -> Iterator[Timetable]:
        """Yield timetables with the other jobs beside those that are placed."""
        operations = self.operations
        for placement in islice(placements(operations, self.seed, operations.has_scarce_holdings, part), _PLACEMENTS):
            jobs = PlacedJobs(operations, placement)
            if not jobs.flat.fits_alone:
                continue
            count = len(operations.jobs)
            kept = {*part.workers, *(count + job for job in part.slots)} & self._done.keys()
            if kept:
                starts = self._starts(jobs, kept)
                first = jobs.timetable(starts, self.old.period_us)
                order = KeptOrder(operations, first)
                timing = order.timed((), (), operations.routes)
                yield first
                if timing is not None:
                    yield order.timetable(timing, (), operations.routes)[1]
                yield from filter(None, (jobs.schedule_in_order(starts, inf)[1],))
            yield from filter(None, (jobs.schedule(rule, inf)[1] for rule in jobs.ranks.rules))

    def _starts(self, jobs: PlacedJobs, kept: set[int]) -> list[int]:
        """Return the old starts by activity, with one after the other those of jobs that have none behind them."""
        network, flat, milestones = jobs.network, jobs.flat, set(jobs.network.milestones)
        sizes = Counter(job for activity, job in enumerate(flat.job) if activity not in milestones)
        old = {number: [done.start_us for done in self._done[number].operations] for number in kept}
        end = max(self._done[number].end_us for number in kept)
        given = [start for job in range(len(network.jobs)) for start in old.get(job) or [end] * sizes[job]]
        starts = network.with_milestones(given, self.old.period_us)
        for activity in in_order(flat, starts):
            if flat.job[activity] not in kept:
                starts[activity] = end
                end += flat.duration_us[activity]
        return starts


def _fits(operations: Operations, graph: CompiledTaskGraph, gpus: Sequence[str]) -> bool:
    """Return whether slots may be on GPUs, apart from memory: there are these GPUs, and routes join them."""
    places, servers = [operations.cluster.gpus.place_of.get(name) for name in gpus], operations.cluster.servers
    known = [place for place in places if place is not None]
    if len({*known}) < len(graph.gpu_types) or len(gpus) != len(graph.gpu_types):
        return False
    if any(servers[s].gpu_type not in kinds for (s, _), kinds in zip(known, graph.gpu_types, strict=True)):
        return False
    ends = ((k, [known[slot][0] for slot in graph.takes_part[k]]) for k in range(graph.blocks, graph.size))
    return all(graph.channel(k, own, operations.routes) is not None for k, own in ends)


def _same_operations(graph: CompiledTaskGraph, done: TaskGraphJobPlan) -> bool:
    """Return whether an old plan has as many iterations and operations as the job has now."""
    sizes = {(len(iteration.blocks), len(iteration.transfers)) for iteration in done.iterations}
    return len(done.iterations) == graph.job.iterations and sizes == {(graph.blocks, graph.size - graph.blocks)}
