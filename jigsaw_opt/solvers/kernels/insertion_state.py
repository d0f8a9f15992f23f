"""State of the insertion of jobs: what they ask for, server windows, and the busy times of GPUs and links in chains."""

from __future__ import annotations

from typing import NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers


class InsertionInput(NamedTuple):
    """Jobs, server windows and GPUs. Jobs of one *class* ask for the same, with the same levels.

    `job_class, release, weight`: by job; weights are left out where the makespan counts. `operation_at, slot_at`: by
    job: its first operation and its first slot. Operations are numbered as in `Graph`. `fixed`: by class: 1 where each
    slot has its own levels, else 0. `level_at, asked`: by class, then by iteration and slot: levels, descending unless
    `fixed`. `need_at, need`: by class, then descending: what the deepest levels of its slots are at most, from the
    deepest slot on. `activation_at, activation`: by class, then by level: bytes of activations. `time_at, time`: by
    class, then by GPU type and level: duration of a block, -1 on a type that may not run it. `least_us`: by class and
    channel, as ``least_us[k * channels[0] + h]``: no iteration ends earlier after its deepest block begins. `window_at,
    window, reserve_at`: windows of class k are ``window[window_at[k]:window_at[k + 1]]``; those from ``reserve_at[k]``
    on are tried where memory admits none before them. `exchange_at, exchange, channels`: transfer b of class k with c
    contributors over channel h, of so many, takes ``exchange[exchange_at[k * channels[0] + h] + b * slots + c - 1]``.
    `channel, link_at, link`: by window: rate and latency, numbered; its links, numbered behind the GPUs. `member_at,
    server, fewest, most`: by window: its servers, and by each of these the fewest and most workers there. `gpu_at`: by
    server: its first GPU; one number more than servers.
    """

    job_class: Numbers
    release: Numbers
    weight: Numbers
    operation_at: Numbers
    slot_at: Numbers
    slots: Numbers
    buckets: Numbers
    iterations: Numbers
    depth: Numbers
    state_bytes: Numbers
    fixed: Numbers
    level_at: Numbers
    asked: Numbers
    need_at: Numbers
    need: Numbers
    activation_at: Numbers
    activation: Numbers
    time_at: Numbers
    time: Numbers
    least_us: Numbers
    window_at: Numbers
    window: Numbers
    reserve_at: Numbers
    exchange_at: Numbers
    exchange: Numbers
    channels: Numbers
    channel: Numbers
    link_at: Numbers
    link: Numbers
    member_at: Numbers
    server: Numbers
    fewest: Numbers
    most: Numbers
    gpu_at: Numbers
    gpu_type: Numbers
    memory: Numbers


class InsertionState(NamedTuple):
    """Inserted jobs, and buffers. A single number is stored as a list of length 1, so that kernels can change it.

    `begin, end, after, before`: by busy time: when it begins and ends, and its neighbours in the chain of its GPU or
    link. The first entries are sentinels, one per GPU and link: each chain is a ring through its sentinel, whose `end`
    is 0 and whose `begin` is `beyond`. `busy`: how many busy times there are. `inserted, at, of_class, mark, partial`:
    how many jobs are in; by position the job, its class, how many busy times there were before it, and the objective of
    the jobs up to there. `resident, peak`: by GPU: bytes of states, and most bytes of activations. `gpu, peak_before`:
    by slot of all jobs: its GPU, and the peak there before it came. `beyond`: more than any time and objective.
    `visits`: operations that were tried since this was set to 0. `halt`: where another thread makes it other than 0,
    insertion is given up. `free, cap`: by GPU, for the next job: when it would end the deepest block, and the deepest
    level that memory admits. `open`: by server, for the next job: when a GPU would begin the deepest block, `beyond`
    where none admits it. `taken`: by GPU: the last choice that took it. `chosen, cursor, finish, rank, link_cursor`: by
    slot of the next job: its GPU, a busy time from which to search, when it would end the deepest block, and the slots
    sorted by that; by link of a window, a busy time from which to search. `trial_level, trial_start`: by operation of
    the next job. `best_gpu, best_level, best_start`: the same of the best window so far.
    """

    begin: Numbers
    end: Numbers
    after: Numbers
    before: Numbers
    busy: Numbers
    inserted: Numbers
    at: Numbers
    of_class: Numbers
    mark: Numbers
    partial: Numbers
    resident: Numbers
    peak: Numbers
    gpu: Numbers
    peak_before: Numbers
    level: Numbers
    start: Numbers
    job_end: Numbers
    beyond: Numbers
    visits: Numbers
    halt: Numbers
    free: Numbers
    cap: Numbers
    open: Numbers
    taken: Numbers
    choice: Numbers
    chosen: Numbers
    cursor: Numbers
    finish: Numbers
    rank: Numbers
    link_cursor: Numbers
    trial_level: Numbers
    trial_start: Numbers
    best_gpu: Numbers
    best_level: Numbers
    best_start: Numbers


def gap(state: InsertionState, place: int, moment: int, duration: int) -> tuple[int, int]:
    """Return the first free interval of a chain that is long enough and starts no earlier than a given time.

    Start of the interval, in microseconds, and the busy time before it.

    `place`: number of a busy time of the chain that ends no later than the given time. `duration`: length that is
    needed, in microseconds.
    """
    begin, end, after = state.begin, state.end, state.after
    following = after[place]
    # The chain ends at its sentinel, which begins beyond every time, so the loop ends there.
    while begin[following] < moment + duration:
        moment = max(moment, end[following])
        place, following = following, after[following]
    return moment, place


def passed(state: InsertionState, place: int, moment: int) -> int:
    """Return the last busy time of a chain that ends no later than a given time.

    `place`: number of a busy time of the chain that ends no later than the given time.
    """
    begin, end, after = state.begin, state.end, state.after
    following = after[place]
    while begin[following] < moment and end[following] <= moment:
        place, following = following, after[following]
    return place


def occupy(state: InsertionState, place: int, start: int, stop: int) -> int:
    """Insert a busy time into a chain, and return its number.

    `place`: number of a busy time of the chain that ends no later than the given time. `start, stop`: the interval, in
    microseconds; it must be free.
    """
    begin, after = state.begin, state.after
    while begin[after[place]] < start:
        place = after[place]
    new = state.busy[0]
    state.busy[0] = new + 1
    begin[new], state.end[new] = start, stop
    after[new], state.before[new] = after[place], place
    state.before[after[place]] = new
    after[place] = new
    return new
