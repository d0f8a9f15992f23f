"""GPUs and levels of workers, without a timetable, on flat numbers.

`PlacementGraph` has all that does not change; `PlacementState` has GPUs and levels, and all loads that follow.
"""

from __future__ import annotations

from typing import NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers, Reals

FIXED_SERVERS, WHOLE_JOB, FREE_WORKERS = 0, 1, 2
"""What a job may do: its workers change GPUs only within their servers; all of them go to another server together; or
each of them goes anywhere by itself."""


class PlacementGraph(NamedTuple):
    """Jobs, servers and links. The links form a forest, so each of them parts the servers below it from the others.

    `job`: by worker; the workers of a job follow one another. `first`: first worker of each job, and at the end the
    number of workers. `freedom`: by job: `FIXED_SERVERS`, `WHOLE_JOB` or `FREE_WORKERS`. `alone`: by job and GPU type:
    least time that the job takes with workers there; -1 where they may not be. `table`: by job, GPU type and level:
    duration of a block; with room for as many levels as the deepest job has. `scope`: by job: `FIXED` where levels stay
    as they are, `WITHIN_ITERATION` where blocks of an iteration may exchange them, and `ACROSS_ITERATIONS` where their
    sum over all iterations is what counts. `contributors`: by job: so many blocks of every iteration are at the deepest
    level. `depth, iterations`: by job: number of levels and of iterations. `base, stride`: by job: the level of its
    block of iteration i and slot s is ``level[base[j] + i * stride[j] + s]``. `exchange`: by job: load that it puts on
    each link that it uses, in microseconds. `gpu_at`: first GPU of each server, and at the end the number of GPUs.
    `part`: part of the cluster that is joined, by server. `path_at, path`: links between server ``s`` and the root of
    its tree are ``path[path_at[s]:path_at[s + 1]]``.
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
    """GPUs and levels of all workers, with the loads that follow. A single number is a list of length 1.

    `blocks`: by worker and level: how many of its blocks are there. `occupancy, occupant`: how many workers each GPU
    has, and which, in rows of one length. `below`: number of workers of a job below a link, by job and link. `load`: by
    GPU, then by link, in microseconds. `target`: target of the loads of GPUs, target of those of links, and largest
    length of a job alone; in microseconds. `link_price`: cost of a load of one target on a link; it is counted whether
    or not the load keeps to the target. `moved, origin`: buffers: workers that move, followed by their number as the
    last entry; and the GPUs where they were. `temperature`: mean rise of the cost that is accepted now.
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
    temperature: Reals


def add_load(state: PlacementState, resource: int, amount: int) -> float:
    """Add to a load; return by how much its squared excess over the target rises, as a share of the target.

    Change of ``max(0, load - target)**2 / target**2``.

    `amount`: change of the load, in microseconds; may be negative.
    """
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
    """Return the load that the blocks of a worker would put on a GPU.

    Sum of the durations of its blocks of all iterations there, in microseconds.

    `state`: the assignment of workers; `load`, `used` and the other derived lists are those of its GPUs and levels.
    """
    j, width = graph.job[worker], width_of(graph, state)
    types = len(graph.alone) // (len(graph.first) - 1)
    at, total = (j * types + graph.type_of[gpu]) * width, 0
    for k in range(graph.depth[j]):
        count = state.blocks[worker * width + k]
        if count > 0:
            total += count * graph.table[at + k]
    return total


def activations(graph: PlacementGraph, state: PlacementState, worker: int) -> int:
    """Return the bytes of activations of a worker at its deepest level.

    Activation bytes of the deepest level that any of its blocks has, at least those of level 1.

    `state`: the assignment of workers; `load`, `used` and the other derived lists are those of its GPUs and levels.
    """
    j, width = graph.job[worker], width_of(graph, state)
    k = graph.depth[j] - 1
    while k > 0 and state.blocks[worker * width + k] == 0:
        k -= 1
    return graph.activation_bytes[j * width + k]


def shift(graph: PlacementGraph, state: PlacementState, worker: int, gpu: int, sign: int) -> float:
    """Put a worker on a GPU or take it away, and return the change of cost.

    Change of the sum of squared excesses over the targets, plus `link_price` for each rise of a link's load.

    `state`: the assignment; occupants, bytes of state, loads of the GPU and of the links above it change. `sign`: 1 to
    put it there, -1 to take it away.
    """
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
        # The order of workers on a GPU does not matter, so that the last one fills the gap.
        state.occupancy[gpu] -= 1
        state.occupant[k] = state.occupant[gpu * width + state.occupancy[gpu]]
    if graph.exchange[j] > 0:
        links, slots, s = len(state.load) - gpus, graph.first[j + 1] - graph.first[j], graph.server_of[gpu]
        for n in range(graph.path_at[s], graph.path_at[s + 1]):
            link = graph.path[n]
            count = state.below[j * links + link]
            # The exchange crosses a link only where some, but not all workers of the job are below it.
            state.below[j * links + link] = count + sign
            used, uses = 0 < count < slots, 0 < count + sign < slots
            if used != uses:
                amount = graph.exchange[j] if uses else -graph.exchange[j]
                cost += add_load(state, gpus + link, amount) + state.link_price[0] * amount / state.target[1]
    return cost


def admits(graph: PlacementGraph, state: PlacementState, worker: int, gpu: int) -> bool:
    """Return whether a worker may go to a GPU.

    True where the type can run the job in time, a place and the memory are free, and no worker of the same job is
    there.

    `state`: the assignment of workers; `load`, `used` and the other derived lists are those of its GPUs and levels.
    """
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
    """Return the GPU of a server with the least load that admits a worker, or -1.

    Number of the GPU, -1 where none of the server admits the worker.

    `state`: the assignment of workers; `load`, `used` and the other derived lists are those of its GPUs and levels.
    """
    best = -1
    for gpu in range(graph.gpu_at[server], graph.gpu_at[server + 1]):
        if (best < 0 or state.load[gpu] < state.load[best]) and admits(graph, state, worker, gpu):
            best = gpu
    return best


def relevel(graph: PlacementGraph, state: PlacementState, worker: int, cell: int, level: int) -> float:
    """Give a block of a worker another level, and return the change of cost.

    Change of the sum of squared excesses over the targets.

    `state`: the assignment; the level of the block, the counts of the worker and the load of its GPU change. `level`:
    the new level, from 1 on.
    """
    j, width, gpu = graph.job[worker], width_of(graph, state), state.gpu[worker]
    types = len(graph.alone) // (len(graph.first) - 1)
    at, before = (j * types + graph.type_of[gpu]) * width, state.level[cell]
    state.blocks[worker * width + before - 1] -= 1
    state.blocks[worker * width + level - 1] += 1
    state.level[cell] = level
    return add_load(state, gpu, graph.table[at + level - 1] - graph.table[at + before - 1])


def has_room(graph: PlacementGraph, state: PlacementState, worker: int) -> bool:
    """Return whether the state and the largest activations on a worker's GPU fit in its memory.

    `state`: the assignment of workers; `load`, `used` and the other derived lists are those of its GPUs and levels.
    """
    gpu, width = state.gpu[worker], len(state.occupant) // len(state.occupancy)
    largest = 0
    for n in range(gpu * width, gpu * width + state.occupancy[gpu]):
        size = activations(graph, state, state.occupant[n])
        if size > largest:
            largest = size
    return state.used[gpu] + largest <= graph.memory[gpu]
