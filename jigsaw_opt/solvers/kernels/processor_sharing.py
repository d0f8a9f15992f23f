"""When jobs end that do iterations at rates, as far as those before them leave GPUs, links and memory."""

from __future__ import annotations

from typing import NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers, Reals, kernel

_LEAST_PACE = 1 / 16
"""Least rate at which a job runs, as a share of its rate alone; below it, the job waits."""
_SHARING_COST = 1.1
"""Factor on the share of a GPU or link that a job takes from those behind it: operations do not fit without gaps."""
_ROOM = 0.01
"""Least free share of a GPU for a job that may be anywhere."""
_SAME = 1.0 + 1e-9
"""Factor within which two rates are the same."""


class SharingTable(NamedTuple):
    """Jobs on GPUs, by number; one job on several sets of GPUs has several numbers.

    `iteration_us, release_us`: time of an iteration when no one is in the way, and when it may begin. `state,
    activation`: bytes on each of its GPUs. `load_at, resource, load_us`: loads of GPUs and links in an iteration: where
    those of a job begin, which, and for how long. `gpu_at, gpu`: its GPUs: where those of a job begin, and which.
    `restart_us`: time that it takes a job to go on, here or elsewhere, once it has stopped; -1 for one that stays where
    it is. `anywhere`: whether it may be on any GPUs of one server of its kind; its loads are those of its GPUs then,
    and no others. `option_at, option`: numbers of the placements that it may be on: where those of a job begin, and
    which. `memory`: bytes by GPU. GPUs have the numbers of their resources. `server_at, kind`: the first GPU of each
    server, and a number that alike servers have in common.
    """

    iteration_us: Reals
    release_us: Reals
    state: Numbers
    activation: Numbers
    load_at: Numbers
    resource: Numbers
    load_us: Reals
    gpu_at: Numbers
    gpu: Numbers
    restart_us: Reals
    anywhere: Numbers
    option_at: Numbers
    option: Numbers
    memory: Numbers
    server_at: Numbers
    kind: Numbers


class SharingState(NamedTuple):
    """Jobs under way, by place in the order; all of it changes.

    `remaining, rate, end_us`: iterations that are left, those a microsecond now, and when the last one ended. `begun`:
    whether a job has begun and has not ended. `free`: share of each GPU and link that is left. `inside, held, largest`:
    by GPU, the number of jobs that have begun, their states and the largest of their activations, in bytes. `tight`: by
    GPU, whether memory does not hold all jobs of the order; last, whether that is so of any. `ready_us`: when a job may
    begin, or go on after it has stopped. `on`: number of the placement that a job which may move has now, -1 for none.
    `place_at, place`: the GPUs of such a job: where those of a job begin, and which.
    """

    remaining: Reals
    rate: Reals
    end_us: Reals
    begun: Numbers
    free: Reals
    inside: Numbers
    held: Numbers
    largest: Numbers
    tight: Numbers
    ready_us: Reals
    on: Numbers
    place_at: Numbers
    place: Numbers
    trial: Numbers


def _hold(table: SharingTable, state: SharingState, k: int) -> None:
    for e in range(table.gpu_at[k], table.gpu_at[k + 1]):
        g = table.gpu[e]
        state.inside[g] += 1
        state.held[g] += table.state[k]
        state.largest[g] = max(state.largest[g], table.activation[k])


def _let_go(state: SharingState) -> None:
    for g in range(len(state.inside)):
        state.inside[g], state.held[g], state.largest[g] = 0, 0, 0


def _admitted(table: SharingTable, state: SharingState, k: int) -> bool:
    """Return whether a job fits with its deepest levels beside those that have begun; True where it is alone."""
    for e in range(table.gpu_at[k], table.gpu_at[k + 1]):
        g = table.gpu[e]
        need = state.held[g] + table.state[k] + max(state.largest[g], table.activation[k])
        if state.tight[g] and state.inside[g] and need > table.memory[g]:
            return False
    return True


def find_tight(table: SharingTable, state: SharingState, order: Numbers) -> None:
    """Mark the GPUs whose memory does not hold all jobs of an order."""
    _let_go(state)
    moving = 0
    for p in range(len(order)):
        _hold(table, state, order[p])
        moving += 1 if table.restart_us[order[p]] >= 0.0 else 0
    last = len(state.inside)
    state.tight[last] = 0
    for g in range(last):
        # A job alone fits always: jobs that do not were refused before. One that moves may come to any GPU.
        over = state.inside[g] > 1 and state.held[g] + state.largest[g] > table.memory[g]
        state.tight[g] = 1 if over or moving > 0 else 0
        state.tight[last] += state.tight[g]


