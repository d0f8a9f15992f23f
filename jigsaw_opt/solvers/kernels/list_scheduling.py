"""List scheduling of placed jobs, on flat numbers.

A cluster is simulated in which no GPU and no link idles while an operation waits for it. The schedule comes with the
operation sequence of its operations, which on the cyclic horizon has a least period (`repeat_list_schedule`).
"""

from __future__ import annotations

from typing import NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers, Reals, kernel
from jigsaw_opt.solvers.kernels.event_heap import pop_event, push_event
from jigsaw_opt.solvers.kernels.period import Period, least_period
from jigsaw_opt.solvers.kernels.sequence import Graph

_BARRIER, _GPU, _READY, _LINK, _NONE = 0, 1, 2, 3, 4


class ListInput(NamedTuple):
    """What list scheduling knows about placed jobs beside their operations.

    `mean_us`: by group of blocks: mean GPU time of an iteration. `fixed`: by job: 1 where each slot has its own levels,
    else 0. `asked`: by block: levels of its iteration, in the order of the slots where the job is `fixed`, else
    descending. `rate`: by job; times the iterations left it is the priority of its operations, of which the smallest
    goes first. `earliest`: by job: no operation starts earlier.
    """

    mean_us: Numbers
    fixed: Numbers
    asked: Numbers
    rate: Reals
    earliest: Numbers


class ListScheduleState(NamedTuple):
    """A schedule, and buffers. A single number is stored as a list of length 1, so that kernels can change it.

    `sequence, scheduled`: the operations in the order in which they start, a barrier behind the last one that it waits
    for, and how many. `level, duration, start`: by operation; durations of transfers are given. The start of a transfer
    that has not started is the time at which its bucket is ready at all blocks that have started. `begin, end`: by job:
    its first start, and its last barrier. `free`: by GPU and link: the end of the last operation that uses it.
    `skyline`: by GPU: all work to come there, in microseconds; blocks count with their mean until they have levels.
    `first, waiting, waits`: the blocks that wait at a GPU are a heap, ``waits[first[g]:first[g] + waiting[g]]``.
    `queue, behind`: jobs that wait at a link: a chain from ``queue[link]`` along `behind`, which ends with -1. `left,
    at, unstarted, sent`: by job: iterations that have not begun; in the current iteration, the first operation, the
    number of blocks that have not started, and the number of transfers that have. `priority`: by job: the priority of
    its operations. `order, pending`: slots of an iteration by skyline; jobs whose transfers are ready. `touched,
    events`: GPUs that the events at a moment touch; and a heap of events. The code of one is its kind, times the number
    of jobs, GPUs and links, plus its job, GPU or link.
    """

    sequence: Numbers
    scheduled: Numbers
    level: Numbers
    duration: Numbers
    start: Numbers
    begin: Numbers
    end: Numbers
    free: Numbers
    skyline: Numbers
    first: Numbers
    waiting: Numbers
    waits: Numbers
    queue: Numbers
    behind: Numbers
    left: Numbers
    at: Numbers
    unstarted: Numbers
    sent: Numbers
    priority: Reals
    order: Numbers
    pending: Numbers
    touched: Numbers
    events: Numbers


def reset(graph: Graph, given: ListInput, state: ListScheduleState) -> None:
    """Make all GPUs and links free and let all iterations wait.

    `state`: the schedule and its queues, which are emptied; skylines become the mean work of each GPU.
    """
    first, skyline = state.first, state.skyline
    for r in range(len(state.free)):
        state.free[r] = state.waiting[r] = skyline[r] = first[r + 1] = 0
        state.queue[r] = -1
    for j in range(len(graph.slots)):
        group = graph.group[graph.begin[j]]
        for g in range(group, group + graph.slots[j]):
            r = graph.use[graph.use_at[g]]
            first[r + 1] += 1
            skyline[r] += given.mean_us[g] * graph.iterations[j]
        state.end[j], state.left[j] = graph.release[j], graph.iterations[j]
    for r in range(len(state.free)):
        # Counts become the places where the heaps begin.
        first[r + 1] += first[r]
    state.scheduled[0] = state.events[0] = 0


