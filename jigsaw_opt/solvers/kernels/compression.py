"""The least period of a given order, on flat lists of integers or arrays (`lists`).

Python runs this function, or numba has compiled it (`engines.compiled`).
"""

from __future__ import annotations

from jigsaw_opt.solvers.engines.compiled import Numbers, kernel
from jigsaw_opt.solvers.kernels.list_schedule_state import Filled, Places, Shape

__all__ = ["compress"]

_RAISES = 12
"""Sweeps after which a trial period is given up."""


@kernel(lists=True)
def compress(
    shape: Shape,
    places: Places,
    traced: int,
    sweeps: int,
    gpus: int,
    links: int,
    filled: Filled,
    trial: Filled,
    halt: Numbers,
) -> int:
    """The least period of a given order of pieces, by repeated sweeps over one period.

    With the order on every GPU and link fixed, a cyclic timetable is a solution of difference constraints: one period
    is an acyclic sweep in the order of the trace, and only the *wraps* reach into the next period, one for each GPU,
    link and job: its last piece ends no later than the period after its first one starts. A sweep from any earliest
    starts (the *heads*) gives a timetable, whose period is its longest wrap. For a trial period the heads are raised
    until all wraps keep it (Bellman and Ford's method on max-plus constraints); the trial period is bisected.

    Parameters
    ----------
    shape, places
        The jobs, placed.
    traced
        Length of the trace.
    sweeps
        Most sweeps to spend; at least one.
    gpus, links
        How many there are.
    filled
        A schedule from `list_schedule`; levels and trace stay, starts and ends become those of the best sweep.
    trial
        Room for another schedule.
    halt
        One number; where another thread makes it other than 0, no further sweep is made.

    Returns
    -------
    int
        The period in microseconds; -1 where not even one sweep was made.
    """
    slots, depth, iterations, buckets, release, slot_at, table_at, row_at, exchange_at, link_at = shape
    gpu, _, _, table, _, _, exchange, link, link_count = places
    level, best_start, best_begun, trace_job, trace_slot, job_begin, best_end = filled
    _, start, begun, _, _, _, end = trial
    jobs = len(slots)
    size = gpus + links + jobs
    transfers = exchange_at[jobs - 1] + buckets[jobs - 1] * iterations[jobs - 1]
    blocks = row_at[jobs - 1] + slots[jobs - 1] * iterations[jobs - 1]
    # No order does better than the work on the busiest GPU or link, or the longest job without contention.
    load, low = [0] * (gpus + links), 1
    for j in range(jobs):
        length = 0
        for i in range(iterations[j]):
            at, bucket, moment = row_at[j] + i * slots[j], exchange_at[j] + i * buckets[j], 0
            for s in range(slots[j]):
                duration = table[table_at[j] + s * depth[j] + level[at + s] - 1]
                load[gpu[slot_at[j] + s]] += duration
                moment = max(moment, duration)
            sent = 0
            for b in range(buckets[j]):
                for s in range(slots[j]):
                    if level[at + s] > b:
                        sent = max(sent, table[table_at[j] + s * depth[j] + b])
                sent += exchange[bucket + b]
                for n in range(link_at[j], link_at[j] + link_count[j]):
                    load[gpus + link[n]] += exchange[bucket + b]
            length += max(moment, sent)
        low = max(low, length)
    for work in load:
        low = max(low, work)
    target, least, raises = low, -1, -1
    heads, free, begin = [0] * size, [0] * size, [0] * size
    best_free, best_begin = [0] * size, [0] * size
    opened, unstarted, sent_of = [0] * jobs, [0] * jobs, [0] * jobs
    exchanged, ready = [0] * jobs, [0] * transfers
    while True:
        # One sweep: every piece as early as order, precedence and heads permit.
        for n in range(size):
            free[n], begin[n] = heads[n], -1
        for j in range(jobs):
            opened[j] = unstarted[j] = 0
            end[j] = release[j]
        for b in range(transfers):
            ready[b] = 0
        for n in range(traced):
            if halt[0] != 0:
                return least
            j, s = trace_job[n], trace_slot[n]
            if s < 0:
                b = exchange_at[j] + (opened[j] - 1) * buckets[j] + sent_of[j]
                moment = max(exchanged[j], ready[b])
                for k in range(link_at[j], link_at[j] + link_count[j]):
                    moment = max(moment, free[gpus + link[k]])
                begun[b] = moment
                exchanged[j] = moment + exchange[b]
                sent_of[j] += 1
                end[j] = max(end[j], exchanged[j])
                for k in range(link_at[j], link_at[j] + link_count[j]):
                    free[gpus + link[k]] = exchanged[j]
                    if begin[gpus + link[k]] < 0:
                        begin[gpus + link[k]] = moment
                continue
            if unstarted[j] == 0:
                heads[gpus + links + j] = max(heads[gpus + links + j], end[j])
                opened[j] += 1
                unstarted[j], exchanged[j], sent_of[j] = slots[j], 0, 0
            g = gpu[slot_at[j] + s]
            block = row_at[j] + (opened[j] - 1) * slots[j] + s
            durations = table_at[j] + s * depth[j]
            bucket = exchange_at[j] + (opened[j] - 1) * buckets[j]
            moment = max(free[g], heads[gpus + links + j])
            start[block] = moment
            if begin[g] < 0:
                begin[g] = moment
            for b in range(min(level[block], buckets[j])):
                ready[bucket + b] = max(ready[bucket + b], moment + table[durations + b])
            free[g] = moment + table[durations + level[block] - 1]
            end[j] = max(end[j], free[g])
            unstarted[j] -= 1
            if unstarted[j] == 0 and link_count[j] == 0:
                for b in range(bucket, bucket + buckets[j]):
                    begun[b] = max(exchanged[j], ready[b])
                    exchanged[j] = begun[b] + exchange[b]
                end[j] = max(end[j], exchanged[j])
        for j in range(jobs):
            moment = start[row_at[j]]
            for s in range(1, slots[j]):
                moment = min(moment, start[row_at[j] + s])
            begin[gpus + links + j], free[gpus + links + j] = moment, end[j]
        period = 1
        for n in range(size):
            if begin[n] < 0:
                begin[n] = free[n] = 0
            period = max(period, free[n] - begin[n])
        sweeps -= 1
        raises += 1
        if least < 0 or period < least:
            least = period
            for n in range(size):
                best_free[n], best_begin[n] = free[n], begin[n]
            for n in range(blocks):
                best_start[n] = start[n]
            for n in range(transfers):
                best_begun[n] = begun[n]
            for j in range(jobs):
                job_begin[j], best_end[j] = begin[gpus + links + j], end[j]
        if sweeps <= 0 or low >= least:
            return least
        if least <= target or raises >= _RAISES:
            # A new trial period, from the best sweep.
            if least > target:
                low = target + 1
                if low >= least:
                    return least
            target = (low + least) // 2
            raises = 0
            for n in range(size):
                heads[n] = max(best_begin[n], best_free[n] - target)
        else:
            for n in range(size):
                heads[n] = max(begin[n], free[n] - target)