def _has_room(table: SharingTable, state: SharingState, k: int, g: int) -> bool:
    """Return whether a GPU has the memory for a job beside those that are there; True where it is alone."""
    need = state.held[g] + table.state[k] + max(state.largest[g], table.activation[k])
    return state.inside[g] == 0 or need <= table.memory[g]


def _rate_on(table: SharingTable, state: SharingState, n: int) -> float:
    """Return the rate of a placement on the GPUs that are tried; 0 where memory does not hold it."""
    rate = 1.0 / table.iteration_us[n]
    for e in range(table.gpu_at[n + 1] - table.gpu_at[n]):
        if not _has_room(table, state, n, state.trial[e]):
            return 0.0
    for e in range(table.load_at[n], table.load_at[n + 1]):
        resource = state.trial[e - table.load_at[n]] if table.anywhere[n] else table.resource[e]
        rate = min(rate, state.free[resource] / table.load_us[e])
    return rate


def _try_server(table: SharingTable, state: SharingState, n: int, s: int) -> float:
    """Try the GPUs of a server, for each worker the fullest that keeps its pace, else the emptiest; return the rate."""
    at, width = table.load_at[n], table.gpu_at[n + 1] - table.gpu_at[n]
    found = 0
    for g in range(table.server_at[s], table.server_at[s + 1]):
        found += 1 if state.free[g] > _ROOM and _has_room(table, state, n, g) else 0
    if found < width:
        return 0.0
    for e in range(width):
        # Best fit: the fullest GPU that is enough leaves the emptier ones to wider or faster jobs.
        need, best = table.load_us[at + e] / table.iteration_us[n] / _SAME, -1
        for g in range(table.server_at[s], table.server_at[s + 1]):
            taken = state.free[g] <= _ROOM or not _has_room(table, state, n, g)
            for other in range(e):
                taken = taken or state.trial[other] == g
            if taken:
                continue
            if best < 0:
                best = g
            elif state.free[g] >= need:
                best = g if state.free[best] < need or state.free[g] < state.free[best] else best
            elif state.free[g] > state.free[best]:
                best = g
        state.trial[e] = best
    return _rate_on(table, state, n)


def _settle(table: SharingTable, state: SharingState, p: int, n: int, rate: float) -> float:
    """Put a job on the GPUs that were tried, and return its rate."""
    state.on[p] = n
    for e in range(table.gpu_at[n + 1] - table.gpu_at[n]):
        state.place[state.place_at[p] + e] = state.trial[e]
    return rate


def _emptiness(table: SharingTable, state: SharingState, s: int) -> float:
    free = 0.0
    for g in range(table.server_at[s], table.server_at[s + 1]):
        free += max(0.0, state.free[g])
    return free


def _place(table: SharingTable, state: SharingState, p: int, k: int, now_us: float) -> float:
    """Let a job that may move stay, or go where it is fastest, or stop; return its rate."""
    full, here = 1.0 / table.iteration_us[k], 0.0
    least = full * _LEAST_PACE
    if state.on[p] >= 0:
        for e in range(table.gpu_at[k + 1] - table.gpu_at[k]):
            state.trial[e] = state.place[state.place_at[p] + e]
        here = _rate_on(table, state, state.on[p])
        # Where a restart costs time, a job that runs at all stays: this model does not weigh the loss against the gain.
        if here * _SAME >= full or (table.restart_us[k] > 0.0 and here >= least):
            return here
    elif state.ready_us[p] > now_us:
        return 0.0
    stays, best, emptiest = here >= least, here if here >= least else 0.0, 0.0
    if table.restart_us[k] <= 0.0 or state.on[p] < 0:
        for e in range(table.option_at[k], table.option_at[k + 1]):
            n = table.option[e]
            if not table.anywhere[n]:
                for i in range(table.gpu_at[n + 1] - table.gpu_at[n]):
                    state.trial[i] = table.gpu[table.gpu_at[n] + i]
                rate = _rate_on(table, state, n)
                if rate >= least and rate > best * _SAME:
                    best, emptiest, stays = _settle(table, state, p, n, rate), 0.0, False
                continue
            for s in range(len(table.kind)):
                if table.kind[s] == table.anywhere[n]:
                    rate = _try_server(table, state, n, s)
                    if rate < least or rate * _SAME < best or (stays and rate <= best * _SAME):
                        continue
                    empty = _emptiness(table, state, s)
                    if rate > best * _SAME or empty < emptiest:
                        best, emptiest, stays = _settle(table, state, p, n, rate), empty, False
    if best <= 0.0 and state.on[p] >= 0:
        state.on[p] = -1
        state.ready_us[p] = now_us + table.restart_us[k]
    return best


