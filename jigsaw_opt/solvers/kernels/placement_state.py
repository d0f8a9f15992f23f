"""Where workers are and which levels they take, without a timetable, on flat numbers.

What does not change is `PlacementGraph`; `PlacementState` has GPUs and levels, and all loads that follow.
"""

from __future__ import annotations

from typing import NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers, Reals

__all__ = [
    "FIXED_SERVERS",
    "FREE_WORKERS",
    "WHOLE_JOB",
    "PlacementGraph",
    "PlacementState",
    "admits",
    "emptiest",
    "has_room",
    "relevel",
    "shift",
    "width_of",
]

FIXED_SERVERS, WHOLE_JOB, FREE_WORKERS = 0, 1, 2
"""What a job may do: its workers change GPUs only within their servers; all of them go to another server together; or
each of them goes anywhere by itself."""


class PlacementGraph(NamedTuple):
    """Jobs, servers and links. The links form a forest, so each of them parts the servers below it from the others.

    Parameters
    ----------
    job
        By worker; the workers of a job follow one another.
    first
        First worker of each job, and at the end the number of workers.
    freedom
        By job: `FIXED_SERVERS`, `WHOLE_JOB` or `FREE_WORKERS`.
    alone
        By job and GPU type: least time that the job takes with workers there; -1 where they may not be.
    table
        By job, GPU type and level: duration of a block; with room for as many levels as the deepest job has.
    scope
        By job: `FIXED` where levels stay as they are, `WITHIN_ITERATION` where blocks of an iteration may exchange
        them, and `ACROSS_ITERATIONS` where their sum over all iterations is what counts.
    contributors
        By job: so many blocks of every iteration are at the deepest level.
    depth, iterations
        By job: number of levels and of iterations.
    base, stride
        By job: the level of its block of iteration i and slot s is ``level[base[j] + i * stride[j] + s]``.
    exchange
        By job: load that it is on each link that it uses.
    state_bytes
        By job.
    activation_bytes
        By job and level.
    type_of, server_of, memory
        By GPU.
    gpu_at
        First GPU of each server, and at the end the number of GPUs.
    part
        Part of the cluster that is joined, by server.
    path_at, path
        Links between server ``s`` and the root of its tree are ``path[path_at[s]:path_at[s + 1]]``.
    """

    job: Numbers
    first: Numbers
    freedom: Numbers
    alone: Numbers
    table: Numbers
    scope: Numbers
    contributors: Numbers
    depth: Numbers
    iterations: Numbers
    base: Numbers
    stride: Numbers
    exchange: Numbers
    state_bytes: Numbers
    activation_bytes: Numbers
    type_of: Numbers
    server_of: Numbers
    memory: Numbers
    gpu_at: Numbers
    part: Numbers
    path_at: Numbers
    path: Numbers


class PlacementState(NamedTuple):
    """Where all workers are.

    Parameters
    ----------
    gpu
        By worker.
    level
        By operation; of blocks alone.
    blocks
        By worker and level: how many of its blocks are there.
    occupancy, occupant
        How many workers each GPU has, and which, in rows of one length.
    used
        Bytes of state by GPU.
    below
        Number of workers of a job below a link, by job and link.
    load
        By GPU, then by link, in microseconds.
    target
        What loads of GPUs should keep to, those of links, and how long a job may take by itself; all in microseconds.
    link_price
        Cost of a link's load by itself, as a share of the target, alone in its list.
    moved, origin
        Buffers: workers that move, and where they were; as many as two jobs have.
    rng
        The state of the random numbers, alone in its list.
    """

    gpu: Numbers
    level: Numbers
    blocks: Numbers
    occupancy: Numbers
    occupant: Numbers
    used: Numbers
    below: Numbers
    load: Numbers
    target: Numbers
    link_price: Reals
    moved: Numbers
    origin: Numbers
    rng: Numbers


def add_load(state: PlacementState, resource: int, amount: int) -> float:
    """Add to a load; return by how much its squared excess over the target rises, as a share of the target."""
    target = state.target[0 if resource < len(state.occupancy) else 1]
    before = state.load[resource] - target
    after = before + amount
    state.load[resource] += amount
    if before <= 0 and after <= 0:
        return 0.0
    one = before / target if before > 0 else 0.0
    other = after / target if after > 0 else 0.0
    return other * other - one * one


def width_of(graph: PlacementGraph, state: PlacementState) -> int:
    """Return the number of levels for which tables have room."""
    return len(state.blocks) // len(graph.job)


