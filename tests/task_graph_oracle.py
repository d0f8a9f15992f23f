"""The optimum of tiny instances with task-graph jobs, by a boolean for every start at every time on every placement.

Data-parallel jobs beside them are gone through with all levels that their depth rules allow.

Written from the specification alone (task-graph-jobs, iteration, depth-rules). It shares no code with formulations and
solvers, and of the problem only documents and routes. CP-SAT is asked for booleans, integers and linear inequalities,
and for no interval.

Finite: no plan need last longer than the latest release and all operations in turn, for a time at which nothing runs
can be cut out. Jobs stay where they are: plans with moves are not looked at. Cyclic: the same holds for the period, and
every period from the least one is tried. In whole periods, starts of one job are at most two apart from the next ones:
where they are further, all the later ones can come a period sooner. Jobs with an exchange are refused.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations, permutations, product

from ortools.sat.python import cp_model

from jigsaw_opt.problem import (
    FreeDepth,
    FullDepth,
    Instance,
    Job,
    Model,
    StaircaseDepth,
    TaskGraphBlock,
    TaskGraphJob,
    TaskGraphTransfer,
)
from jigsaw_opt.problem.cluster import Routes

Gpu = tuple[int, int]
Place = Gpu | str
"""A GPU, or the name of a licence."""
Key = tuple[int, int, str]
"""Job, iteration and name of an operation."""
Rows = tuple[tuple[int, ...], ...]
"""Levels of all workers, by iteration."""


@dataclass
class Placed:
    """Everything that is fixed once the slots have their GPUs."""

    lasts: dict[Key, int] = field(default_factory=dict)
    uses: dict[object, list[Key]] = field(default_factory=lambda: defaultdict(list))
    waits: set[tuple[Key, Key, int, int]] = field(default_factory=set)  # before, after, periods, from start to start
    holds: dict[Place, list[tuple[Key, Key, int]]] = field(default_factory=lambda: defaultdict(list))
    memory: dict[Place, int] = field(default_factory=dict)
    kept: dict[Place, list[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(list))
    """Job, bytes of state or of a slot, bytes of activations, of which only the most counts; 1 of a licence, and 0."""

    def left(self, gpu: Place, jobs: Container[int]) -> int:
        """Memory that slots and workers of these jobs leave on a GPU, or how many of a licence."""
        own = [(state, most) for job, state, most in self.kept[gpu] if job in jobs]
        return self.memory[gpu] - sum(state for state, _ in own) - max((most for _, most in own), default=0)

    @property
    def least(self) -> int:
        """Longest operation, and most work of a GPU or link."""
        return max(1, *self.lasts.values(), *(sum(self.lasts[key] for key in keys) for keys in self.uses.values()))


def task_graph_optimum(instance: Instance, best: int | None = None) -> int | None:
    """Best objective of an instance below `best`, or else `best`, which is None where no plan exists."""
    if any(isinstance(job, Job) and job.exchange is not None for job in instance.jobs):
        raise NotImplementedError(f"{instance.name} has a job with an exchange, of which this oracle knows nothing")
    rows = [_levels(instance, job) if isinstance(job, Job) else [()] for job in instance.jobs]
    for placement, levels in product(_placements(instance), product(*rows)):
        placed = _placed(instance, placement, levels)
        # Some job ends no earlier than the work of any GPU or link, and weights are at least 1.
        hopeless = best is not None and placed.least >= best
        every = range(len(instance.jobs))
        # On the finite horizon any job may be alone.
        together = [every] if instance.horizon == "cyclic" else [[job] for job in every]
        if hopeless or any(placed.left(gpu, jobs) < 0 for jobs in together for gpu in placed.memory):
            continue
        find = _least_period if instance.horizon == "cyclic" else _finite
        found = find(instance, placed, best)
        best = best if found is None else found
    return best


def _placements(instance: Instance) -> Iterator[tuple[tuple[Gpu, ...], ...]]:
    """Every placement, of those that differ in the numbers of a server's GPUs alone just one."""
    servers, every = instance.cluster.servers, Routes(instance.cluster)
    gpus = [(s, k) for s, server in enumerate(servers) for k in range(server.gpus)]
    choices = []
    for job in instance.jobs:
        routes = every.under(job.route_policy)
        if isinstance(job, Job):
            # Its workers are alike; which of them takes which level is gone through.
            model = instance.models[job.model]
            tables = [[t for s in model.segments for t in (s.forward_us, s.backward_us)]] * job.workers
            sets = combinations(gpus, job.workers)
            choices.append([own for own in sets if _possible(instance, routes, own, tables)])
            continue
        tables = [[b.duration_us for b in job.shape.blocks if slot.name in b.slots] for slot in job.shape.slots]
        orders = permutations(gpus, len(tables))
        choices.append([own for own in orders if _possible(instance, routes, own, tables)])
    for placement in product(*choices):
        seen: Counter[int] = Counter()
        for server, number in dict.fromkeys(gpu for own in placement for gpu in own):
            if number != seen[server]:
                break
            seen[server] += 1
        else:
            yield placement