def _take(table: SharingTable, state: SharingState, p: int, n: int, rate: float) -> int:
    """Take GPUs, links and memory for a job that may move; return how many GPUs this leaves without room."""
    filled = 0
    for e in range(table.gpu_at[n + 1] - table.gpu_at[n]):
        g = state.place[state.place_at[p] + e]
        state.inside[g] += 1
        state.held[g] += table.state[n]
        state.largest[g] = max(state.largest[g], table.activation[n])
    for e in range(table.load_at[n], table.load_at[n + 1]):
        at = state.place_at[p] + e - table.load_at[n]
        resource = state.place[at] if table.anywhere[n] else table.resource[e]
        before = state.free[resource]
        state.free[resource] -= _SHARING_COST * rate * table.load_us[e]
        filled += 1 if resource < len(state.inside) and before > _ROOM >= state.free[resource] else 0
    return filled


def set_rates(table: SharingTable, state: SharingState, order: Numbers, now_us: float) -> None:
    """Compute the current rate of each job, in the order of priority; it is 0 for jobs that wait.

    `state`: iterations that remain are given; receives `rate`, and the placements of jobs that may move.
    """
    for r in range(len(state.free)):
        state.free[r] = 1.0
    tight = state.tight[len(state.inside)] > 0
    if tight:
        _let_go(state)
        for p in range(len(order)):
            if state.begun[p]:
                _hold(table, state, order[p])
    # GPUs with room left: a job that asks for more of them need not look.
    roomy = len(state.inside)
    for p in range(len(order)):
        k = order[p]
        state.rate[p] = 0.0
        if state.remaining[p] <= 0.0:
            continue
        if table.restart_us[k] >= 0.0:
            if state.on[p] < 0 and table.gpu_at[k + 1] - table.gpu_at[k] > roomy:
                continue
            state.rate[p] = _place(table, state, p, k, now_us)
            if state.rate[p] > 0.0:
                roomy -= _take(table, state, p, state.on[p], state.rate[p])
            continue
        if state.ready_us[p] > now_us:
            continue
        rate = 1.0 / table.iteration_us[k]
        least = rate * _LEAST_PACE
        for e in range(table.load_at[k], table.load_at[k + 1]):
            rate = min(rate, state.free[table.resource[e]] / table.load_us[e])
        if rate < least:
            continue
        if tight and not state.begun[p]:
            if not _admitted(table, state, k):
                continue
            _hold(table, state, k)
        state.rate[p] = rate
        for e in range(table.load_at[k], table.load_at[k + 1]):
            state.free[table.resource[e]] -= _SHARING_COST * rate * table.load_us[e]


@kernel
def share_processors(table: SharingTable, state: SharingState, order: Numbers) -> int:
    """Compute when each job ends.

    `state`: the iterations that remain are given, none of them 0.
    """
    find_tight(table, state, order)
    now_us, left, changes = 0.0, len(order), 0
    for p in range(len(order)):
        state.begun[p] = 0
    while left > 0:
        set_rates(table, state, order, now_us)
        changes += 1
        # Rates stay as they are until a job ends, or becomes ready.
        step_us = -1.0
        for p in range(len(order)):
            until_us = -1.0
            if state.rate[p] > 0.0:
                until_us = state.remaining[p] / state.rate[p]
            elif state.ready_us[p] > now_us:
                until_us = state.ready_us[p] - now_us
            if until_us >= 0.0 and (step_us < 0.0 or until_us < step_us):
                step_us = until_us
        for p in range(len(order)):
            if state.rate[p] <= 0.0:
                continue
            lasts_us = state.remaining[p] / state.rate[p]
            state.remaining[p] -= state.rate[p] * step_us
            state.begun[p] = 1 if table.restart_us[order[p]] < 0.0 else 0
            # Jobs whose ends differ by rounding alone end together.
            if lasts_us <= step_us * (1.0 + 1e-9):
                state.end_us[p], state.remaining[p], state.begun[p] = now_us + step_us, 0.0, 0
                left -= 1
        now_us += step_us
    return changes
