"""List schedules of jobs with a task graph, also beside data-parallel ones: several placements and ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from math import inf
from operator import add
from random import Random

from jigsaw_opt.formulations.cpsat import spans_suffice
from jigsaw_opt.formulations.timetable.windows import serial_limit
from jigsaw_opt.problem.compiled.activities import ActivityNetwork
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import Timetable, lateness_us, objective_of_ends
from jigsaw_opt.solvers.activities.capacities import keeping_capacities
from jigsaw_opt.solvers.activities.flat import Arc, FlatActivities, flatten, network_of
from jigsaw_opt.solvers.activities.list_scheduling import ListScheduler
from jigsaw_opt.solvers.activities.modulo import ModuloScheduler
from jigsaw_opt.solvers.activities.placing import GpuLoads, SlotPlacement, complete, placements
from jigsaw_opt.solvers.activities.presence import job_orders, ordered
from jigsaw_opt.solvers.activities.ranks import Ranks, Rule, in_order
from jigsaw_opt.solvers.activities.repeating import repeated
from jigsaw_opt.solvers.activities.serial_placing import SerialPlacing
from jigsaw_opt.solvers.activities.timetables import timetable_of
from jigsaw_opt.solvers.placement.workers import PlacedWorkers, WorkerPlacing


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
        # Memory intervals are checked later.
        others = GpuLoads(self.operations)
        others.add_workers({number: own for number, own in enumerate(workers) if number != chosen})
        for job, gpus in enumerate(placement.gpus[count:]):
            others.add_slots(job, gpus)
        found = self.placing[placement.in_time].place(random, [chosen], others.states, others.load)
        if found is None or found[chosen] == workers[chosen]:
            return None
        workers[chosen] = found[chosen]
        return complete(self.operations, placement.gpus[count:], workers, placement.in_time)


_PLACEMENTS = 8
"""Largest number of placements that are scheduled by all rules; the moves of the search make others."""
_MOST_LISTED = 100_000
"""Once schedules by rules had so many operations in all, there is no other placement."""
_STEP_OPERATIONS, _MOST_STEPS = 60_000, 200
"""Largest total number of operations of the schedules by blurred rules, and largest number of these schedules."""
_BLURRED_AHEAD = 0.85, 1.2
"""Range of the random factor on how far GPUs may go ahead."""
_MOVED = 0.5
"""Share of these schedules that move a data-parallel job, where there is one."""
_MODULO_WORK, _MODULO_TRIES, _MOST_MODULO = 400_000, 24, 200
"""Modulo schedules take time by the square of the activities: as many as make this, so many of one period, and at most
so many in all."""


def task_graph_timetables(operations: Operations, seed: int) -> Iterator[Timetable | None]:
    """Yield schedules one by one: a timetable where one is the best so far, else None.

    Nothing comes where no placement was found.

    `operations`: the compiled instance; of those that only activity networks state (`Operations.needs_network`).
    """
    least = inf
    for value, timetable in _lists(operations, seed, placements(operations, seed), inf):
        least = min(least, value)
        yield timetable
    yield from timetables_in_time(operations, seed, least)


def timetables_in_time(operations: Operations, seed: int, least: float) -> Iterator[Timetable | None]:
    """Yield schedules in which jobs may follow one another for their memory: a timetable where one is the best so far.

    Nothing comes where memory is not scarce, or does not stand in the way of the first placement that leaves it out.
    """
    drawn = placements(operations, seed, in_time=True) if operations.has_scarce_holdings else iter(())
    first = next(drawn, None)
    if first is None or not first.in_time:
        return
    for value, timetable in _serial(operations, least):
        least = min(least, value)
        yield timetable
    for _, timetable in _lists(operations, seed, chain((first,), drawn), least):
        yield timetable


def _serial(operations: Operations, least: float) -> Iterator[tuple[float, Timetable | None]]:
    """Yield objectives of schedules in which jobs were placed one after the other, each with its timetable if best."""
    serial = SerialPlacing(operations)
    for schedule in serial.first_schedules():
        placement = schedule.placement(operations)
        if placement is not None:
            jobs = PlacedJobs(operations, placement)
            value, timetable = jobs.better(jobs.starts_in_order(schedule.starts, schedule.order), None, least)
            least = min(least, value)
            yield value, timetable


def _lists(
    operations: Operations, seed: int, drawn: Iterable[SlotPlacement], least: float
) -> Iterator[tuple[float, Timetable | None]]:
    """Yield objectives of schedules on placements, each with its timetable where it is the best so far."""
    random = Random(f"lists/{seed}")
    placed: list[tuple[float, int, PlacedJobs, Rule]] = []
    size = operations.blocks + operations.transfers
    for placement in islice(drawn, _PLACEMENTS):
        if len(placed) * size > _MOST_LISTED:
            break
        jobs = PlacedJobs(operations, placement)
        if not jobs.flat.fits_alone:
            continue
        for rule in jobs.ranks.rules:
            value, timetable = jobs.schedule(rule, least)
            placed.append((value, len(placed), jobs, rule))
            least = min(least, value)
            yield value, timetable
    placed.sort(key=lambda entry: entry[:2])
    moves = WorkerMoves(operations)
    for _ in range(min(_MOST_STEPS, _STEP_OPERATIONS // size) if placed else 0):
        # Mostly one of the best schedules is varied: the mean place is 2.
        _, _, jobs, rule = placed[min(len(placed) - 1, int(random.expovariate(0.5)))]
        moved = moves.moved(jobs.placement, random) if operations.jobs and random.random() < _MOVED else None
        if moved is not None:
            jobs = PlacedJobs(operations, moved)
            if not jobs.flat.fits_alone:
                continue
        value, timetable = jobs.schedule(rule, least, None if moved else random)
        if moved is not None and value < least:
            placed.insert(0, (value, len(placed), jobs, rule))
        least = min(least, value)
        yield value, timetable
    if placed and operations.horizon == "cyclic" and not spans_suffice(operations):
        for timetable in placed[0][2].modulo_schedules(random, int(least)):
            yield inf, timetable


class PlacedJobs:
    """Jobs on the GPUs of a placement, to be scheduled."""

    def __init__(self, operations: Operations, placement: SlotPlacement) -> None:
        self.operations, self.placement = operations, placement
        self.network: ActivityNetwork = network_of(operations, placement.gpus, placement.levels)
        self.flat: FlatActivities = flatten(self.network, placement.in_time)
        begins = self.network.jobs[len(operations.jobs) :]
        reserve = list(range(begins[0] if begins else len(self.network.activities)))
        for begin, graph, order in zip(begins, operations.task_graphs, placement.orders, strict=True):
            for iteration in range(graph.job.iterations):
                reserve += [begin + iteration * graph.size + operation for operation in order]
        # Milestones hold no memory, wherever they stand.
        reserve += self.network.milestones
        self.reserve = reserve
        self.scheduler = ListScheduler(self.flat, reserve)
        self.ranks = Ranks(self.flat, operations.weights, reserve, operations.deadlines)
        # What a microsecond behind a deadline counts as: a schedule that keeps all is better.
        self._penalty = serial_limit(operations) if operations.instance.guaranteed_jobs else 0

    def schedule(self, rule: Rule, least: float, random: Random | None = None) -> tuple[float, Timetable | None]:
        """Return the objective by a rule, and the timetable where that is less than `least`.

        `random`: source of random numbers that blur the rule; None for the rule as it is.
        """
        if random is not None and rule.ahead is not None:
            rule = rule._replace(ahead=rule.ahead * random.uniform(*_BLURRED_AHEAD))
        return self._timed(*self.scheduler.run(self.ranks.rank(rule.order, random), rule.patience, rule.ahead), least)

    def _timed(self, starts: list[int], order: list[int], least: float) -> tuple[float, Timetable | None]:
        """Return the objective of a finite schedule, on the cyclic horizon repeated, as `schedule` does."""
        period = None
        if self.operations.horizon == "cyclic":
            end = max(map(add, starts, self.flat.duration_us))
            # No period of interest is longer than the whole schedule, or than what is to be beaten.
            found = repeated(keeping_capacities(self.flat, starts, end), order, int(min(end, least - 1)))
            if found is None:
                return inf, None
            period, starts = found
        return self.better(starts, period, least)

    def schedule_in_order(self, starts: Sequence[int], least: float) -> tuple[float, Timetable | None]:
        """Return the list schedule in the order of given starts, as `schedule` does."""
        return self._timed(*self._in_order(starts), least)

    def starts_in_order(self, starts: Sequence[int], jobs: Sequence[int]) -> list[int]:
        """Return starts of a schedule in the order of given ones, in microseconds.

        `starts`: by activity, in microseconds. Jobs that memory does not hold at once follow one another as they do by
        these. `jobs`: all jobs: of activities that start at once, those of the first of them come first.
        """
        return self._in_order(starts, jobs)[0]

    def _in_order(self, starts: Sequence[int], jobs: Sequence[int] | None = None) -> tuple[list[int], list[int]]:
        """Return starts and order of the list schedule in the order of given starts."""
        flat = ordered(self.flat, job_orders(self.flat, starts)) if self.placement.in_time else self.flat
        places = None if jobs is None else sorted(range(len(jobs)), key=jobs.__getitem__)
        rank = [0] * len(starts)
        for place, activity in enumerate(in_order(flat, starts, places)):
            rank[activity] = place
        return ListScheduler(flat, self.reserve).run(rank)

    def modulo_schedules(self, random: Random, most: int) -> Iterator[Timetable | None]:
        """Yield schedules whose iterations overlap, by bisection between a resource's work and the best period."""
        durations, size = self.flat.duration_us, len(self.flat.duration_us)
        placed = self.placement
        waits = network_of(self.operations, placed.gpus, placed.levels, within_slots=True).waits
        arcs = [Arc(b, a, durations[b] if offset is None else offset, k) for b, a, k, offset in waits]
        scheduler = ModuloScheduler(self.flat, arcs)
        least, tried = scheduler.least, 0
        for _ in range(min(_MOST_MODULO, _MODULO_WORK // size**2)):
            if least >= most:
                return
            period = (least + most) // 2
            starts = scheduler.schedule(period, random)
            tried += 1
            # Success proves that the period is enough. Failure proves nothing, so that a period is given up only after
            # several tries.
            if starts is not None:
                most, tried = period, 0
                yield self.timetable(starts, period)
                continue
            if tried == _MODULO_TRIES:
                least, tried = period + 1, 0
            yield None

    def value(self, starts: Sequence[int], period: int | None = None) -> int:
        """Return the objective of a schedule; what is behind a deadline makes it worse than any that keeps all.

        `period`: in microseconds; None on the finite horizon.
        """
        ends = [0] * len(self.network.jobs)
        for job, start, length in zip(self.flat.job, starts, self.flat.duration_us, strict=True):
            ends[job] = max(ends[job], start + length)
        value = objective_of_ends(self.operations, ends, period)
        if self._penalty and period is None:
            value += self._penalty * lateness_us(self.operations, ends)
        return value

    def timetable(self, starts: Sequence[int], period: int | None = None) -> Timetable:
        """Return the timetable of a schedule."""
        placed, begins = self.placement, self.network.jobs
        return timetable_of(self.operations, begins, placed.gpus, starts, period, placed.levels)

    def better(self, starts: Sequence[int], period: int | None, least: float) -> tuple[float, Timetable | None]:
        """Return the objective of a schedule, and the timetable where that is less than `least`."""
        value = self.value(starts, period)
        return value, self.timetable(starts, period) if value < least else None
