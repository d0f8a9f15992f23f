"""Iterations of background jobs packed into what the foreground leaves of a period.

Each job's iterations follow one another. The next one to be put in is the one that ends first, each operation at the
earliest moment at which its GPUs and links are free: earliest end first as in interval scheduling, and the *insertion
modulo the period* of modulo scheduling (Rau, *Iterative modulo scheduling*, MICRO 1994) for coschedules of operations.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from itertools import islice, permutations
from typing import NamedTuple

from jigsaw_opt.planning.fill.stretching import Gaps, KeptPlan, Resource
from jigsaw_opt.problem.calendar import Calendar, union
from jigsaw_opt.problem.compiled.activities import ActivityNetwork
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph
from jigsaw_opt.problem.compiled.timetable import Gpu
from jigsaw_opt.problem.costs import staircase
from jigsaw_opt.problem.plan import Block, Execution, Iteration, JobPlan, TaskGraphIteration, TaskGraphJobPlan, Transfer

_MOST_PATTERNS = 24
"""Orders of levels among workers that are tried for each iteration."""


class _InsertedIteration(NamedTuple):
    """An iteration that has been put in: its pattern, and the start of each operation."""

    pattern: _IterationPattern
    starts: list[int]


class _NextIteration(NamedTuple):
    """The next iteration of a job, as it would be put in; the one that ends first, and of these starts last, is."""

    end: int
    earlier: int
    job: int
    stamp: int
    done: _InsertedIteration


@dataclass(frozen=True, slots=True)
class _IterationPattern:
    """One iteration of a placed job: its operations, in an order in which each comes after those it waits for."""

    order: tuple[int, ...]
    lengths: tuple[int, ...]
    resources: tuple[tuple[Resource, ...], ...]
    waits: tuple[tuple[tuple[int, int], ...], ...]
    levels: tuple[int, ...]


@dataclass(slots=True)
class BackgroundJob:
    """A background job with one iteration, and where its iterations are.

    `gpus`: where it is; empty where it is nowhere.
    """

    graph: OperationGraph | CompiledTaskGraph
    weight: int
    gpus: tuple[Gpu, ...] = ()
    patterns: tuple[_IterationPattern, ...] = ()
    done: list[_InsertedIteration] = field(default_factory=list)

    @property
    def slots(self) -> int:
        """Number of its workers or slots."""
        return self.graph.slots if isinstance(self.graph, OperationGraph) else len(self.graph.shape.slots)

    @property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """Levels that its workers may have in an iteration, ascending; none where its rule is not understood."""
        graph = self.graph
        if isinstance(graph, CompiledTaskGraph):
            return ((),)
        if graph.rule.multiset is not None:
            return _orders(graph.rule.multiset)
        steps, rule = staircase(graph.levels, graph.slots), graph.rule
        covered = steps.count(graph.levels) >= rule.min_contributors
        worth = rule.progress is None or rule.progress.is_kept([steps] * graph.iterations)
        if rule.balance is None and covered and worth and sum(steps) >= rule.min_total:
            return _orders(steps)
        return ((graph.levels,) * graph.slots,)

    def bytes_at(self, slot: int) -> tuple[int, int]:
        """Return bytes that a slot takes of its GPU: all the time, and as activations of a worker."""
        if isinstance(self.graph, OperationGraph):
            return self.graph.state_bytes, self.graph.activation_bytes[-1]
        held = sum(hold.bytes for hold in self.graph.holds if hold.slot == slot)
        return self.graph.shape.slots[slot].memory + held, 0

    def may_be(self, slot: int, gpu_type: str) -> bool:
        """Return whether a slot may be on a type of GPU."""
        types = self.graph.gpu_types if isinstance(self.graph, OperationGraph) else self.graph.gpu_types[slot]
        return gpu_type in types

    def plan(self, operations: Operations, period_us: int) -> JobPlan | TaskGraphJobPlan:
        """Return the plan of the job; its first iteration starts within the first period, or later."""
        names = tuple(operations.cluster.gpu_name(*gpu) for gpu in self.gpus)
        # A plan's times are at least 0; all of them move by whole periods, which changes nothing of the pattern.
        later = -min(min(self.done[0].starts) // period_us, 0) * period_us
        iterations, rows = [], []
        for pattern, starts in self.done:
            times = [(at + later, at + later + us) for at, us in zip(starts, pattern.lengths, strict=True)]
            if isinstance(self.graph, CompiledTaskGraph):
                executions = [Execution(*time) for time in times]
                split = self.graph.blocks
                iterations.append(TaskGraphIteration(tuple(executions[:split]), tuple(executions[split:])))
            else:
                blocks = tuple(Block(level, *span) for level, span in zip(pattern.levels, times, strict=False))
                moved = times[len(blocks) :]
                rows.append(Iteration(blocks, tuple(Transfer(b, *span) for b, span in enumerate(moved, 1))))
        if isinstance(self.graph, CompiledTaskGraph):
            return TaskGraphJobPlan(self.graph.job.name, names, tuple(iterations))
        return JobPlan(self.graph.name, names, tuple(rows))


class FilledPeriod:
    """A period of the foreground with iterations of background jobs in it.

    `operations`: the compiled instance with one iteration of each background job. `steps`: operations for which a time
    was looked for, as a measure of work.
    """

    def __init__(self, operations: Operations, kept: KeptPlan, gaps: Gaps, jobs: Sequence[BackgroundJob]) -> None:
        self.operations, self.kept, self.gaps, self.jobs = operations, kept, gaps, jobs
        self.period_us = kept.period_us + sum(gaps.values())
        self.steps = 0
        self.at: dict[Resource, set[int]] = defaultdict(set)
        self._base = kept.busy(gaps)
        self._calendars: dict[Resource, Calendar] = {}
        self._touched: dict[Resource, int] = defaultdict(int)

    @property
    def value(self) -> int:
        """Weighted iterations."""
        return sum(job.weight * len(job.done) for job in self.jobs)

    def calendar(self, resource: Resource) -> Calendar:
        """Return the busy times of a GPU or link."""
        if resource not in self._calendars:
            own = [
                (start, start + us)
                for j in self.at[resource]
                for done in self.jobs[j].done
                for start, us, used in zip(done.starts, done.pattern.lengths, done.pattern.resources, strict=True)
                if resource in used
            ]
            self._calendars[resource] = Calendar(self.period_us, [*self._base.get(resource, ()), *own])
        return self._calendars[resource]

    def admits(self, index: int, slot: int, gpu: Gpu) -> bool:
        """Return whether type and memory of a GPU suffice for a slot beside what is there (specification: memory).

        `slot`: index of its worker or slot.
        """
        server = self.operations.cluster.servers[gpu[0]]
        job = self.jobs[index]
        if not job.may_be(slot, server.gpu_type):
            return False
        # Blocks of a GPU take turns, so of activations only the largest of one worker counts, once.
        fixed, largest = self.kept.memory(gpu)
        taken = [job.bytes_at(slot)]
        taken += [self.jobs[j].bytes_at(self.jobs[j].gpus.index(gpu)) for j in self.at[gpu]]
        largest = max([largest, *(activations for _, activations in taken)])
        return fixed + largest + sum(own for own, _ in taken) <= server.gpu_memory

    def place(self, index: int, gpus: tuple[Gpu, ...]) -> bool:
        """Put a job on GPUs that admit it, without iterations yet.

        False, and nothing is changed, where no routes join the servers of these GPUs.
        """
        job = self.jobs[index]
        policy = job.graph.route_policy if isinstance(job.graph, OperationGraph) else job.graph.job.route_policy
        servers = sorted({server for server, _ in gpus})
        if self.operations.routes.under(policy).ring(servers) is None:
            return False
        job.gpus, job.done = gpus, []
        job.patterns = tuple(_pattern(self.operations, job, levels) for levels in job.levels)
        for resource in _resources(job):
            self.at[resource].add(index)
        return True

    def remove(self, indices: Iterable[int]) -> None:
        """Take jobs out."""
        for index in indices:
            job = self.jobs[index]
            for resource in _resources(job):
                self.at[resource].discard(index)
                self._calendars.pop(resource, None)
            job.gpus, job.patterns, job.done = (), (), []

    def again(self, gaps: Gaps) -> FilledPeriod:
        """Return the same jobs on the same GPUs in a period with other gaps, without iterations."""
        jobs = [replace(job, done=[]) for job in self.jobs]
        packing = FilledPeriod(self.operations, self.kept, gaps, jobs)
        for resource, own in self.at.items():
            packing.at[resource] = set(own)
        return packing

    def removed(self, indices: Iterable[int]) -> dict[int, BackgroundJob]:
        """Take jobs out, and what they were."""
        before = {index: replace(self.jobs[index]) for index in indices}
        self.remove(before)
        return before

    def restore(self, before: Mapping[int, BackgroundJob]) -> None:
        """Put jobs back as they were."""
        self.remove(before)
        for index, job in before.items():
            own = self.jobs[index]
            own.gpus, own.patterns, own.done = job.gpus, job.patterns, job.done
            for resource in self.resources(index):
                self.at[resource].add(index)
                self._calendars.pop(resource, None)

    def shift(self, moment: int) -> int:
        """Return where a moment of the foreground's plan is among the gaps."""
        return self.kept.shift(self.gaps)(moment)

    def resources(self, index: int) -> set[Resource]:
        """Return GPUs and links that a placed job may occupy."""
        return _resources(self.jobs[index])

    def insert(self, indices: Iterable[int], cut: int, most: Sequence[int] | None = None) -> None:
        """Put in iterations of placed jobs as long as they fit; those of which none fits are taken out.

        `cut`: moment of the period at which the others begin, or where the free time around it does. `most`: for each
        job, with how many iterations it has enough; None for no limit.
        """
        own = [index for index in indices if self.jobs[index].gpus]
        ready = {index: self._end(index) if self.jobs[index].done else self._begin(index, cut) for index in own}
        wanting = [index for index in own if most is None or len(self.jobs[index].done) < most[index]]
        queue = [following for index in wanting if (following := self._next(index, ready[index])) is not None]
        heapq.heapify(queue)
        while queue:
            # What was found before a GPU or link of it changed is out of date: it is found anew, and its place in the
            # queue may be another. So only iterations whose end is known to be the least are put in.
            candidate = heapq.heappop(queue)
            index = candidate.job
            if candidate.stamp == self._stamp(index):
                self._commit(index, candidate.done)
                ready[index] = candidate.end
            if most is not None and len(self.jobs[index].done) >= most[index]:
                continue
            following = self._next(index, ready[index])
            if following is not None:
                heapq.heappush(queue, following)
        self.remove(index for index in own if not self.jobs[index].done)

    def _begin(self, index: int, cut: int) -> int:
        holes = [self.calendar(gpu).hole(cut) for gpu in self.jobs[index].gpus]
        return min([cut, *(start for start, end in holes if end - start < self.period_us)])

    def _end(self, index: int) -> int:
        last = self.jobs[index].done[-1]
        return max(start + us for start, us in zip(last.starts, last.pattern.lengths, strict=True))

    def _stamp(self, index: int) -> int:
        return sum(self._touched[resource] for resource in _resources(self.jobs[index]))

    def _next(self, index: int, ready: int) -> _NextIteration | None:
        """Return the next iteration, that of the pattern that ends first; None where none fits."""
        job, found = self.jobs[index], None
        # Iterations follow one another, so the last one ends before the first one a period later.
        limit = min(job.done[0].starts) + self.period_us if job.done else None
        for pattern in job.patterns:
            starts = self._starts(pattern, ready)
            if starts is None:
                continue
            end = max(start + us for start, us in zip(starts, pattern.lengths, strict=True))
            key = end, -sum(starts)
            fits = end <= (min(starts) + self.period_us if limit is None else limit)
            if fits and (found is None or key < found[:2]):
                found = _NextIteration(*key, index, self._stamp(index), _InsertedIteration(pattern, starts))
        return found

    def _starts(self, pattern: _IterationPattern, ready: int) -> list[int] | None:
        """Return each operation at its earliest; None where one has no room."""
        starts = [ready] * len(pattern.order)
        self.steps += len(pattern.order)
        for operation in pattern.order:
            # Operations of the iteration that share a GPU or link wait for one another, so all fit beside one another.
            moment = max([ready, *(starts[before] + us for before, us in pattern.waits[operation])])
            calendars = [self.calendar(resource) for resource in pattern.resources[operation]]
            found = union(calendars, self.period_us).earliest(moment, pattern.lengths[operation])
            if found is None:
                return None
            starts[operation] = found
        return starts

    def _commit(self, index: int, done: _InsertedIteration) -> None:
        self.jobs[index].done.append(done)
        for start, us, resources in zip(done.starts, done.pattern.lengths, done.pattern.resources, strict=True):
            for resource in resources if us else ():
                self.calendar(resource).add(start, start + us)
                self._touched[resource] += 1


