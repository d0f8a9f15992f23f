"""Simulated annealing of placements and levels until the loads of GPUs and links are alike, on flat numbers.

Python runs `anneal_placement`, or it is compiled (`engines.compiled`).
"""

from __future__ import annotations

from jigsaw_opt.solvers.engines.compiled import Reals, kernel
from jigsaw_opt.solvers.kernels.placement_state import (
    FIXED_SERVERS,
    FREE_WORKERS,
    PlacementGraph,
    PlacementState,
    admits,
    emptiest,
    has_room,
    relevel,
    shift,
    width_of,
)
from jigsaw_opt.solvers.kernels.randomness import randint
from jigsaw_opt.solvers.kernels.sequence import ACROSS_ITERATIONS, FIXED

_TRIES = 20
"""Number of random servers that are tried for a job that has to leave its server."""
_SAMPLES = 6
"""Largest power of two of the sample of GPUs from which `fullest` chooses."""


def link_load(graph: PlacementGraph, state: PlacementState, gpu: int) -> int:
    """Return the load of the fullest link above a GPU.

    Load in microseconds; 0 where its server has no link.
    """
    most, s = 0, graph.server_of[gpu]
    for n in range(graph.path_at[s], graph.path_at[s + 1]):
        load = state.load[len(state.occupancy) + graph.path[n]]
        most = load if load > most else most
    return most


def fullest(graph: PlacementGraph, state: PlacementState) -> int:
    """Return the fullest of some random GPUs, by its own load or by that of the fullest link above it.

    Each of one to `_SAMPLES` doublings is as likely for the size of the sample; one sample in three goes by links.

    Number of the GPU, -1 where its load keeps to the target.
    """
    rng, gpus = state.rng, len(state.occupancy)
    g, by_link = randint(rng, gpus), randint(rng, 3) == 0
    most = link_load(graph, state, g) if by_link else state.load[g]
    # The larger the sample, the fuller is its fullest GPU. Small samples let others have their turn.
    for _ in range(1 << randint(rng, _SAMPLES) + 1):
        other = randint(rng, gpus)
        load = link_load(graph, state, other) if by_link else state.load[other]
        if load > most:
            g, most = other, load
    return g if most > state.target[1 if by_link else 0] else -1


def target_gpu(graph: PlacementGraph, state: PlacementState, worker: int) -> int:
    """Draw a GPU for a worker: on its server, on a server where its job is already, or anywhere.

    Number of the GPU; -1 where it is in another part of the cluster than the other workers of the job.
    """
    rng, g, j = state.rng, state.gpu[worker], graph.job[worker]
    s, slots = graph.server_of[g], graph.first[j + 1] - graph.first[j]
    if graph.freedom[j] == FREE_WORKERS:
        if slots == 1:
            return randint(rng, len(state.occupancy))
        kind = randint(rng, 4)
        if kind == 0:
            h = randint(rng, len(state.occupancy))
            return h if graph.part[graph.server_of[h]] == graph.part[s] else -1
        if kind == 1:
            s = graph.server_of[state.gpu[graph.first[j] + randint(rng, slots)]]
    return graph.gpu_at[s] + randint(rng, graph.gpu_at[s + 1] - graph.gpu_at[s])


def may_follow(graph: PlacementGraph, state: PlacementState, worker: int, gpu: int) -> bool:
    """Return whether a worker may go to the server of a GPU by itself."""
    j, here, there = graph.job[worker], graph.server_of[state.gpu[worker]], graph.server_of[gpu]
    if here == there:
        return True
    if graph.freedom[j] != FREE_WORKERS:
        return False
    return graph.first[j + 1] - graph.first[j] == 1 or graph.part[here] == graph.part[there]


