"""Annealing of a placement and of its numbers of levels, so that no GPU, link or worker has more than a target."""

from __future__ import annotations

from typing import NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers, Reals, kernel
from jigsaw_opt.solvers.kernels.randomness import following, randint


class LoadJobs(NamedTuple):
    """Jobs with their workers, servers with their GPUs, and the time of a block by level.

    `first`: first worker of each job, and the number of all. `job`: job of each worker. `levels`: by job. `rule`: by
    job: 0 where all iterations have one level, 1 where numbers of levels stay, 2 where they are free. `least_sum,
    least_deep, balance`: for the latter: least sum of levels, least number of iterations at the deepest level, and most
    difference of sums between two workers, over all iterations. `still`: by job: 0 where it may go to any server, 1
    where its workers stay on their servers, 2 where they stay on their GPUs. `release, state`: microseconds and bytes
    by job. `ring`: microseconds for which it takes the links of each of its servers, where it has several. `block_at`:
    by job and kind of server, where its blocks stand, or -1. `block, path, activation`: by level: microseconds of a
    block, of an iteration through it, and bytes. `gpu_at, kind`: first GPU of each server, and its kind; `server,
    memory`: by GPU. `most`: most levels of a job, alone in its list.
    """

    first: Numbers
    job: Numbers
    levels: Numbers
    rule: Numbers
    least_sum: Numbers
    least_deep: Numbers
    balance: Numbers
    still: Numbers
    release: Numbers
    state: Numbers
    ring: Numbers
    block_at: Numbers
    block: Numbers
    path: Numbers
    activation: Numbers
    gpu_at: Numbers
    kind: Numbers
    server: Numbers
    memory: Numbers
    most: Numbers


class LoadState(NamedTuple):
    """A placement with its loads, and the best one.

    `gpu`: by worker. `iterations`: by worker and level. `work, length`: by worker: time on its GPU, and the least
    end of its job that it makes. `load, uplink`: microseconds by GPU, and by server of the links that leave it.
    `size, on`: number of workers by GPU, and the workers, in rows of as many as there are jobs. `there, servers`:
    number of workers by job and server, and number of servers by job. `log`: changes of one step, behind their number.
    `rng`: state of the random numbers. `best_gpu, best_iterations`: the cheapest placement, as `gpu` and `iterations`.
    `cost`: of the placement, of the cheapest one, and of links that are taken as long as the target.
    """

    gpu: Numbers
    iterations: Numbers
    work: Numbers
    length: Numbers
    load: Numbers
    uplink: Numbers
    there: Numbers
    servers: Numbers
    size: Numbers
    on: Numbers
    log: Numbers
    rng: Numbers
    best_gpu: Numbers
    best_iterations: Numbers
    cost: Reals


_APART = 4
"""One in so many workers that move may leave the server."""


def price(time: int, target: float) -> float:
    """Return what a load or a length costs."""
    over = time / target - 1.0
    return over * over if over > 0.0 else 0.0