def _possible(
    instance: Instance, routes: Routes, own: Sequence[Gpu], tables: Sequence[Sequence[Mapping[str, int]]]
) -> bool:
    """Whether GPUs have the types of a job's slots or workers, and routes join them."""
    types = [instance.cluster.servers[s].gpu_type for s, _ in own]
    known = all(kind in table for kind, slot in zip(types, tables, strict=True) for table in slot)
    return known and all(a == b or routes.between(a, b) is not None for (a, _), (b, _) in product(own, own))


def _levels(instance: Instance, job: Job) -> list[Rows]:
    """Levels of all workers by iteration that the depth rule allows."""
    deepest, rule, count = len(instance.models[job.model].levels), job.depth, job.workers
    rows = list(product(range(1, deepest + 1), repeat=count))
    if isinstance(rule, FullDepth):
        rows = [(deepest,) * count]
    if isinstance(rule, StaircaseDepth):
        stairs = sorted(_ceil(deepest * k, count) for k in range(1, count + 1))
        if rule.levels is not None:
            stairs = [*rule.levels]
        rows = [row for row in rows if sorted(row) == stairs]
    found = list(product(rows, repeat=job.iterations))
    if not isinstance(rule, FreeDepth):
        return found
    fewest = min(rule.min_contributors, count)
    mean = rule.mean(count)
    found = [rows for rows in found if all(row.count(deepest) >= fewest for row in rows)]
    found = [rows for rows in found if sum(map(sum, rows)) >= mean * deepest * count * job.iterations]
    efficiency = instance.models[job.model].efficiency
    if rule.min_progress is not None and efficiency is not None:
        least = Fraction(rule.min_progress) * job.iterations * efficiency.most
        found = [rows for rows in found if sum(map(efficiency.progress, rows)) >= least]
    totals = [[sum(column) for column in zip(*rows, strict=True)] for rows in found]
    return [
        rows
        for rows, own in zip(found, totals, strict=True)
        if rule.balance is None or max(own) - min(own) <= rule.balance
    ]


