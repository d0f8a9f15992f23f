"""Serial schedules of whole jobs: one after the other, each on the GPUs where it ends first beside those before it.

A job is one activity here, as long as it takes alone on its GPUs. Meanwhile it holds its memory there, and takes of
every GPU and link the share of the time for which it uses it. So an order of the jobs stands for a placement and a
schedule: the serial schedule generation scheme of project scheduling.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import ceil, inf
from random import Random
from typing import NamedTuple

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.compiled.activities import ActivityNetwork
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import Gpu, lateness_us, objective_of_ends
from jigsaw_opt.solvers.activities.flat import flatten, one_iteration
from jigsaw_opt.solvers.activities.held_memory import serial_order
from jigsaw_opt.solvers.activities.list_scheduling import ListScheduler
from jigsaw_opt.solvers.activities.placing import SlotPlacement, complete, most_held
from jigsaw_opt.solvers.activities.ranks import Ranks
from jigsaw_opt.solvers.activities.stepwise import SECONDS_OF_LISTING
from jigsaw_opt.solvers.placement.workers import PlacedWorkers, WorkerPlacing

_ANCHORS = 12
"""Servers, those that are free first, around which GPUs are gathered for a job."""
_MOST_MOVED = 3
"""Largest number of jobs that change their place in an order at once."""
_MOST_OPERATIONS = 100_000
"""Jobs with more operations in all take longer alone, on one choice of GPUs after the other, than one list schedule."""
_SECONDS_OF_LOOK = 3e-6
"""Deterministic seconds of a look at what takes a GPU or link."""
_WHOLE = 1 + 1e-9
"""Sum of the shares of a GPU or link that jobs may take, with what rounding adds."""


class Requirement(NamedTuple):
    """Bytes, activations and share of its time that a job takes of a GPU or link."""

    size: int
    activations: int
    share: float


class SoloSchedule(NamedTuple):
    """A job alone on its GPUs: levels of a data-parallel one, starts from 0 on, length, and use of GPUs and others.

    `others`: what it takes of links, by number, and behind them of other capacities that it holds.
    """

    levels: tuple[tuple[int, ...], ...]
    starts: list[int]
    length_us: int
    slots: list[Requirement]
    others: list[tuple[int, Requirement]]


class _Occupancy(NamedTuple):
    """What a job takes of a GPU or link, and from when to when."""

    begin: int
    end: int
    use: Requirement


_Profile = dict[Gpu | int, list[_Occupancy]]
"""What jobs take, by GPU and link."""
_Requirements = Sequence[tuple[Gpu | int, Requirement]]
"""What a job takes of GPUs and links."""


class _PlacedJob(NamedTuple):
    """GPUs of a job, the job alone on them, its begin and its end in microseconds."""

    gpus: tuple[Gpu, ...]
    alone: SoloSchedule
    begin: int
    end: int


class SerialSchedule(NamedTuple):
    """A schedule of whole jobs.

    `value`: its objective, and the sum of all ends. `order`: the jobs in the order in which they were placed. `jobs`:
    by job, where and when it is.
    """

    value: tuple[int, int]
    order: list[int]
    jobs: list[_PlacedJob]

    @property
    def starts(self) -> list[int]:
        """Return the start of each activity, in microseconds, as if jobs that share a GPU or link never met there."""
        return [
            job.begin + start * (job.end - job.begin) // job.alone.length_us
            for job in self.jobs
            for start in job.alone.starts
        ]

    def placement(self, operations: Operations) -> SlotPlacement | None:
        """Return the placement; None where memory intervals do not fit."""
        workers = [PlacedWorkers(job.gpus, job.alone.levels) for job in self.jobs if job.alone.levels]
        return complete(operations, [job.gpus for job in self.jobs[len(workers) :]], workers, in_time=True)


class SerialPlacing:
    """Makes serial schedules of the jobs of an instance."""

    def __init__(self, operations: Operations) -> None:
        self.operations, self.spent = operations, 0.0
        own, graphs = operations.jobs, operations.task_graphs
        self.releases = [job.release_us for job in own] + [graph.job.release_us for graph in graphs]
        self._policies = [job.route_policy for job in own] + [graph.job.route_policy for graph in graphs]
        self._types = [(job.gpu_types,) * job.slots for job in own] + [graph.gpu_types for graph in graphs]
        self._placing = WorkerPlacing(operations, in_time=True)
        self._alone: dict[tuple[int, tuple[int, ...]], SoloSchedule | None] = {}
        self._usual: dict[int, tuple[int, Requirement]] = {}
        servers, links, names = operations.cluster.servers, len(operations.cluster.links), operations.names
        self._sizes: dict[Gpu | int, int] = {gpu: servers[gpu[0]].gpu_memory for gpu in operations.cluster.gpus.places}
        self._held: list[list[tuple[int, Requirement]]] = [[] for _ in names]
        for place, capacity in enumerate(operations.instance.scarce_capacities, links):
            self._sizes[place] = capacity.units
            for job, name in enumerate(names):
                if name in capacity.amounts:
                    self._held[job].append((place, Requirement(capacity.amounts[name], 0, 0.0)))

    def first_schedules(self) -> Iterator[SerialSchedule]:
        """Yield schedules in order of release, and with the least or the most work for its weight first."""
        if self.operations.blocks + self.operations.transfers > _MOST_OPERATIONS:
            return
        by_release = sorted(range(len(self.releases)), key=lambda job: self.releases[job])
        first = self.schedule(by_release)
        if first is None:
            return
        yield first
        weights = self.operations.weights
        ratio = [own.alone.length_us * len(own.gpus) / weights[job] for job, own in enumerate(first.jobs)]
        for sign in (1, -1):
            found = self.schedule(sorted(by_release, key=lambda job: sign * ratio[job]))
            if found is not None:
                yield found

    def neighbour(self, schedule: SerialSchedule, random: Random) -> SerialSchedule | None:
        """Return the schedule in which a few jobs have another place in the order; None where one finds no GPUs."""
        order = list(schedule.order)
        for _ in range(random.randint(1, _MOST_MOVED)):
            job = order.pop(random.randrange(len(order)))
            order.insert(random.randrange(len(order) + 1), job)
        return self.schedule(order)

    def schedule(self, order: Sequence[int]) -> SerialSchedule | None:
        """Place the jobs in an order; None where one finds no GPUs."""
        profile: _Profile = {}
        found: dict[int, _PlacedJob] = {}
        for job in checking_deadline(order):
            best = min(self._choices(job, profile), key=lambda choice: choice[0], default=None)
            if best is None:
                return None
            (end, _), gpus, alone, begin = best
            found[job] = _PlacedJob(gpus, alone, begin, end)
            for place, use in _uses(gpus, alone):
                share = use.share * alone.length_us / (end - begin)
                profile.setdefault(place, []).append(_Occupancy(begin, end, use._replace(share=share)))
        jobs = [found[job] for job in range(len(order))]
        ends = [job.end for job in jobs]
        value, late = objective_of_ends(self.operations, ends), lateness_us(self.operations, ends)
        # What is late makes a schedule worse than any that keeps all deadlines.
        return SerialSchedule((value + late * (sum(ends) + value) if late else value, sum(ends)), [*order], jobs)

    def _choices(
        self, job: int, profile: _Profile
    ) -> Iterator[tuple[tuple[int, int], tuple[Gpu, ...], SoloSchedule, int]]:
        """Yield end and idle time before the begin, GPUs, the job alone on them, and its begin."""
        places = self.operations.cluster.gpus.places
        if job not in self._usual:
            any(self.alone_on(job, gpus) for gpus in self.gathered(job, dict.fromkeys(places, 0)))
        if job not in self._usual:
            return
        length, use = self._usual[job]
        ready = {gpu: self._first(((gpu, use),), profile, self.releases[job], length, False)[0] for gpu in places}
        tried: set[tuple[Gpu, ...]] = set()
        for gpus in self.gathered(job, ready):
            alone = self.alone_on(job, gpus) if gpus not in tried else None
            tried.add(gpus)
            if alone is not None:
                begin, end = self._span(_uses(gpus, alone), profile, self.releases[job], alone.length_us)
                yield (end, sum(begin - ready[gpu] for gpu in gpus)), gpus, alone, begin

    def gathered(self, job: int, ready: Mapping[Gpu, int]) -> Iterator[tuple[Gpu, ...]]:
        """Yield GPUs for a job, near to each other and free soon: around one server after the other, and in all.

        `ready`: by GPU, when it is free, in microseconds.
        """
        layout, types, policy = self._placing.layout, self._types[job], self._policies[job]
        kind = [server.gpu_type for server in layout.servers]
        on_server: list[list[Gpu]] = [[] for _ in kind]
        for gpu in sorted(ready, key=lambda gpu: (ready[gpu], gpu)):
            on_server[gpu[0]].append(gpu)
        anchors: dict[object, int] = {}
        for server in sorted(range(len(kind)), key=lambda s: (ready[on_server[s][: len(types)][-1]], s)):
            # Servers are alike for a job that fits on one of them, but for when they are free.
            alone = len(on_server[server]) >= len(types)
            free = tuple(ready[gpu] for gpu in on_server[server][: len(types)])
            anchors.setdefault((kind[server], free) if alone else server, server)
        for anchor in [*anchors.values()][:_ANCHORS]:
            gathered: list[Gpu] = []
            for ring in layout.near(anchor, policy):
                servers = set(layout.routes.under(policy).mutual([*dict.fromkeys(g[0] for g in gathered), *ring]))
                gathered += sorted(
                    (gpu for server in ring if server in servers for gpu in on_server[server]),
                    key=lambda gpu: (ready[gpu], gpu),
                )
                found = _slots_on(gathered, types, kind)
                if found is not None:
                    yield found
                    break
        soonest = sorted(ready, key=lambda gpu: (ready[gpu], gpu))
        joined = set(layout.routes.under(policy).mutual(dict.fromkeys(gpu[0] for gpu in soonest)))
        found = _slots_on([gpu for gpu in soonest if gpu[0] in joined], types, kind)
        if found is not None:
            yield found

    def _span(self, uses: _Requirements, profile: _Profile, release: int, length: int) -> tuple[int, int]:
        """Return begin and end of a job that finds its memory from one to the other.

        It waits until GPUs and links have all the time that it takes, or begins before with what others leave of it.
        """
        spans = [self._first(uses, profile, release, length, may_share) for may_share in (False, True)]
        return min(spans, key=lambda span: (span[1], -span[0]))

    def _first(
        self, uses: _Requirements, profile: _Profile, release: int, length: int, may_share: bool
    ) -> tuple[int, int]:
        moment, later = release, -1
        end = moment + length
        while later != moment:
            moment = max(moment, later)
            later, end = moment, moment + length
            there = [(place, use, profile[place]) for place, use in uses if place in profile]
            self.spent += (1 + len(there)) * _SECONDS_OF_LOOK
            if may_share:
                end = max([end, *(_served(taken, use.share * length, moment) for _, use, taken in there)])
            for place, use, taken in there:
                size = self._sizes.get(place, inf)
                later = max(later, _free_from(taken, use, size, inf if may_share else _WHOLE, moment, end))
        return moment, end

    def alone_on(self, job: int, gpus: tuple[Gpu, ...]) -> SoloSchedule | None:
        """Return a job alone on GPUs; None where it does not fit or no path joins them. GPUs of a server are alike."""
        key = job, tuple(server for server, _ in gpus)
        if key not in self._alone:
            self._alone[key] = self._listed(job, gpus)
            alone = self._alone[key]
            if alone is not None:
                most = (max(column) for column in zip(*alone.slots, strict=True))
                self._usual.setdefault(job, (alone.length_us, Requirement(*most)))
        return self._alone[key]

    def _listed(self, job: int, gpus: tuple[Gpu, ...]) -> SoloSchedule | None:
        operations, levels = self.operations, tuple[tuple[int, ...], ...]()
        network = ActivityNetwork(operations.routes, operations.horizon)
        if job < len(operations.jobs):
            workers = self._placing.on(job, gpus)
            if workers is None:
                return None
            levels = workers.levels
            network.add_data_parallel(operations.jobs[job], gpus, levels)
            order: Sequence[int] = range(len(network.activities))
        else:
            graph = operations.task_graphs[job - len(operations.jobs)]
            servers = operations.cluster.servers
            sizes = zip(gpus, graph.shape.slots, strict=True)
            room = [servers[gpu[0]].gpu_memory - slot.memory for gpu, slot in sizes]
            one = serial_order(one_iteration(graph, room)) if min(room) >= 0 else None
            if one is None:
                return None
            network.add_task_graph(graph, gpus)
            order = [n * graph.size + operation for n in range(graph.job.iterations) for operation in one]
            order = [*order, *network.milestones]
        flat = flatten(network)
        if not flat.fits_alone:
            return None
        self.spent += len(flat.job) * SECONDS_OF_LISTING
        ranks = Ranks(flat, [1], order)
        starts, done = ListScheduler(flat, order).run(ranks.rank(ranks.rules[0].order), *ranks.rules[0][1:])
        first = min(starts)
        ends = [start + length for start, length in zip(starts, flat.duration_us, strict=True)]
        length = max(1, max(ends) - first)
        busy = Counter[Gpu | int]()
        for activity in network.activities:
            busy.update(dict.fromkeys((*activity.gpus, *activity.links), activity.duration_us))
        held = dict(zip(operations.cluster.gpus.places, most_held(flat, done), strict=True))
        slots = [
            Requirement(own.bytes + held[own.gpu], own.activations, busy[own.gpu] / length)
            for own in network.residents[0]
        ]
        others = [(place, Requirement(0, 0, busy[place] / length)) for place in busy if isinstance(place, int)]
        return SoloSchedule(levels, [start - first for start in starts], length, slots, [*others, *self._held[job]])


def _uses(gpus: Sequence[Gpu], alone: SoloSchedule) -> _Requirements:
    return [*zip(gpus, alone.slots, strict=True), *alone.others]


def _slots_on(gpus: Sequence[Gpu], types: Sequence[Sequence[str]], kind: Sequence[str]) -> tuple[Gpu, ...] | None:
    """Return the first GPU of its types for each slot, pickiest slots first; None where one has none."""
    if len(gpus) < len(types):
        return None
    chosen: dict[int, Gpu] = {}
    left = list(gpus)
    for slot in sorted(range(len(types)), key=lambda slot: len(types[slot])):
        gpu = next((gpu for gpu in left if kind[gpu[0]] in types[slot]), None)
        if gpu is None:
            return None
        left.remove(gpu)
        chosen[slot] = gpu
    return tuple(chosen[slot] for slot in range(len(types)))


def _free_from(taken: Sequence[_Occupancy], use: Requirement, memory: float, whole: float, begin: int, end: int) -> int:
    """Return `begin` where a place bears another use up to `end`, else when the first that stands in its way ends."""
    there = [other for other in taken if other.end > begin and other.begin < end]
    for moment in sorted({begin, *(other.begin for other in there if other.begin > begin)}):
        present = [other for other in there if other.begin <= moment < other.end]
        size = use.size + sum(other.use.size for other in present)
        size += max([use.activations, *(other.use.activations for other in present)])
        if present and (size > memory or use.share + sum(other.use.share for other in present) > whole):
            return min(other.end for other in present)
    return begin


def _served(taken: Sequence[_Occupancy], busy: float, begin: int) -> int:
    """Return by when a place has some microseconds for a job that begins at a moment, beside what others take."""
    there = [other for other in taken if other.end > begin]
    for end in sorted({time for other in there for time in (other.begin, other.end) if time > begin}):
        left = max(0.0, 1 - sum(other.use.share for other in there if other.begin <= begin < other.end))
        if left * (end - begin) >= busy:
            return begin + ceil(busy / left)
        busy, begin = busy - left * (end - begin), end
    return begin + ceil(busy)
