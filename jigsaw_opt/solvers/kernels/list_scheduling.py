"""List scheduling, on flat lists of integers or arrays (`lists`).

Python runs this function, or numba has compiled it (`engines.compiled`).
"""

from __future__ import annotations

from heapq import heappop, heappush

from jigsaw_opt.solvers.engines.compiled import Numbers, Reals, kernel
from jigsaw_opt.solvers.kernels.list_schedule_state import Filled, Places, Shape

__all__ = ["list_schedule"]

_BARRIER, _GPU, _READY, _LINK = 0, 1, 2, 3


def _push(heap: Numbers, first: int, count: int, slot: int, job_of: Numbers, urgency: Reals) -> int:
    """Take a slot into the heap of those that wait, which begins at `first` and has `count` of them.

    At its top is the slot whose job is most urgent, of several the one with the smallest number.
    """
    here, mine = count, urgency[job_of[slot]]
    while here > 0:
        up = (here - 1) // 2
        other = heap[first + up]
        if mine > urgency[job_of[other]] or (mine == urgency[job_of[other]] and slot > other):
            break
        heap[first + here] = other
        here = up
    heap[first + here] = slot
    return here


def _pop(heap: Numbers, first: int, count: int, job_of: Numbers, urgency: Reals) -> int:
    """Take the top out of a heap as `_push` fills it."""
    top, last = heap[first], heap[first + count - 1]
    here, mine = 0, urgency[job_of[last]]
    while 2 * here + 1 < count - 1:
        down = 2 * here + 1
        other = heap[first + down]
        if down + 1 < count - 1:
            right = heap[first + down + 1]
            theirs, others = urgency[job_of[right]], urgency[job_of[other]]
            if theirs < others or (theirs == others and right < other):
                down, other = down + 1, right
        if mine < urgency[job_of[other]] or (mine == urgency[job_of[other]] and last < other):
            break
        heap[first + here] = other
        here = down
    heap[first + here] = last
    return top


@kernel(lists=True)
def list_schedule(
    shape: Shape, places: Places, rate: Reals, hold: Numbers, gpus: int, links: int, filled: Filled, halt: Numbers
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
    halt
        One number; where another thread makes it other than 0, the schedule is given up.

    Returns
    -------
    int
        Length of the trace; -1 where the schedule was given up.
    """
    slots, depth, iterations, buckets, release, slot_at, table_at, row_at, exchange_at, link_at = shape
    gpu, slot_us, cap, table, row, fixed, exchange, link, link_count = places
    level, start, begun, trace_job, trace_slot, begin, end = filled
    jobs = len(slots)
    workers = slot_at[jobs - 1] + slots[jobs - 1]
    gpu_free, link_free = [0] * gpus, [0] * links
    # The slots that wait at a GPU are a heap, `waits[first[g]:first[g] + waiting[g]]`. The skyline of a GPU counts all
    # work to come; blocks replace their mean once they have levels.
    first, waiting, skyline = [0] * (gpus + 1), [0] * gpus, [0] * gpus
    job_of, waits = [0] * workers, [0] * workers
    for j in range(jobs):
        for s in range(slot_at[j], slot_at[j] + slots[j]):
            job_of[s] = j
            first[gpu[s] + 1] += 1
            skyline[gpu[s]] += slot_us[s] * iterations[j]
    for g in range(gpus):
        first[g + 1] += first[g]
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
        if halt[0] != 0:
            return -1
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
                    _push(waits, first[g], waiting[g], base + s, job_of, urgency)
                    waiting[g] += 1
                    touched.append(g)
        for g in touched:
            if gpu_free[g] > now or waiting[g] == 0:
                continue
            best = _pop(waits, first[g], waiting[g], job_of, urgency)
            waiting[g] -= 1
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