def _placed(instance: Instance, placement: Sequence[Sequence[Gpu]], levels: Sequence[Rows]) -> Placed:
    placed, servers, every = Placed(), instance.cluster.servers, Routes(instance.cluster)
    for number, (job, own, rows) in enumerate(zip(instance.jobs, placement, levels, strict=True)):
        routes = every.under(job.route_policy)
        if isinstance(job, Job):
            _add_workers(instance, placed, routes, number, own, rows)
            model = instance.models[job.model]
            for gpu, taken in zip(own, zip(*rows, strict=True), strict=True):
                state = model.state_factor * sum(s.parameter_bytes for s in model.segments)
                placed.kept[gpu].append((number, state, _activations(model, max(taken))))
            continue
        at = {slot.name: gpu for slot, gpu in zip(job.shape.slots, own, strict=True)}
        for slot in job.shape.slots:
            placed.kept[at[slot.name]].append((number, slot.memory, 0))
        for iteration in range(job.iterations):
            for block in job.shape.blocks:
                key = (number, iteration, block.name)
                gpus = [at[slot] for slot in block.slots]
                placed.lasts[key] = max(block.duration_us[servers[server].gpu_type] for server, _ in gpus)
                for gpu in gpus:
                    placed.uses[gpu].append(key)
            for transfer in job.shape.transfers:
                key = (number, iteration, transfer.name)
                placed.lasts[key], links = _transfer(transfer, at, routes)
                for link in links:
                    placed.uses["link", link].append(key)
            for hold in job.shape.holds:
                slots = next(block.slots for block in job.shape.blocks if block.name == hold.start)
                keys = (number, iteration, hold.start), (number, iteration, hold.end)
                placed.holds[at[hold.slot or slots[0]]].append((*keys, hold.bytes))
        _add_waits(placed, number, job, instance.horizon == "cyclic")
    placed.memory = {place: servers[place[0]].gpu_memory for place in placed.kept}
    for name, count in (instance.cluster.licences or {}).items():
        placed.memory[name] = count
        placed.kept[name] = [(k, 1, 0) for k, job in enumerate(instance.jobs) if name in (job.licences or ())]
    return placed


def _activations(model: Model, level: int) -> int:
    """Bytes of activations at a level."""
    sizes = [segment.activation_bytes for segment in model.segments]
    begin = len(sizes) - model.levels[level - 1]
    return sum(sizes[begin:]) + max(sizes[:begin], default=0)


def _add_workers(
    instance: Instance, placed: Placed, routes: Routes, number: int, own: Sequence[Gpu], rows: Rows
) -> None:
    """Blocks and transfers of a data-parallel job, and what they wait for."""
    job, servers = instance.jobs[number], instance.cluster.servers
    assert isinstance(job, Job)
    model = instance.models[job.model]
    segments, steps, count = model.segments, model.levels, job.workers
    channel = routes.channel(Counter(s for s, _ in own))
    assert channel is not None

    def lasts(gpu: Gpu, level: int) -> int:
        kind = servers[gpu[0]].gpu_type
        forward = sum(segment.forward_us[kind] for segment in segments)
        return forward + sum(s.backward_us[kind] for s in segments[len(segments) - steps[level - 1] :])

    for iteration, row in enumerate(rows):
        keys = [(number, iteration, f"worker {k}") for k in range(count)]
        for key, gpu, level in zip(keys, own, row, strict=True):
            placed.lasts[key] = lasts(gpu, level)
            placed.uses[gpu].append(key)
        before = 0
        for bucket, step in enumerate(steps if count > 1 else (), 1):
            key = (number, iteration, f"bucket {bucket}")
            size = sum(s.parameter_bytes for s in segments[len(segments) - step : len(segments) - before])
            before, c = step, sum(level >= bucket for level in row)
            moved = size * ((c - 1) * count + (count - 1) * c) * 10**6
            placed.lasts[key] = _ceil(moved, c * count * channel.rate) + (c + count - 2) * channel.latency_us
            for link in channel.links:
                placed.uses["link", link].append(key)
            for own_key, gpu, level in zip(keys[:count], own, row, strict=True):
                if level >= bucket:
                    placed.waits.add((own_key, key, 0, lasts(gpu, bucket)))
            if bucket > 1:
                placed.waits.add((keys[-1], key, 0, placed.lasts[keys[-1]]))
            keys.append(key)
        later = iteration + 1
        if later < job.iterations or instance.horizon == "cyclic":
            periods, later = divmod(later, job.iterations)
            for key, k in product(keys, range(count)):
                placed.waits.add((key, (number, later, f"worker {k}"), periods, placed.lasts[key]))


