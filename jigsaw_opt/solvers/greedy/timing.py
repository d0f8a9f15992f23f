"""List scheduling, and the least period of a given order, on flat lists of integers or arrays (`flat`).

Python runs these functions, or numba has compiled them (`engines.compiled`).

`Shape` and `Places` say what the tuples hold; a piece of a list that belongs to a job begins at the job's offset.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers, Reals, compilable

__all__ = ["Filled", "Places", "Shape", "compress", "list_schedule"]

_BARRIER, _GPU, _READY, _LINK = 0, 1, 2, 3
_RAISES = 12
"""Sweeps after which a trial period is given up."""


class Shape(NamedTuple):
    """What does not depend on the placement, by job.

    Parameters
    ----------
    slots, depth, iterations, buckets, release
        Numbers of slots, levels, iterations and transfers, and the release in microseconds.
    slot_at, table_at, row_at, exchange_at, link_at
        Offsets: into what is given by slot; by slot and level; by iteration and slot; by iteration and bucket;
        into the links.
    """

    slots: Numbers
    depth: Numbers
    iterations: Numbers
    buckets: Numbers
    release: Numbers
    slot_at: Numbers
    table_at: Numbers
    row_at: Numbers
    exchange_at: Numbers
    link_at: Numbers


class Places(NamedTuple):
    """Placed jobs.

    Parameters
    ----------
    gpu, slot_us, cap
        By slot: its GPU, its mean GPU time of an iteration, its deepest level under memory.
    table
        By slot and level: duration of a block.
    row
        By iteration and slot: levels, in the order of the slots where the job is `fixed`, else descending.
    fixed
        By job: 1 or 0.
    exchange
        By iteration and bucket: duration of the transfer.
    link, links
        Links of the jobs, and how many each has.
    """

    gpu: Numbers
    slot_us: Numbers
    cap: Numbers
    table: Numbers
    row: Numbers
    fixed: Numbers
    exchange: Numbers
    link: Numbers
    links: Numbers


class Filled(NamedTuple):
    """A schedule.

    Parameters
    ----------
    level, start
        By iteration and slot: level and start of the block.
    begun
        By iteration and bucket: start of the transfer.
    trace_job, trace_slot
        The blocks, and the transfers over links (slot -1), in the order in which they start.
    begin, end
        By job: its first start, and its last barrier.
    """

    level: Numbers
    start: Numbers
    begun: Numbers
    trace_job: Numbers
    trace_slot: Numbers
    begin: Numbers
    end: Numbers


def list_schedule(
    shape: Shape, places: Places, rate: Reals, hold: Numbers, gpus: int, links: int, filled: Filled
) -> int:
    """Simulate a cluster in which no GPU and no link idles while a piece waits for it.

    Events are barriers, GPUs and links that become free, and buckets that become ready. At each moment all its events
    are taken first; then every GPU and link that they touch takes the waiting piece of the best priority. Levels are
    handed out when an iteration opens, the deepest block to the GPU with the lowest skyline.

    Parameters
    ----------
    shape, places
        The jobs, placed.
    rate
        By job; times the iterations left it is the priority of its pieces, of which the smallest goes first.
    hold
        By job: no piece starts earlier.
    gpus, links
        How many there are.
    filled
        Receives the schedule.

    Returns
    -------
    int
        Length of the trace.
    """
    slots, depth, iterations, buckets, release, slot_at, table_at, row_at, exchange_at, link_at = shape
    gpu, slot_us, cap, table, row, fixed, exchange, link, link_count = places
    level, start, begun, trace_job, trace_slot, begin, end = filled
    jobs = len(slots)
    workers = slot_at[jobs - 1] + slots[jobs - 1]
    gpu_free, link_free = [0] * gpus, [0] * links
    # Slots of all jobs by GPU: `inside[first[g]:first[g + 1]]`. The skyline of a GPU counts all work to come; blocks
    # replace their mean once they have levels.
    first, skyline = [0] * (gpus + 1), [0] * gpus
    job_of, waits, inside = [0] * workers, [False] * workers, [0] * workers
    for j in range(jobs):
        for s in range(slot_at[j], slot_at[j] + slots[j]):
            job_of[s] = j
            first[gpu[s] + 1] += 1
            skyline[gpu[s]] += slot_us[s] * iterations[j]
    for g in range(gpus):
        first[g + 1] += first[g]
    filling = first[:gpus]
    for s in range(workers):
        inside[filling[gpu[s]]] = s
        filling[gpu[s]] += 1
    # Jobs that wait at a link: a chain from `queue[link]` along `behind`.
    queue, behind = [-1] * links, [-1] * jobs
    opened, unstarted, sent, urgency = [0] * jobs, [0] * jobs, [0] * jobs, [0.0] * jobs
    ready = [0] * (exchange_at[jobs - 1] + buckets[jobs - 1] * iterations[jobs - 1])
    order = [0] * max(slots)
    events = [(hold[0], _BARRIER, 0)]
    for j in range(jobs):
        end[j] = release[j]
        if j > 0:
            heappush(events, (hold[j], _BARRIER, j))
    touched, pending, freed = [0], [0], [0]
    traced = 0
    while len(events) > 0:
        now = events[0][0]
        touched.clear()
        pending.clear()
        freed.clear()
        while len(events) > 0 and events[0][0] == now:
            _, kind, which = heappop(events)
            if kind == _GPU:
                touched.append(which)
            elif kind == _READY:
                pending.append(which)
            elif kind == _LINK:
                freed.append(which)
            else:
                # The job's next iteration opens: its levels are chosen and its blocks wait.
                j, count, base = which, slots[which], slot_at[which]
                at = row_at[j] + opened[j] * count
                urgency[j] = (iterations[j] - opened[j]) * rate[j]
                opened[j] += 1
                if fixed[j] or row[at] == row[at + count - 1]:
                    for s in range(count):
                        level[at + s] = row[at + s]
                else:
                    for s in range(count):
                        here = s
                        while here > 0 and skyline[gpu[base + order[here - 1]]] > skyline[gpu[base + s]]:
                            order[here] = order[here - 1]
                            here -= 1
                        order[here] = s
                    for n in range(count):
                        low = 0
                        while cap[base + order[low]] < row[at + n]:
                            low += 1
                        level[at + order[low]] = row[at + n]
                        for k in range(low, count - 1 - n):
                            order[k] = order[k + 1]
                unstarted[j], sent[j] = count, 0
                if opened[j] == 1:
                    begin[j] = -1
                for s in range(count):
                    g = gpu[base + s]
                    skyline[g] += table[table_at[j] + s * depth[j] + level[at + s] - 1] - slot_us[base + s]
                    waits[base + s] = True
                    touched.append(g)
        for g in touched:
            if gpu_free[g] > now:
                continue
            best = -1
            for n in range(first[g], first[g + 1]):
                s = inside[n]
                if waits[s] and (best < 0 or urgency[job_of[s]] < urgency[job_of[best]]):
                    best = s
            if best < 0:
                continue
            waits[best] = False
            j = job_of[best]
            s = best - slot_at[j]
            block = row_at[j] + (opened[j] - 1) * slots[j] + s
            durations = table_at[j] + s * depth[j]
            bucket = exchange_at[j] + (opened[j] - 1) * buckets[j]
            start[block] = now
            if begin[j] < 0:
                begin[j] = now
            trace_job[traced], trace_slot[traced] = j, s
            traced += 1
            for b in range(min(level[block], buckets[j])):
                ready[bucket + b] = max(ready[bucket + b], now + table[durations + b])
            done = now + table[durations + level[block] - 1]
            gpu_free[g] = done
            heappush(events, (done, _GPU, g))
            end[j] = max(end[j], done)
            unstarted[j] -= 1
            if unstarted[j] > 0:
                continue
            if buckets[j] > 0 and link_count[j] > 0:
                heappush(events, (ready[bucket], _READY, j))
                continue
            # No other job shares the way of its transfers: each starts as soon as it may.
            moment = 0
            for b in range(bucket, bucket + buckets[j]):
                begun[b] = max(moment, ready[b])
                moment = begun[b] + exchange[b]
            end[j] = max(end[j], moment)
            if opened[j] < iterations[j]:
                heappush(events, (end[j], _BARRIER, j))
        for k in freed:
            j = queue[k]
            queue[k] = -1
            while j >= 0:
                pending.append(j)
                j = behind[j]
        for n in range(1, len(pending)):
            j, here = pending[n], n
            while here > 0 and (
                urgency[pending[here - 1]] > urgency[j]
                or (urgency[pending[here - 1]] == urgency[j] and pending[here - 1] > j)
            ):
                pending[here] = pending[here - 1]
                here -= 1
            pending[here] = j
        for j in pending:
            # What finds its links free starts; the rest waits at the link that is busy longest.
            busy, moment = -1, now
            for n in range(link_at[j], link_at[j] + link_count[j]):
                if link_free[link[n]] > moment:
                    busy, moment = link[n], link_free[link[n]]
            if busy >= 0:
                if queue[busy] < 0:
                    heappush(events, (moment, _LINK, busy))
                behind[j] = queue[busy]
                queue[busy] = j
                continue
            bucket = exchange_at[j] + (opened[j] - 1) * buckets[j] + sent[j]
            trace_job[traced], trace_slot[traced] = j, -1
            traced += 1
            begun[bucket] = now
            done = now + exchange[bucket]
            end[j] = max(end[j], done)
            for n in range(link_at[j], link_at[j] + link_count[j]):
                link_free[link[n]] = done
            sent[j] += 1
            if sent[j] < buckets[j]:
                heappush(events, (max(done, ready[bucket + 1]), _READY, j))
            elif opened[j] < iterations[j]:
                heappush(events, (end[j], _BARRIER, j))
    return traced


def compress(
    shape: Shape, places: Places, traced: int, sweeps: int, gpus: int, links: int, filled: Filled, trial: Filled
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

    Returns
    -------
    int
        The period in microseconds.
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


def _types(numba: Any) -> tuple[Any, ...]:
    """Types of a number, of an array of numbers, and of `Shape`, `Places` and `Filled`."""
    numbers = numba.int64[::1]
    tuples = (numba.types.NamedUniTuple(numbers, len(kind._fields), kind) for kind in (Shape, Places, Filled))
    return (numba.int64, numbers, *tuples)


def _list_schedule_types(numba: Any) -> Any:
    integer, numbers, shape, places, filled = _types(numba)
    return integer(shape, places, numba.float64[::1], numbers, integer, integer, filled)


def _compress_types(numba: Any) -> Any:
    integer, _, shape, places, filled = _types(numba)
    return integer(shape, places, integer, integer, integer, integer, filled, filled)


compilable(list_schedule, _list_schedule_types)
compilable(compress, _compress_types)
