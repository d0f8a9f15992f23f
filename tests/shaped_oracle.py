"""The optimum of tiny instances of shaped jobs, by a boolean for every start at every time on every placement.

Written from the specification alone (shaped-jobs). It shares no code with formulations and solvers, and of the problem
only documents and routes. CP-SAT is asked for booleans, integers and linear inequalities, and for no interval.

Finite: no plan need last longer than the latest release and all operations in turn, for a time at which nothing runs
can be cut out. Cyclic: the same holds for the period, and every period from the least one is tried. In whole periods,
starts of one job are at most two apart from the next ones: where they are further, all the later ones can come a
period sooner.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product

from ortools.sat.python import cp_model

from jigsaw_opt.problem import Instance, ShapedBlock, ShapedJob, ShapedTransfer
from jigsaw_opt.problem.cluster import Routes

__all__ = ["shaped_optimum"]

Gpu = tuple[int, int]
Key = tuple[int, int, str]
"""Job, iteration and name of an operation."""


@dataclass
class Placed:
    """Everything that is fixed once the slots have their GPUs."""

    lasts: dict[Key, int] = field(default_factory=dict)
    uses: dict[object, list[Key]] = field(default_factory=lambda: defaultdict(list))
    waits: set[tuple[Key, Key, int]] = field(default_factory=set)  # before, after, periods
    holds: dict[Gpu, list[tuple[Key, Key, int]]] = field(default_factory=lambda: defaultdict(list))
    free: dict[Gpu, int] = field(default_factory=dict)  # memory that slots leave

    @property
    def least(self) -> int:
        """Longest operation, and most work of a GPU or link."""
        return max(1, *self.lasts.values(), *(sum(self.lasts[key] for key in keys) for keys in self.uses.values()))


def shaped_optimum(instance: Instance) -> int | None:
    """Best objective of an instance of shaped jobs alone, or None where no plan exists."""
    best: int | None = None
    for placement in _placements(instance):
        placed = _placed(instance, placement)
        # Some job ends no earlier than the work of any GPU or link, and weights are at least 1.
        hopeless = best is not None and placed.least >= best
        if hopeless or min(placed.free.values()) < 0:
            continue
        found = _least_period(placed, best) if instance.horizon == "cyclic" else _finite(instance, placed, best)
        best = best if found is None else found
    return best


def _placements(instance: Instance) -> Iterator[tuple[tuple[Gpu, ...], ...]]:
    """Every placement, of those that differ in the numbers of a server's GPUs alone just one."""
    servers, routes = instance.cluster.servers, Routes(instance.cluster)
    gpus = [(s, k) for s, server in enumerate(servers) for k in range(server.gpus)]
    choices = []
    for job in instance.jobs:
        assert isinstance(job, ShapedJob)
        tables = [[b.duration_us for b in job.shape.blocks if slot.name in b.slots] for slot in job.shape.slots]
        choices.append(
            [
                own
                for own in permutations(gpus, len(tables))
                if all(servers[s].gpu_type in table for (s, _), slot in zip(own, tables, strict=True) for table in slot)
                and all(a == b or routes.between(a, b) is not None for (a, _), (b, _) in product(own, own))
            ]
        )
    for placement in product(*choices):
        seen: Counter[int] = Counter()
        for server, number in dict.fromkeys(gpu for own in placement for gpu in own):
            if number != seen[server]:
                break
            seen[server] += 1
        else:
            yield placement


def _placed(instance: Instance, placement: Sequence[Sequence[Gpu]]) -> Placed:
    placed, servers, routes = Placed(), instance.cluster.servers, Routes(instance.cluster)
    for number, (job, own) in enumerate(zip(instance.jobs, placement, strict=True)):
        assert isinstance(job, ShapedJob)
        at = {slot.name: gpu for slot, gpu in zip(job.shape.slots, own, strict=True)}
        for slot in job.shape.slots:
            gpu = at[slot.name]
            placed.free[gpu] = placed.free.get(gpu, servers[gpu[0]].gpu_memory) - slot.memory
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
    return placed


def _transfer(transfer: ShapedTransfer, at: dict[str, Gpu], routes: Routes) -> tuple[int, Sequence[int]]:
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
    return _ceil(transfer.bytes * 10**6, slowest) + latency, list(route)


def _ceil(size: int, rate: int) -> int:
    return -(-size // rate)


def _add_waits(placed: Placed, number: int, job: ShapedJob, cyclic: bool) -> None:
    """Edges and barrier, pair by pair."""
    shape, count = job.shape, job.iterations
    operations: list[ShapedBlock | ShapedTransfer] = [*shape.blocks, *shape.transfers]
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
                placed.waits.add((ends, starts, later // count))


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
    ends = [model.new_int_var(0, latest, "") for _ in jobs]
    for key, at in starts.items():
        model.add_exactly_one(at.values())
        model.add(ends[key[0]] >= sum(t * x for t, x in at.items()) + placed.lasts[key])
    for before, after, _ in placed.waits:
        late = sum(t * x for t, x in starts[after].items())
        model.add(late >= sum(t * x for t, x in starts[before].items()) + placed.lasts[before])
    for keys, t in product(placed.uses.values(), range(latest)):
        # Whoever runs at this time has started, and not yet for as long as it lasts.
        model.add_at_most_one(x for key in keys for s, x in starts[key].items() if s <= t < s + placed.lasts[key])
    for gpu, holds in placed.holds.items():
        for t in range(latest):
            taken: list[cp_model.LinearExprT] = []
            for first, last, size in holds:
                held = model.new_bool_var("")
                begun = sum(x for s, x in starts[first].items() if s <= t)
                over = sum(x for s, x in starts[last].items() if s + placed.lasts[last] <= t)
                model.add(held >= begun - over)
                taken.append(size * held)
            model.add(sum(taken) <= placed.free[gpu])
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


def _solved(model: cp_model.CpModel) -> int | None:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    assert status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    return round(solver.objective_value) if status == cp_model.OPTIMAL else None


def _least_period(placed: Placed, best: int | None) -> int | None:
    """Least period below `best`."""
    enough = max(1, sum(placed.lasts.values())) if best is None else best - 1
    return next((period for period in range(placed.least, enough + 1) if _repeats(placed, period)), None)


def _repeats(placed: Placed, period: int) -> bool:
    """Whether there is a plan of this period; every start is a number of whole periods, and a time within one."""
    model = cp_model.CpModel()
    sizes = Counter(job for job, _, _ in placed.lasts)
    turns = {key: model.new_int_var(0, 2 * sizes[key[0]], "") for key in placed.lasts}
    phases = {key: [model.new_bool_var("") for _ in range(period)] for key in placed.lasts}
    start: dict[Key, cp_model.LinearExprT] = {}
    for key, at in phases.items():
        model.add_exactly_one(at)
        start[key] = period * turns[key] + sum(r * x for r, x in enumerate(at))
    for before, after, periods in placed.waits:
        model.add(start[after] + period * periods >= start[before] + placed.lasts[before])
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
            model.add(sum(taken) <= placed.free[gpu])
    model.minimize(0)
    return _solved(model) is not None