def _transfer(transfer: TaskGraphTransfer, at: dict[str, Gpu], routes: Routes) -> tuple[int, Sequence[int]]:
    """Duration and links."""
    cluster = routes.cluster
    if transfer.among:
        channel = routes.channel(Counter(at[slot][0] for slot in transfer.among))
        assert channel is not None
        steps = len(transfer.among) - 1
        moved = 2 * steps * transfer.bytes * 10**6
        return _ceil(moved, len(transfer.among) * channel.rate) + 2 * steps * channel.latency_us, channel.links
    assert transfer.source is not None
    assert transfer.target is not None
    source, target = at[transfer.source][0], at[transfer.target][0]
    if source == target:
        server = cluster.servers[source]
        return _ceil(transfer.bytes * 10**6, server.fabric_bandwidth) + server.fabric_latency_us, ()
    route = routes.between(source, target)
    assert route is not None
    links = [cluster.links[link] for link in route]
    slowest, latency = min(link.bandwidth for link in links), max(link.latency_us for link in links)
    return _ceil(transfer.bytes * 10**6, slowest) + latency, sorted(set(route))


def _ceil(size: int, rate: int) -> int:
    return -(-size // rate)


def _add_waits(placed: Placed, number: int, job: TaskGraphJob, cyclic: bool) -> None:
    """Edges and barrier, pair by pair."""
    shape, count = job.shape, job.iterations
    operations: list[TaskGraphBlock | TaskGraphTransfer] = [*shape.blocks, *shape.transfers]
    steps = {(edge.before, edge.after, edge.lag) for edge in shape.edges}
    steps |= {(operation.name, operation.name, 1) for operation in operations}
    if shape.barrier == "slot":
        steps |= {(a.name, b.name, 1) for a in shape.blocks for b in shape.blocks if set(a.slots) & set(b.slots)}
    if shape.barrier == "job":
        steps |= {(a.name, b.name, 1) for a in operations for b in operations}
    for before, after, lag in steps:
        for iteration in range(count):
            later = iteration + lag
            if later < count or cyclic:
                ends, starts = (number, iteration, before), (number, later % count, after)
                placed.waits.add((ends, starts, later // count, placed.lasts[ends]))


def _finite(instance: Instance, placed: Placed, best: int | None) -> int | None:
    """Least objective below `best`."""
    jobs = instance.jobs
    latest = max(job.release_us for job in jobs) + sum(placed.lasts.values())
    if instance.objective == "makespan" and best is not None:
        latest = min(latest, best - 1)
    model = cp_model.CpModel()
    starts = {
        key: {t: model.new_bool_var("") for t in range(jobs[key[0]].release_us, latest - lasts + 1)}
        for key, lasts in placed.lasts.items()
    }
    if not all(starts.values()):
        return None
    ends = [model.new_int_var(0, min(latest, job.deadline_us or latest), "") for job in jobs]
    for key, at in starts.items():
        model.add_exactly_one(at.values())
        model.add(ends[key[0]] >= sum(t * x for t, x in at.items()) + placed.lasts[key])
    for before, after, _, delay in placed.waits:
        late = sum(t * x for t, x in starts[after].items())
        model.add(late >= sum(t * x for t, x in starts[before].items()) + delay)
    for keys, t in product(placed.uses.values(), range(latest)):
        # Whoever runs at this time has started, and not yet for as long as it lasts.
        model.add_at_most_one(x for key in keys for s, x in starts[key].items() if s <= t < s + placed.lasts[key])
    _add_memory(model, placed, starts, latest)
    weights = [job.weight if instance.objective == "weighted_completion" else 1 for job in jobs]
    if instance.objective == "makespan":
        value: cp_model.LinearExprT = model.new_int_var(0, latest, "")
        for end in ends:
            model.add(value >= end)
    else:
        value = sum(weight * end for weight, end in zip(weights, ends, strict=True))
    if best is not None:
        model.add(value <= best - 1)
    model.minimize(value)
    return _solved(model)


def _add_memory(
    model: cp_model.CpModel, placed: Placed, starts: Mapping[Key, Mapping[int, cp_model.IntVar]], latest: int
) -> None:
    """What jobs need of each GPU and licence at each time from their first start to their last end, with holds."""

    def begun(key: Key, t: int) -> cp_model.LinearExprT:
        return sum(x for s, x in starts[key].items() if s <= t)

    def over(key: Key, t: int) -> cp_model.LinearExprT:
        return sum(x for s, x in starts[key].items() if s + placed.lasts[key] <= t)

    jobs = {job for job, _, _ in placed.lasts}
    scarce = [gpu for gpu in placed.kept if placed.left(gpu, jobs) < sum(size for _, _, size in placed.holds[gpu])]
    for t in range(latest if scarce else 0):
        present = {}
        for job in jobs:
            present[job], any_begun, any_left = (model.new_bool_var("") for _ in range(3))
            for key in (key for key in placed.lasts if key[0] == job):
                model.add(any_begun >= begun(key, t))
                model.add(any_left >= 1 - over(key, t))
            model.add(present[job] >= any_begun + any_left - 1)
        for gpu, kept in ((gpu, placed.kept[gpu]) for gpu in scarce):
            taken: list[cp_model.LinearExprT] = [state * present[job] for job, state, _ in kept]
            most = model.new_int_var(0, max(0, *(size for _, _, size in kept)), "")
            for job, _, size in kept:
                model.add(most >= size * present[job])
            for first, last, size in placed.holds[gpu]:
                held = model.new_bool_var("")
                model.add(held >= begun(first, t) - over(last, t))
                taken.append(size * held)
            model.add(sum(taken) + most <= placed.memory[gpu])


def _solved(model: cp_model.CpModel) -> int | None:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    assert status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    return round(solver.objective_value) if status == cp_model.OPTIMAL else None


def _least_period(instance: Instance, placed: Placed, best: int | None) -> int | None:
    """Least period below `best`."""
    limits = [job.pace_us * job.iterations for job in instance.jobs if job.pace_us is not None]
    enough = min([max(1, sum(placed.lasts.values())) if best is None else best - 1, *limits])
    return next((period for period in range(placed.least, enough + 1) if _repeats(instance, placed, period)), None)


def _repeats(instance: Instance, placed: Placed, period: int) -> bool:
    """Whether there is a plan of this period; every start is a number of whole periods, and a time within one."""
    model = cp_model.CpModel()
    sizes = Counter(job for job, _, _ in placed.lasts)
    turns = {key: model.new_int_var(0, 2 * sizes[key[0]], "") for key in placed.lasts}
    phases = {key: [model.new_bool_var("") for _ in range(period)] for key in placed.lasts}
    start: dict[Key, cp_model.LinearExprT] = {}
    for key, at in phases.items():
        model.add_exactly_one(at)
        start[key] = period * turns[key] + sum(r * x for r, x in enumerate(at))
    for before, after, periods, delay in placed.waits:
        model.add(start[after] + period * periods >= start[before] + delay)
    for keys, t in product(placed.uses.values(), range(period)):
        model.add_at_most_one(
            x for key in keys for r, x in enumerate(phases[key]) if (t - r) % period < placed.lasts[key]
        )
    for gpu, holds in placed.holds.items():
        for t in range(period):
            taken: list[cp_model.LinearExprT] = []
            for first, last, size in holds:
                copies = model.new_int_var(0, 4 * len(placed.lasts) + 2, "")
                # Starts no later than t less ends no later than t, both counted from the same one a period before.
                begun = sum(x for r, x in enumerate(phases[first]) if r <= t) - turns[first]
                ends = [(r + placed.lasts[last], x) for r, x in enumerate(phases[last])]
                over = sum(((t - end) // period + 1) * x for end, x in ends) - turns[last]
                model.add(copies >= begun - over)
                taken.append(size * copies)
            model.add(sum(taken) <= placed.left(gpu, range(len(instance.jobs))))
    model.minimize(0)
    return _solved(model) is not None