def move_workers(graph: PlacementGraph, state: PlacementState, most: float) -> bool:
    """Move a worker, or exchange two, unless the cost rises by more than `most`; return whether something moved.

    Whether something moved. A change of exactly 0 counts as no move.
    """
    rng, width = state.rng, len(state.occupant) // len(state.occupancy)
    g = fullest(graph, state)
    if g < 0 or state.occupancy[g] == 0:
        return False
    a = state.occupant[g * width + randint(rng, state.occupancy[g])]
    h = target_gpu(graph, state, a)
    if h < 0 or h == g:
        return False
    b = -1
    n = randint(rng, state.occupancy[h] + 1)
    if n < state.occupancy[h]:
        b = state.occupant[h * width + n]
        if not may_follow(graph, state, b, g):
            return False
    cost = shift(graph, state, a, g, -1)
    if b >= 0:
        cost += shift(graph, state, b, h, -1)
    fits = admits(graph, state, a, h)
    if fits:
        cost += shift(graph, state, a, h, 1)
        if b >= 0:
            fits = admits(graph, state, b, g)
            if fits:
                cost += shift(graph, state, b, g, 1)
                if cost > most or cost == 0.0:
                    shift(graph, state, b, g, -1)
        if not fits or cost > most or cost == 0.0:
            shift(graph, state, a, h, -1)
    # A change of exactly 0 is mostly an exchange of equal workers, which leads nowhere.
    if fits and cost <= most and cost != 0.0:
        return True
    if b >= 0:
        shift(graph, state, b, h, 1)
    shift(graph, state, a, g, 1)
    return False


def take_away(graph: PlacementGraph, state: PlacementState, j: int, server: int, moved: int) -> float:
    """Take all workers of a job off a server, and return the change of cost.

    `moved[-1]` becomes how many are noted.

    Change of the cost; the last entry of `moved` becomes the number of workers that are noted so far.
    """
    cost = 0.0
    for worker in range(graph.first[j], graph.first[j + 1]):
        if graph.server_of[state.gpu[worker]] == server:
            state.moved[moved], state.origin[moved] = worker, state.gpu[worker]
            cost += shift(graph, state, worker, state.gpu[worker], -1)
            moved += 1
    state.moved[len(state.moved) - 1] = moved
    return cost


def may_leave(graph: PlacementGraph, j: int, s: int, t: int) -> bool:
    """Return whether all workers of a job on one server may go to another one."""
    if graph.freedom[j] == FREE_WORKERS and graph.first[j + 1] - graph.first[j] > 1:
        return graph.part[s] == graph.part[t]
    return graph.freedom[j] != FIXED_SERVERS


def move_groups(graph: PlacementGraph, state: PlacementState, most: float) -> bool:
    """Move workers of a job on a full server to another one, or exchange them with those of another job there.

    Nothing moves where the cost would rise by more than `most`.
    """
    rng, width = state.rng, len(state.occupant) // len(state.occupancy)
    g = fullest(graph, state)
    if g < 0 or state.occupancy[g] == 0:
        return False
    j = graph.job[state.occupant[g * width + randint(rng, state.occupancy[g])]]
    return move_group(graph, state, j, graph.server_of[g], most)


def move_group(graph: PlacementGraph, state: PlacementState, j: int, s: int, most: float) -> bool:
    """Move all workers of a job on a server to a random one, or exchange them with those of another job there."""
    rng, width = state.rng, len(state.occupant) // len(state.occupancy)
    t = randint(rng, len(graph.gpu_at) - 1)
    if s == t:
        return False
    h = graph.gpu_at[t] + randint(rng, graph.gpu_at[t + 1] - graph.gpu_at[t])
    k, n = j, randint(rng, state.occupancy[h] + 1)
    if n < state.occupancy[h]:
        k = graph.job[state.occupant[h * width + n]]
    if not may_leave(graph, j, s, t) or not may_leave(graph, k, t, s):
        return False
    cost = take_away(graph, state, j, s, 0)
    moved = state.moved[len(state.moved) - 1]
    if k != j:
        cost += take_away(graph, state, k, t, moved)
        moved = state.moved[len(state.moved) - 1]
    placed = 0
    while placed < moved:
        worker = state.moved[placed]
        gpu = emptiest(graph, state, worker, t if graph.job[worker] == j else s)
        if gpu < 0:
            break
        cost += shift(graph, state, worker, gpu, 1)
        placed += 1
    if placed == moved and cost <= most and cost != 0.0:
        return True
    for n in range(placed):
        shift(graph, state, state.moved[n], state.gpu[state.moved[n]], -1)
    for n in range(moved):
        shift(graph, state, state.moved[n], state.origin[n], 1)
    return False


