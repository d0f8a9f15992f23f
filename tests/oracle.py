"""The optimum by brute force, for instances of a handful of operations.

Finite: over every placement and every choice of levels, all orders in which operations can start, each as early as the
ones before it, power caps, and memory and licences of the jobs present allow. Of the best plans, take the one with the
least sum of starts, its operations by start and those that take no time first. None could start earlier: before its
start no job begins but those of the operations before it, and from its start on it runs there already, so the later
ones are not touched. What keeps it from the moment before ends at its start: something that it waits for, what runs on
its resource or under its power cap, or, if it is the first of its job, a job that leaves memory or a licence. So this
plan is visited. Where all jobs fit at once, operations are appended in any order, each as early as it can. That visits
every active schedule, and one of them is best, for both objectives are regular. Jobs stay where they are: plans with
moves are not looked at.
Cyclic: the same for each period from 1 upward, with every start inside the job's window tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import permutations, product

from jigsaw_opt.problem import Cluster, FreeDepth, Instance, Job, OperationGraph, Operations, compile_instance
from jigsaw_opt.problem.compiled.timetable import Gpu
from jigsaw_opt.problem.costs import contributors

MOST_OPERATIONS = 12
Levels = tuple[tuple[int, ...], ...]
Place = Gpu | str
"""A GPU, or the name of a licence."""


@dataclass(slots=True)
class Operation:
    """A block or transfer with everything decided but its start."""

    job: int
    iteration: int
    is_block: bool
    duration: int
    resources: tuple[object, ...]
    after: list[tuple[int, int]] = field(default_factory=list)  # (operation, delay counted from its start)
    draws: dict[str, int] = field(default_factory=dict)  # watts by power cap


@cache
def optimum(instance: Instance) -> int | None:
    """Best objective, or None where no plan exists."""
    operations = compile_instance(instance)
    size = operations.blocks + operations.transfers
    if size > MOST_OPERATIONS:
        raise ValueError(f"{size} operations are too many for brute force")
    best: int | None = None
    for placement in _placements(operations):
        for levels in product(*(_level_choices(instance, job) for job in operations.jobs)):
            found = _best_timing(operations, placement, levels, best)
            best = found if best is None or (found is not None and found < best) else best
    return best


def _placements(operations: Operations) -> Iterator[tuple[tuple[Gpu, ...], ...]]:
    servers = operations.cluster.servers
    gpus = [(s, k) for s, server in enumerate(servers) for k in range(server.gpus)]

    def places(job: OperationGraph) -> list[tuple[Gpu, ...]]:
        usable = [gpu for gpu in gpus if servers[gpu[0]].gpu_type in job.gpu_types]
        found, routes = permutations(usable, job.slots), operations.routes.under(job.route_policy)
        return [gpus for gpus in found if routes.channel(Counter(s for s, _ in gpus)) is not None]

    yield from product(*map(places, operations.jobs))


def _level_choices(instance: Instance, job: OperationGraph) -> list[Levels]:
    rule, asked = job.rule, next(each for each in instance.data_parallel_jobs if each.name == job.name)
    fewest, least = rule.min_contributors, Fraction(rule.min_total)
    if isinstance(asked.depth, FreeDepth):
        # Limits of the compiled rule may be raised by what follows from others, which is not trusted here.
        fewest = min(asked.depth.min_contributors, job.slots)
        least = asked.depth.mean(job.slots) * job.levels * job.slots * job.iterations
    if rule.multiset is not None:
        rows = sorted(set(permutations(rule.multiset)))
        return list(product(rows, repeat=job.iterations))
    rows = [
        row
        for row in product(range(1, job.levels + 1), repeat=job.slots)
        if all(contributors(row, b) >= fewest for b in range(1, job.levels + 1))
    ]
    chosen = []
    for levels in product(rows, repeat=job.iterations):
        totals = [sum(column) for column in zip(*levels, strict=True)]
        balanced = rule.balance is None or max(totals) - min(totals) <= rule.balance
        if sum(totals) >= least and balanced and _is_worth_enough(instance, asked, levels):
            chosen.append(levels)
    return chosen


def _is_worth_enough(instance: Instance, job: Job, levels: Levels) -> bool:
    """Whether the levels make the least progress; what the compiled rule says of it is not asked."""
    efficiency = instance.models[job.model].efficiency
    if not isinstance(job.depth, FreeDepth) or job.depth.min_progress is None or efficiency is None:
        return True
    least = Fraction(job.depth.min_progress) * job.iterations * efficiency.most
    return sum(map(efficiency.progress, levels)) >= least


def _needs(
    operations: Operations, placement: Sequence[Sequence[Gpu]], levels: Sequence[Levels]
) -> list[dict[Place, tuple[int, int]]]:
    """Bytes of state and of activations by GPU, and one by licence, of every job."""
    licences = {job.name: job.licences or () for job in operations.instance.jobs}
    return [
        {
            gpu: (job.state_bytes, job.activation_bytes[max(row[slot] for row in rows) - 1])
            for slot, gpu in enumerate(gpus)
        }
        | dict.fromkeys(licences[job.name], (1, 0))
        for job, gpus, rows in zip(operations.jobs, placement, levels, strict=True)
    ]


def _fits(cluster: Cluster, present: Sequence[Mapping[Place, tuple[int, int]]]) -> bool:
    """Whether there are the memory and the licences for jobs with these needs at once."""
    for place in {place for need in present for place in need}:
        needs = [need[place] for need in present if place in need]
        there = (cluster.licences or {})[place] if isinstance(place, str) else cluster.servers[place[0]].gpu_memory
        if sum(state for state, _ in needs) + max(most for _, most in needs) > there:
            return False
    return True


def _best_timing(
    operations: Operations, placement: Sequence[Sequence[Gpu]], levels: Sequence[Levels], best: int | None
) -> int | None:
    parts: list[Operation] = []
    for index, (job, gpus, rows) in enumerate(zip(operations.jobs, placement, levels, strict=True)):
        _add_job(parts, operations, job, index, gpus, rows)
    needs = _needs(operations, placement, levels)
    if operations.horizon == "finite":
        return _FiniteSearch(operations, parts, needs, best).run()
    return _least_period(operations, parts, best) if _fits(operations.cluster, needs) else best


def _add_job(
    parts: list[Operation], operations: Operations, job: OperationGraph, index: int, gpus: Sequence[Gpu], rows: Levels
) -> None:
    channel = operations.routes.under(job.route_policy).channel(Counter(s for s, _ in gpus))
    assert channel is not None
    links = tuple(("link", link) for link in channel.links)
    tables = [job.blocks[slot].duration_us[operations.cluster.servers[s].gpu_type] for slot, (s, _) in enumerate(gpus)]
    barrier: list[int] = []
    for iteration, row in enumerate(rows):
        first = len(parts)
        for slot, level in enumerate(row):
            waits = [(k, parts[k].duration) for k in barrier]
            draws = _draws(operations, job, gpus[slot])
            parts.append(Operation(index, iteration, True, tables[slot][level - 1], (gpus[slot],), waits, draws))
        for transfer in job.transfers:
            b = transfer.bucket
            duration = job.transfer_us(b, contributors(row, b), channel)
            waits = [(first + slot, tables[slot][b - 1]) for slot, level in enumerate(row) if level >= b]
            if b > 1:
                waits.append((len(parts) - 1, parts[-1].duration))
            parts.append(Operation(index, iteration, False, duration, links if duration else (), waits))
        barrier = list(range(first, len(parts)))


def _draws(operations: Operations, job: OperationGraph, gpu: Gpu) -> dict[str, int]:
    (model,) = (each.model for each in operations.instance.data_parallel if each.name == job.name)
    server = operations.cluster.servers[gpu[0]]
    watts = (operations.instance.models[model].power_w or {}).get(server.gpu_type, 0)
    return {cap.name: watts for cap in operations.cluster.power_caps or () if server.name in cap.servers}


def _keeps_caps(
    cluster: Cluster, parts: Sequence[Operation], starts: Mapping[int, int], period: int | None = None
) -> bool:
    for cap in cluster.power_caps or ():
        drawn = [(at, parts[k].duration, parts[k].draws.get(cap.name, 0)) for k, at in starts.items()]
        for moment, _, _ in drawn:
            ago = [((moment - at) % period if period else moment - at, length, watts) for at, length, watts in drawn]
            if sum(watts for since, length, watts in ago if 0 <= since < length) > cap.watts:
                return False
    return True


class _FiniteSearch:
    """Depth-first over the orders in which operations start."""

    def __init__(
        self,
        operations: Operations,
        parts: list[Operation],
        needs: Sequence[Mapping[Place, tuple[int, int]]],
        best: int | None,
    ) -> None:
        self.operations, self.parts, self.needs, self.best = operations, parts, needs, best
        self.sizes = Counter(part.job for part in parts)
        self.in_time = not _fits(operations.cluster, needs)
        self.start: dict[int, int] = {}
        self.free: dict[object, int] = {}
        self.seen: set[tuple[object, ...]] = set()

    def run(self) -> int | None:
        self._extend()
        return self.best

    def _extend(self) -> None:
        if len(self.start) == len(self.parts):
            value = self._value()
            self.best = value if self.best is None else min(self.best, value)
            return
        state = (tuple(sorted(self.start.items())), tuple(sorted(self.free.items(), key=repr)))
        if state in self.seen or (self.best is not None and self.start and self._value() >= self.best):
            return
        self.seen.add(state)
        for k, part in enumerate(self.parts):
            if k not in self.start and all(before in self.start for before, _ in part.after):
                self._append(k, part)

    def _append(self, k: int, part: Operation) -> None:
        held = {resource: self.free.get(resource, 0) for resource in part.resources}
        ready = [self.start[before] + delay for before, delay in part.after]
        release = self.operations.jobs[part.job].release_us
        earliest = max([release, *ready, *held.values(), *(self.start.values() if self.in_time else ())])
        ends = {at + self.parts[other].duration for other, at in self.start.items()}
        for moment in sorted({earliest, *(end for end in ends if end > earliest)}):
            self.start[k] = moment
            has_memory = not self.in_time or self._has_memory(moment)
            if has_memory and _keeps_caps(self.operations.cluster, self.parts, self.start):
                break
        else:  # Alone it exceeds a cap, or jobs that have not ended leave no memory.
            del self.start[k]
            return
        self.free.update(dict.fromkeys(part.resources, self.start[k] + part.duration))
        deadline = self.operations.instance.jobs[part.job].deadline_us
        if deadline is None or self.start[k] + part.duration <= deadline:
            self._extend()
        self.free.update(held)
        del self.start[k]

    def _has_memory(self, moment: int) -> bool:
        """Whether the jobs that are present when the latest operation starts have the memory for that."""
        placed = Counter(self.parts[k].job for k in self.start)
        ends: Counter[int] = Counter()
        for k, at in self.start.items():
            ends[self.parts[k].job] = max(ends[self.parts[k].job], at + self.parts[k].duration)
        # What has not started yet starts no earlier.
        present = [job for job, count in placed.items() if count < self.sizes[job] or ends[job] > moment]
        return _fits(self.operations.cluster, [self.needs[job] for job in present])

    def _value(self) -> int:
        """Objective of what is placed so far, a lower bound on any completion."""
        ends: dict[int, int] = {}
        for k, start in self.start.items():
            part = self.parts[k]
            ends[part.job] = max(ends.get(part.job, 0), start + part.duration)
        if self.operations.objective == "makespan":
            return max(ends.values())
        return sum(self.operations.jobs[job].weight * end for job, end in ends.items())


def _least_period(operations: Operations, parts: list[Operation], best: int | None) -> int | None:
    loads: Counter[object] = Counter()
    for part in parts:
        for resource in part.resources:
            loads[resource] += part.duration
    period = max(1, *loads.values(), *(part.duration for part in parts))
    limits = [job.pace_us * job.iterations for job in operations.instance.jobs if job.pace_us is not None]
    enough = min([max(1, sum(part.duration for part in parts)), *limits])
    while period <= enough and (best is None or period < best):
        if _fits_period(operations.cluster, parts, [None] * len(parts), 0, period):
            return period
        period += 1
    return best


def _fits_period(cluster: Cluster, parts: list[Operation], starts: list[int | None], k: int, period: int) -> bool:
    """Whether operations from number `k` on can be started; the first block of each job starts in [0, T)."""
    if k == len(parts):
        return True
    part = parts[k]
    members = [s for s, p in zip(starts, parts, strict=True) if s is not None and p.job == part.job]
    firsts = [s for s, p in zip(starts, parts, strict=True) if s is not None and p.job == part.job and p.iteration == 0]
    earliest = max((s + delay for before, delay in part.after if (s := starts[before]) is not None), default=0)
    if not part.after:
        # A block of the first iteration: within a period of its sisters; job 0 fixes the phase of the whole plan.
        low, high = (max(firsts) - period, min(firsts) + period) if firsts else (0, 0 if k == 0 else period - 1)
    else:
        low, high = earliest, min(members) + period - part.duration
    for start in range(low, high + 1):
        if _free(parts, starts, part, start, period) and _within(parts, starts, part, start, period):
            starts[k] = start
            known = {number: at for number, at in enumerate(starts) if at is not None}
            capped = _keeps_caps(cluster, parts, known, period)
            if capped and _fits_period(cluster, parts, starts, k + 1, period):
                return True
            starts[k] = None
    return False


def _within(parts: list[Operation], starts: list[int | None], part: Operation, start: int, period: int) -> bool:
    """Whether the span of the job stays within the period."""
    begins, ends = [start], [start + part.duration]
    for other, at in zip(parts, starts, strict=True):
        if at is not None and other.job == part.job:
            ends.append(at + other.duration)
            begins.append(at)
    return max(ends) - min(begins) <= period


def _free(parts: list[Operation], starts: list[int | None], part: Operation, start: int, period: int) -> bool:
    for other, at in zip(parts, starts, strict=True):
        if at is None or not set(other.resources) & set(part.resources) or not other.duration or not part.duration:
            continue
        gap = (at - start) % period
        if gap < part.duration or (gap and period - gap < other.duration) or (not gap):
            return False
    return True