def blocks_on(jobs: LoadJobs, j: int, s: int) -> int:
    """Return where the blocks of a job on a server stand; -1 where it may not be there."""
    return jobs.block_at[j * (len(jobs.block_at) // len(jobs.levels)) + jobs.kind[s]]


def add_load(state: LoadState, g: int, more: int, target: float) -> None:
    """Add work to a GPU."""
    state.cost[0] -= price(state.load[g], target)
    state.load[g] += more
    state.cost[0] += price(state.load[g], target)


def add_transfers(state: LoadState, s: int, more: int, target: float) -> None:
    """Add transfers to the links of a server."""
    state.cost[0] -= price(state.uplink[s], target)
    state.uplink[s] += more
    state.cost[0] += price(state.uplink[s], target) + state.cost[2] * more / target


def count_server(jobs: LoadJobs, state: LoadState, j: int, s: int, by: int, target: float) -> None:
    """Count that a job has one worker more or less on a server, and its transfers where it has several servers.

    `by`: 1 or -1; for 1 the worker is not there yet, and for -1 it is not any more.
    """
    n = j * len(jobs.kind) + s
    state.there[n] += by
    if state.there[n] != (1 if by > 0 else 0):
        return
    state.servers[j] += by
    few = 2 if by > 0 else 1
    if state.servers[j] < few:
        return
    add_transfers(state, s, by * jobs.ring[j], target)
    if state.servers[j] == few:
        for k in range(jobs.first[j], jobs.first[j + 1]):
            if state.gpu[k] >= 0 and jobs.server[state.gpu[k]] != s:
                add_transfers(state, jobs.server[state.gpu[k]], by * jobs.ring[j], target)
                return


def put(jobs: LoadJobs, state: LoadState, k: int, g: int, target: float) -> None:
    """Move a worker to another GPU, or away from all with -1."""
    old, j, rows = state.gpu[k], jobs.job[k], len(jobs.levels)
    state.gpu[k] = -1
    if old >= 0:
        count_server(jobs, state, j, jobs.server[old], -1, target)
    if g >= 0:
        count_server(jobs, state, j, jobs.server[g], 1, target)
    if old >= 0:
        add_load(state, old, -state.work[k], target)
        state.cost[0] -= price(state.length[k], target)
        n = 0
        while state.on[old * rows + n] != k:
            n += 1
        state.size[old] -= 1
        state.on[old * rows + n] = state.on[old * rows + state.size[old]]
    state.gpu[k] = g
    if g >= 0:
        at = blocks_on(jobs, j, jobs.server[g])
        work, length = 0, jobs.release[j]
        for level in range(jobs.levels[j]):
            count = state.iterations[k * jobs.most[0] + level]
            work += count * jobs.block[at + level]
            length += count * jobs.path[at + level]
        state.work[k], state.length[k] = work, length
        add_load(state, g, work, target)
        state.cost[0] += price(length, target)
        state.on[g * rows + state.size[g]] = k
        state.size[g] += 1


def moved(jobs: LoadJobs, state: LoadState, k: int, g: int, target: float) -> None:
    """Move a worker and remember where it was."""
    n = state.log[0]
    state.log[4 * n + 1], state.log[4 * n + 2], state.log[4 * n + 3] = k, state.gpu[k], -1
    state.log[0] = n + 1
    put(jobs, state, k, g, target)


def shift(jobs: LoadJobs, state: LoadState, k: int, source: int, to: int, target: float) -> None:
    """Give an iteration of a worker another level."""
    g, j = state.gpu[k], jobs.job[k]
    at = blocks_on(jobs, j, jobs.server[g])
    state.iterations[k * jobs.most[0] + source] -= 1
    state.iterations[k * jobs.most[0] + to] += 1
    more = jobs.block[at + to] - jobs.block[at + source]
    state.work[k] += more
    add_load(state, g, more, target)
    state.cost[0] -= price(state.length[k], target)
    state.length[k] += jobs.path[at + to] - jobs.path[at + source]
    state.cost[0] += price(state.length[k], target)


def shifted(jobs: LoadJobs, state: LoadState, k: int, source: int, to: int, target: float) -> None:
    """Give an iteration of a worker another level and remember it, if it may have that level there."""
    n = state.log[0]
    at = blocks_on(jobs, jobs.job[k], jobs.server[state.gpu[k]])
    if source == to or jobs.block[at + to] < 0:
        return
    state.log[4 * n + 1], state.log[4 * n + 2], state.log[4 * n + 3] = k, source, to
    state.log[0] = n + 1
    shift(jobs, state, k, source, to, target)


def undo(jobs: LoadJobs, state: LoadState, target: float) -> None:
    """Take back all changes of a step."""
    for n in range(state.log[0] - 1, -1, -1):
        k, a, b = state.log[4 * n + 1], state.log[4 * n + 2], state.log[4 * n + 3]
        if b >= 0:
            shift(jobs, state, k, b, a, target)
        else:
            put(jobs, state, k, a, target)
    state.log[0] = 0


def holds(jobs: LoadJobs, state: LoadState, j: int, g: int) -> bool:
    """Return whether a job has a worker on a GPU."""
    found = False
    for k in range(jobs.first[j], jobs.first[j + 1]):
        found = found or state.gpu[k] == g
    return found


def drawn_level(jobs: LoadJobs, state: LoadState, k: int) -> int:
    """Return a random level that a worker has in some iteration."""
    levels = jobs.levels[jobs.job[k]]
    level = randint(state.rng, levels)
    while state.iterations[k * jobs.most[0] + level] == 0:
        level = (level + 1) % levels
    return level


def keeps_rule(jobs: LoadJobs, state: LoadState, j: int) -> bool:
    """Return whether the levels of a job are allowed where they are free."""
    total = deep = high = 0
    low = -1
    for k in range(jobs.first[j], jobs.first[j + 1]):
        own = 0
        for level in range(jobs.levels[j]):
            own += (level + 1) * state.iterations[k * jobs.most[0] + level]
        total, deep = total + own, deep + state.iterations[k * jobs.most[0] + jobs.levels[j] - 1]
        low, high = own if low < 0 else min(low, own), max(high, own)
    if total < jobs.least_sum[j] or deep < jobs.least_deep[j]:
        return False
    return jobs.balance[j] < 0 or high - low <= jobs.balance[j]


def change_levels(jobs: LoadJobs, state: LoadState, k: int, target: float) -> bool:
    """Let two workers of a job exchange a level, or give one or two of them others; return whether it is allowed."""
    j = jobs.job[k]
    width, free = jobs.first[j + 1] - jobs.first[j], jobs.rule[j] == 2
    other = jobs.first[j] + randint(state.rng, width)
    if jobs.rule[j] == 0 or (other == k and not free):
        return False
    source, to = drawn_level(jobs, state, k), drawn_level(jobs, state, other)
    if free and randint(state.rng, 2) == 0:
        shifted(jobs, state, k, source, randint(state.rng, jobs.levels[j]), target)
        if other != k:
            shifted(jobs, state, other, to, randint(state.rng, jobs.levels[j]), target)
        return keeps_rule(jobs, state, j)
    if other != k:
        shifted(jobs, state, k, source, to, target)
        shifted(jobs, state, other, to, source, target)
    # Either both have another level, or one of them may not.
    return state.log[0] == 2 and (not free or keeps_rule(jobs, state, j))


def has_room(jobs: LoadJobs, j: int, s: int) -> bool:
    """Return whether the GPUs of a server have room for all levels of a job."""
    at = blocks_on(jobs, j, s)
    return at >= 0 and jobs.block[at + jobs.levels[j] - 1] >= 0


def may_go(jobs: LoadJobs, state: LoadState, j: int, source: int, g: int) -> bool:
    """Return whether a worker of a job may go from one GPU to another."""
    s = jobs.server[g]
    if jobs.still[j] > 1 or holds(jobs, state, j, g):
        return False
    if s == jobs.server[source]:
        return True
    return jobs.still[j] == 0 and jobs.ring[j] >= 0 and has_room(jobs, j, s)


def change_gpu(jobs: LoadJobs, state: LoadState, k: int, target: float) -> bool:
    """Move a worker to another GPU, mostly of its server, in exchange for one there or not; return whether it may."""
    g, j, rows = state.gpu[k], jobs.job[k], len(jobs.levels)
    s = jobs.server[g]
    if randint(state.rng, _APART) == 0:
        s = randint(state.rng, len(jobs.kind))
    other = jobs.gpu_at[s] + randint(state.rng, jobs.gpu_at[s + 1] - jobs.gpu_at[s])
    if not may_go(jobs, state, j, g, other):
        return False
    number = randint(state.rng, state.size[other] + 1)
    if number < state.size[other]:
        q = state.on[other * rows + number]
        if not may_go(jobs, state, jobs.job[q], other, g):
            return False
        moved(jobs, state, q, g, target)
    moved(jobs, state, k, other, target)
    return True


def spread(jobs: LoadJobs, state: LoadState, j: int, s: int, target: float) -> bool:
    """Put the workers of a job that left a server on GPUs of another, each on the emptiest; return whether they fit."""
    if not has_room(jobs, j, s):
        return False
    for k in range(jobs.first[j], jobs.first[j + 1]):
        if state.gpu[k] >= 0:
            continue
        best = -1
        for g in range(jobs.gpu_at[s], jobs.gpu_at[s + 1]):
            if (best < 0 or state.load[g] < state.load[best]) and not holds(jobs, state, j, g):
                best = g
        if best < 0:
            return False
        moved(jobs, state, k, best, target)
    return True


def lift(jobs: LoadJobs, state: LoadState, j: int, s: int, target: float) -> None:
    """Take the workers of a job away from a server."""
    for k in range(jobs.first[j], jobs.first[j + 1]):
        if state.gpu[k] >= 0 and jobs.server[state.gpu[k]] == s:
            moved(jobs, state, k, -1, target)


def change_server(jobs: LoadJobs, state: LoadState, k: int, target: float) -> bool:
    """Move the workers of a job on a server to another, in exchange for a job there or not; return whether they fit."""
    j, source, rows = jobs.job[k], jobs.server[state.gpu[k]], len(jobs.levels)
    if jobs.still[j] > 0:
        return False
    g = randint(state.rng, len(jobs.server))
    s = jobs.server[g]
    if s == source:
        return False
    if state.there[j * len(jobs.kind) + s] > 0:
        return False
    i = -1
    if state.size[g] > 0 and randint(state.rng, 4) > 0:
        i = jobs.job[state.on[g * rows + randint(state.rng, state.size[g])]]
        if jobs.still[i] > 0 or state.there[i * len(jobs.kind) + source] > 0:
            return False
    lift(jobs, state, j, source, target)
    if i >= 0:
        lift(jobs, state, i, s, target)
    if not spread(jobs, state, j, s, target):
        return False
    return i < 0 or spread(jobs, state, i, source, target)


def within_memory(jobs: LoadJobs, state: LoadState) -> bool:
    """Return whether memory has room for all workers on the GPUs that a step has changed."""
    for n in range(state.log[0]):
        g, total, largest = state.gpu[state.log[4 * n + 1]], 0, 0
        for m in range(state.size[g]):
            k = state.on[g * len(jobs.levels) + m]
            j = jobs.job[k]
            total += jobs.state[j]
            for level in range(jobs.levels[j]):
                if state.iterations[k * jobs.most[0] + level] > 0:
                    largest = max(largest, jobs.activation[j * jobs.most[0] + level])
        if total + largest > jobs.memory[g]:
            return False
    return True


@kernel
def anneal_loads(
    jobs: LoadJobs,
    state: LoadState,
    first: int,
    steps: int,
    total: int,
    hot: float,
    target: float,
    tight: int,
    scope: int,
    exponentials: Reals,
) -> int:
    """Take some steps of an annealing; return how many were taken.

    `state`: the placement, without loads before the first step; all of it changes. `first, steps, total`: number of the
    first step, how many to take now, and how many there are in all. `hot`: temperature in step 0; it falls to 0 with
    the square of the steps that are left. `target`: load up to which nothing costs anything. `tight`: 1 where memory
    may be too small for what is moved. `scope`: 0 where only levels change, 3 where workers go to other GPUs, 5 where
    jobs go to other servers.
    """
    if first == 0:
        state.cost[0] = 0.0
        for k in range(len(state.gpu)):
            g = state.gpu[k]
            state.gpu[k] = -1
            put(jobs, state, k, g, target)
        state.cost[1] = state.cost[0]
    for step in range(first, first + steps):
        left = 1.0 - step / total
        before = state.cost[0]
        g = randint(state.rng, len(state.load))
        for _ in range(randint(state.rng, 6)):
            h = randint(state.rng, len(state.load))
            if state.load[h] > state.load[g]:
                g = h
        if state.size[g] == 0:
            continue
        k = state.on[g * len(jobs.levels) + randint(state.rng, state.size[g])]
        kind = randint(state.rng, 3 + scope)
        if kind < 3:
            valid = change_levels(jobs, state, k, target)
        elif kind < 6:
            valid = change_gpu(jobs, state, k, target)
        else:
            valid = change_server(jobs, state, k, target)
        if state.log[0] == 0:
            continue
        state.rng[0] = following(state.rng[0])
        bar = hot * left * left * exponentials[state.rng[0] % len(exponentials)]
        if not valid or state.cost[0] > before + bar or (tight > 0 and not within_memory(jobs, state)):
            undo(jobs, state, target)
            continue
        state.log[0] = 0
        if state.cost[0] < state.cost[1]:
            state.cost[1] = state.cost[0]
            for n in range(len(state.gpu)):
                state.best_gpu[n] = state.gpu[n]
            for n in range(len(state.iterations)):
                state.best_iterations[n] = state.iterations[n]
    return steps