def work_on(graph: PlacementGraph, state: PlacementState, worker: int, gpu: int) -> int:
    """Return the load that a worker is on a GPU."""
    j, width = graph.job[worker], width_of(graph, state)
    types = len(graph.alone) // (len(graph.first) - 1)
    at, total = (j * types + graph.type_of[gpu]) * width, 0
    for k in range(graph.depth[j]):
        count = state.blocks[worker * width + k]
        if count > 0:
            total += count * graph.table[at + k]
    return total


def activations(graph: PlacementGraph, state: PlacementState, worker: int) -> int:
    """Return the bytes of activations of a worker at its deepest level."""
    j, width = graph.job[worker], width_of(graph, state)
    k = graph.depth[j] - 1
    while k > 0 and state.blocks[worker * width + k] == 0:
        k -= 1
    return graph.activation_bytes[j * width + k]


def shift(graph: PlacementGraph, state: PlacementState, worker: int, gpu: int, sign: int) -> float:
    """Put a worker on a GPU, or with sign -1 take it away; return by how much the sum of squared excesses rises."""
    j, gpus, width = graph.job[worker], len(state.occupancy), len(state.occupant) // len(state.occupancy)
    cost = add_load(state, gpu, sign * work_on(graph, state, worker, gpu))
    state.used[gpu] += sign * graph.state_bytes[j]
    if sign > 0:
        state.occupant[gpu * width + state.occupancy[gpu]] = worker
        state.occupancy[gpu] += 1
        state.gpu[worker] = gpu
    else:
        k = gpu * width
        while state.occupant[k] != worker:
            k += 1
        state.occupancy[gpu] -= 1
        state.occupant[k] = state.occupant[gpu * width + state.occupancy[gpu]]
    if graph.exchange[j] > 0:
        links, slots, s = len(state.load) - gpus, graph.first[j + 1] - graph.first[j], graph.server_of[gpu]
        for n in range(graph.path_at[s], graph.path_at[s + 1]):
            link = graph.path[n]
            count = state.below[j * links + link]
            state.below[j * links + link] = count + sign
            used, uses = 0 < count < slots, 0 < count + sign < slots
            if used != uses:
                amount = graph.exchange[j] if uses else -graph.exchange[j]
                cost += add_load(state, gpus + link, amount) + state.link_price[0] * amount / state.target[1]
    return cost


def admits(graph: PlacementGraph, state: PlacementState, worker: int, gpu: int) -> bool:
    """Return whether a GPU has the type, the memory and the place for a worker, and no other worker of its job."""
    j, width = graph.job[worker], len(state.occupant) // len(state.occupancy)
    types = len(graph.alone) // (len(graph.first) - 1)
    alone = graph.alone[j * types + graph.type_of[gpu]]
    if alone < 0 or alone > state.target[2] or state.occupancy[gpu] == width:
        return False
    largest = activations(graph, state, worker)
    for n in range(gpu * width, gpu * width + state.occupancy[gpu]):
        other = state.occupant[n]
        if graph.job[other] == j:
            return False
        size = activations(graph, state, other)
        if size > largest:
            largest = size
    return state.used[gpu] + graph.state_bytes[j] + largest <= graph.memory[gpu]


def emptiest(graph: PlacementGraph, state: PlacementState, worker: int, server: int) -> int:
    """Return the GPU of a server with the least load that admits a worker, or -1."""
    best = -1
    for gpu in range(graph.gpu_at[server], graph.gpu_at[server + 1]):
        if (best < 0 or state.load[gpu] < state.load[best]) and admits(graph, state, worker, gpu):
            best = gpu
    return best


def relevel(graph: PlacementGraph, state: PlacementState, worker: int, cell: int, level: int) -> float:
    """Give a block of a worker another level; return by how much the sum of squared excesses rises."""
    j, width, gpu = graph.job[worker], width_of(graph, state), state.gpu[worker]
    types = len(graph.alone) // (len(graph.first) - 1)
    at, before = (j * types + graph.type_of[gpu]) * width, state.level[cell]
    state.blocks[worker * width + before - 1] -= 1
    state.blocks[worker * width + level - 1] += 1
    state.level[cell] = level
    return add_load(state, gpu, graph.table[at + level - 1] - graph.table[at + before - 1])


def has_room(graph: PlacementGraph, state: PlacementState, worker: int) -> bool:
    """Return whether the memory of a worker's GPU has room for the deepest levels there."""
    gpu, width = state.gpu[worker], len(state.occupant) // len(state.occupancy)
    largest = 0
    for n in range(gpu * width, gpu * width + state.occupancy[gpu]):
        size = activations(graph, state, state.occupant[n])
        if size > largest:
            largest = size
    return state.used[gpu] + largest <= graph.memory[gpu]