def deal_levels(graph: Graph, given: ListInput, state: ListScheduleState, j: int, at: int) -> None:
    """Choose the levels of an iteration: the deepest block goes to the GPU with the lowest skyline that admits it.

    Levels are taken in descending order, so each of them still finds a GPU whose memory admits it.
    """
    level, asked, order, skyline = state.level, given.asked, state.order, state.skyline
    use, use_at, cap, slots = graph.use, graph.use_at, graph.cap, graph.slots[j]
    group = graph.group[at]
    if given.fixed[j] or asked[at] == asked[at + slots - 1]:
        for p in range(at, at + slots):
            level[p] = asked[p]
        return
    for s in range(slots):
        work, k = skyline[use[use_at[group + s]]], s
        while k > 0 and skyline[use[use_at[group + order[k - 1]]]] > work:
            order[k] = order[k - 1]
            k -= 1
        order[k] = s
    for n in range(slots):
        low = 0
        # A GPU that admits a deep level admits all shallower ones, so taking levels in descending order never fails
        # later.
        while cap[group + order[low]] < asked[at + n]:
            low += 1
        level[at + order[low]] = asked[at + n]
        for k in range(low, slots - 1 - n):
            order[k] = order[k + 1]


def open_iteration(graph: Graph, given: ListInput, state: ListScheduleState, j: int) -> int:
    """Put the blocks of a job's next iteration into the queues of their GPUs, and return the first block.

    `state`: the schedule and its queues; levels, durations and the priority of the job change.
    """
    slots, buckets, last = graph.slots[j], graph.buckets[j], graph.last[j]
    use, use_at, table, table_at, job = graph.use, graph.use_at, graph.table, graph.table_at, graph.job
    level, duration, start, skyline, mean_us = state.level, state.duration, state.start, state.skyline, given.mean_us
    waits, first, waiting, priority = state.waits, state.first, state.waiting, state.priority
    # Iterations are numbered in a row, so those that are left are the last ones.
    at = last + 1 - state.left[j] * (slots + buckets + 1)
    deal_levels(graph, given, state, j, at)
    priority[j] = state.left[j] * given.rate[j]
    state.left[j] -= 1
    state.at[j], state.unstarted[j], state.sent[j] = at, slots, 0
    g = graph.group[at]
    for p in range(at, at + slots):
        r = use[use_at[g]]
        duration[p] = table[table_at[g] + level[p] - 1]
        skyline[r] += duration[p] - mean_us[g]
        push(waits, first[r], waiting[r], p, job, priority)
        waiting[r] += 1
        g += 1
    for p in range(at + slots, at + slots + buckets):
        start[p] = 0
    return at


def push(heap: Numbers, first: int, count: int, p: int, job: Numbers, priority: Reals) -> None:
    """Insert a block into the binary heap of those that wait at a GPU.

    The block whose job has the smallest priority is at its top; at equal priorities it is the smallest number.

    `priority`: by job; the smallest goes first.
    """
    here, mine = count, priority[job[p]]
    while here > 0:
        up = (here - 1) // 2
        other = heap[first + up]
        if mine > priority[job[other]] or (mine == priority[job[other]] and p > other):
            break
        heap[first + here] = other
        here = up
    heap[first + here] = p


def pop(heap: Numbers, first: int, count: int, job: Numbers, priority: Reals) -> int:
    """Remove the top of a heap as `push` fills it, and return it.

    `count`: number of blocks in it before, at least 1. `priority`: by job; the smallest goes first.
    """
    top, last = heap[first], heap[first + count - 1]
    here, mine = 0, priority[job[last]]
    while 2 * here + 1 < count - 1:
        down = 2 * here + 1
        other = heap[first + down]
        if down + 1 < count - 1:
            right = heap[first + down + 1]
            theirs, others = priority[job[right]], priority[job[other]]
            if theirs < others or (theirs == others and right < other):
                down, other = down + 1, right
        if mine < priority[job[other]] or (mine == priority[job[other]] and last < other):
            break
        heap[first + here] = other
        here = down
    heap[first + here] = last
    return top