def _orders(levels: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return different orders of levels among workers: the first of all, those around in a circle among them."""
    levels = tuple(levels)
    around = (levels[at:] + levels[:at] for at in range(len(levels)))
    drawn = islice(permutations(levels), _MOST_PATTERNS)
    return tuple(islice(dict.fromkeys((*around, *drawn)), max(_MOST_PATTERNS, len(levels))))


def _resources(job: BackgroundJob) -> set[Resource]:
    """Return GPUs and links that it may occupy."""
    return (
        {*job.gpus, *(resource for used in job.patterns[0].resources for resource in used)}
        if job.patterns
        else {*job.gpus}
    )


def _pattern(operations: Operations, job: BackgroundJob, levels: tuple[int, ...]) -> _IterationPattern:
    network = ActivityNetwork(operations.routes, "finite")
    if isinstance(job.graph, OperationGraph):
        network.add_data_parallel(job.graph, job.gpus, [levels])
    else:
        network.add_task_graph(job.graph, job.gpus, within_slots=False)
    # The milestones of barriers stand behind all operations, and mean nothing within one iteration.
    activities = network.activities[: len(network.activities) - len(network.milestones)]
    waits = [[wait for wait in own if wait[0] < len(activities)] for own in network.waits_of()[: len(activities)]]
    order = tuple(TopologicalSorter({n: [before for before, _ in own] for n, own in enumerate(waits)}).static_order())
    resources: list[tuple[Resource, ...]] = [
        (*activity.gpus, *activity.links) if activity.duration_us else () for activity in activities
    ]
    last: dict[Resource, int] = {}
    for operation in order:
        # Operations of one iteration that share a GPU or link take it in this order.
        shared = {last[resource] for resource in resources[operation] if resource in last}
        waits[operation] += [(before, activities[before].duration_us) for before in sorted(shared)]
        last |= dict.fromkeys(resources[operation], operation)
    lengths = tuple(activity.duration_us for activity in activities)
    return _IterationPattern(order, lengths, tuple(resources), tuple(map(tuple, waits)), levels)