def deepest_in(graph: PlacementGraph, state: PlacementState, j: int, i: int) -> int:
    """Return how many blocks of an iteration of a job are at the deepest level."""
    slots, found = graph.first[j + 1] - graph.first[j], 0
    for cell in range(graph.base[j] + i * graph.stride[j], graph.base[j] + i * graph.stride[j] + slots):
        if state.level[cell] == graph.depth[j]:
            found += 1
    return found


def change_levels(graph: PlacementGraph, state: PlacementState, most: float) -> bool:
    """Exchange levels of two workers of a job, or make one of them shallower and the other one deeper.

    Nothing changes where the cost would rise by more than `most`.
    """
    rng, width = state.rng, len(state.occupant) // len(state.occupancy)
    g = fullest(graph, state)
    if g < 0 or state.occupancy[g] == 0:
        return False
    a = state.occupant[g * width + randint(rng, state.occupancy[g])]
    j = graph.job[a]
    slots = graph.first[j + 1] - graph.first[j]
    if graph.scope[j] == FIXED or slots == 1:
        return False
    b = graph.first[j] + randint(rng, slots)
    if a == b:
        return False
    i = randint(rng, graph.iterations[j])
    first = graph.base[j] + i * graph.stride[j]
    one, other = first + a - graph.first[j], first + b - graph.first[j]
    low, high = state.level[other], state.level[one]
    to_a, to_b = low, high
    if graph.scope[j] == ACROSS_ITERATIONS and randint(rng, 2) == 0:
        if high == 1 or low == graph.depth[j]:
            return False
        if high == graph.depth[j] and deepest_in(graph, state, j, i) <= graph.contributors[j]:
            return False
        to_a, to_b = high - 1, low + 1
    # The worker was chosen for its full GPU, so that it must get less to do.
    if to_a >= high:
        return False
    cost = relevel(graph, state, a, one, to_a)
    cost += relevel(graph, state, b, other, to_b)
    # Only the other worker has become deeper, and may need more memory.
    if cost <= most and cost != 0.0 and has_room(graph, state, b):
        return True
    relevel(graph, state, a, one, high)
    relevel(graph, state, b, other, low)
    return False


def largest_load(state: PlacementState) -> int:
    """Return the largest load of a GPU or link."""
    most = 0
    for n in range(len(state.load)):
        most = state.load[n] if state.load[n] > most else most
    return most


@kernel
def settle_placement(graph: PlacementGraph, state: PlacementState) -> int:
    """Compute the counts of blocks, the occupants and all loads from the GPUs and levels of an assignment.

    Largest load of a GPU or link, in microseconds.

    `state`: `gpu` and `level` are given; the counts, occupants, bytes and loads must be 0, and are filled.
    """
    width = width_of(graph, state)
    for j in range(len(graph.first) - 1):
        for i in range(graph.iterations[j]):
            at = graph.base[j] + i * graph.stride[j] - graph.first[j]
            for worker in range(graph.first[j], graph.first[j + 1]):
                state.blocks[worker * width + state.level[at + worker] - 1] += 1
    for worker in range(len(graph.job)):
        shift(graph, state, worker, state.gpu[worker], 1)
    return largest_load(state)


@kernel
def anneal_placement(
    graph: PlacementGraph,
    state: PlacementState,
    first: int,
    done: int,
    count: int,
    steps: int,
    hot: float,
    cold: float,
    exponentials: Reals,
) -> int:
    """Move workers and jobs so that the sum of squared excesses of loads over the target falls.

    The largest load of a GPU or link, in microseconds.

    `first`: A job that has to go to another server before all else; -1 for none. `hot, cold`: temperature in the first
    step and in the last: mean rise of the sum that is accepted.
    """
    rng = state.rng
    if first >= 0:
        for _ in range(_TRIES):
            worker = graph.first[first] + randint(rng, graph.first[first + 1] - graph.first[first])
            if move_group(graph, state, first, graph.server_of[state.gpu[worker]], 1e9):
                break
    if done == 0:
        state.temperature[0] = hot
    temperature, cooling = state.temperature[0], (cold / hot) ** (1.0 / steps)
    for step in range(done, done + count):
        most = temperature * exponentials[randint(rng, len(exponentials))]
        kind = step % 4
        if kind == 0:
            move_groups(graph, state, most)
        elif kind == 1:
            change_levels(graph, state, most)
        else:
            move_workers(graph, state, most)
        temperature *= cooling
    state.temperature[0] = temperature
    return largest_load(state)