def finish_iteration(graph: Graph, state: ListScheduleState, j: int) -> tuple[int, int]:
    """Schedule the barrier of an iteration whose other operations have all started.

    The next event of the job: its time in microseconds, and its kind.
    """
    p, n = state.at[j] + graph.slots[j] + graph.buckets[j], state.scheduled[0]
    state.sequence[n], state.scheduled[0], state.start[p] = p, n + 1, state.end[j]
    return state.end[j], _BARRIER if state.left[j] > 0 else _NONE


def set_begin(graph: Graph, state: ListScheduleState, j: int) -> None:
    """Set the begin of a job to its earliest start."""
    at, begin, start = graph.begin[j], state.begin, state.start
    begin[j] = start[at]
    for p in range(at + 1, at + graph.slots[j]):
        begin[j] = min(begin[j], start[p])


def finish_blocks(graph: Graph, state: ListScheduleState, j: int) -> tuple[int, int]:
    """Continue an iteration whose blocks have all started: with its transfers, or with its barrier.

    The next event of the job: its time in microseconds, and its kind.
    """
    slots, buckets, start = graph.slots[j], graph.buckets[j], state.start
    first = state.at[j] + slots
    if state.at[j] == graph.begin[j]:
        set_begin(graph, state, j)
    if buckets > 0 and graph.uses[graph.group[first]] > 0:
        return start[first], _READY
    # No other job shares the way of its transfers: each starts as soon as it may.
    moment, n = 0, state.scheduled[0]
    for p in range(first, first + buckets):
        start[p] = max(moment, start[p])
        moment = start[p] + state.duration[p]
        state.sequence[n + p - first] = p
    state.scheduled[0] = n + buckets
    state.end[j] = max(state.end[j], moment)
    return finish_iteration(graph, state, j)


def pending_jobs(state: ListScheduleState, count: int, freed: int) -> int:
    """Add the jobs that wait at a link to the pending ones, and return the number of pending jobs.

    Most of them came to the link in the order of their priority and each was put at the head of the queue, so it is
    read backwards: sorting then has little to do.
    """
    waits, j = 0, state.queue[freed]
    while j >= 0:
        waits += 1
        j = state.behind[j]
    j, count = state.queue[freed], count + waits
    state.queue[freed] = -1
    for n in range(count - 1, count - 1 - waits, -1):
        state.pending[n] = j
        j = state.behind[j]
    return count


def sort_pending(state: ListScheduleState, count: int) -> None:
    """Sort the pending jobs by priority, at equal priorities by number.

    `state`: queues; the first `count` entries of `pending` change.
    """
    pending, priority = state.pending, state.priority
    for n in range(1, count):
        j, k = pending[n], n
        while k > 0 and (
            priority[pending[k - 1]] > priority[j] or (priority[pending[k - 1]] == priority[j] and pending[k - 1] > j)
        ):
            pending[k] = pending[k - 1]
            k -= 1
        pending[k] = j


def start_transfer(graph: Graph, state: ListScheduleState, j: int, now: int) -> tuple[int, int, int]:
    """Start the next transfer of a job, or let it wait at the link that is busy longest.

    The next event, if there is one that is not known yet: its moment, its kind, and its job or link.
    """
    free, use, p = state.free, graph.use, state.at[j] + graph.slots[j] + state.sent[j]
    first = graph.use_at[graph.group[p]]
    final = first + graph.uses[graph.group[p]]
    busy, moment = -1, now
    for k in range(first, final):
        if free[use[k]] > moment:
            busy, moment = use[k], free[use[k]]
    # A link has one event for all jobs that wait there: the first of them brings it.
    if busy >= 0:
        state.behind[j], known, state.queue[busy] = state.queue[busy], state.queue[busy], j
        return moment, _LINK if known < 0 else _NONE, busy
    n, done = state.scheduled[0], now + state.duration[p]
    state.sequence[n], state.scheduled[0], state.start[p] = p, n + 1, now
    state.end[j] = max(state.end[j], done)
    for k in range(first, final):
        free[use[k]] = done
    state.sent[j] += 1
    if state.sent[j] < graph.buckets[j]:
        return max(done, state.start[p + 1]), _READY, j
    moment, kind = finish_iteration(graph, state, j)
    return moment, kind, j


@kernel
def list_schedule(graph: Graph, given: ListInput, state: ListScheduleState, halt: Numbers) -> int:
    """Schedule all operations, and return how many were scheduled.

    Events are barriers, GPUs and links that become free, and buckets that become ready. At each moment all its events
    are taken first; then every GPU and link that they touch takes the waiting operation of the best priority.

    `halt`: one number; where another thread makes it other than 0, the schedule is given up.
    """
    reset(graph, given, state)
    use, use_at, group, job, first_operation = graph.use, graph.use_at, graph.group, graph.job, graph.first
    slots, buckets, table, table_at = graph.slots, graph.buckets, graph.table, graph.table_at
    sequence, scheduled, start, end = state.sequence, state.scheduled, state.start, state.end
    level, duration, priority, unstarted = state.level, state.duration, state.priority, state.unstarted
    free, first, waiting, waits, pending = state.free, state.first, state.waiting, state.waits, state.pending
    touched, events, span = state.touched, state.events, len(slots) + len(free)
    for j in range(len(slots)):
        push_event(events, given.earliest[j], _BARRIER * span + j)
    while events[0] > 0 and halt[0] == 0:
        now, count, gpus = events[1], 0, 0
        while events[0] > 0 and events[1] == now:
            code = pop_event(events)
            kind, which = code // span, code % span
            if kind == _GPU:
                touched[gpus] = which
                gpus += 1
            elif kind == _READY:
                pending[count] = which
                count += 1
            elif kind == _LINK:
                count = pending_jobs(state, count, which)
            else:
                at = open_iteration(graph, given, state, which)
                for p in range(at, at + slots[which]):
                    touched[gpus] = use[use_at[group[p]]]
                    gpus += 1
        for n in range(gpus):
            gpu = touched[n]
            # A GPU may be touched several times at one moment.
            if free[gpu] > now or waiting[gpu] == 0:
                continue
            p = pop(waits, first[gpu], waiting[gpu], job, priority)
            waiting[gpu] -= 1
            j, at, start[p], sequence[scheduled[0]] = job[p], table_at[group[p]], now, p
            scheduled[0] += 1
            transfer = first_operation[p] + slots[j]
            # A transfer is ready once the last block that contributes to it has its bucket.
            for b in range(min(level[p], buckets[j])):
                if now + table[at + b] > start[transfer + b]:
                    start[transfer + b] = now + table[at + b]
            free[gpu] = done = now + duration[p]
            if done > end[j]:
                end[j] = done
            push_event(events, done, _GPU * span + gpu)
            unstarted[j] -= 1
            if unstarted[j] == 0:
                moment, kind = finish_blocks(graph, state, j)
                if kind != _NONE:
                    push_event(events, moment, kind * span + j)
        if count > 1:
            sort_pending(state, count)
        for n in range(count):
            moment, kind, which = start_transfer(graph, state, pending[n], now)
            if kind != _NONE:
                push_event(events, moment, kind * span + which)
    return scheduled[0]


@kernel
def repeat_list_schedule(graph: Graph, state: ListScheduleState, trial: Period) -> int:
    """Repeat a list schedule on the cyclic horizon, in its order, and return the period in microseconds.

    `trial`: sequence, levels and durations are those of the schedule. Where it is halted the period is the makespan.
    """
    size, makespan = len(state.start), 1
    for j in range(len(state.end)):
        makespan = max(makespan, state.end[j])
    for p in range(size):
        trial.start[p] = state.start[p]
    period = least_period(graph, trial, 1e300)
    if trial.halt[0] != 0:
        return makespan
    # Starts have grown by many periods; the earliest becomes 0.
    base = trial.start[0]
    for p in range(size):
        base = min(base, trial.start[p])
    for p in range(size):
        state.start[p] = trial.start[p] - base
    for j in range(len(graph.slots)):
        state.end[j] = state.start[graph.last[j]]
        set_begin(graph, state, j)
    return period
