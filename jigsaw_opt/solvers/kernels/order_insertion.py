"""Jobs inserted one after another in an order, each where it ends first, on flat numbers.

Every operation takes the first free time of its GPU or links that holds it, so a later job may run before an earlier
one. What an order shares with the one before it, from its first position on, stays as it is: busy times are kept in
chains, and those of the last jobs leave them in the reverse of the order in which they came.
"""

from __future__ import annotations

from jigsaw_opt.solvers.engines.compiled import Numbers, kernel
from jigsaw_opt.solvers.kernels.insertion_state import InsertionInput, InsertionState, gap, occupy, passed


def survey(given: InsertionInput, state: InsertionState, k: int, release: int) -> None:
    """Compute for every GPU how deep a worker of a class may go there, and when it would end its deepest block.

    `release`: earliest start of the job, in microseconds.
    """
    depth, first, s = given.depth[k], given.activation_at[k], -1
    for g in range(len(given.memory)):
        while g == given.gpu_at[s + 1]:
            s += 1
            state.open[s] = state.beyond[0]
        state.cap[g] = 0
        longest = given.time[given.time_at[k] + given.gpu_type[g] * depth + depth - 1]
        room = given.memory[g] - state.resident[g] - given.state_bytes[k]
        # Activations of different jobs share their room: only the largest counts.
        if longest < 0 or room < state.peak[g]:
            continue
        level = depth
        while level > 0 and given.activation[first + level - 1] > room:
            level -= 1
        state.cap[g] = level
        start, _ = gap(state, g, release, longest)
        state.free[g] = start + longest
        if level == depth:
            state.open[s] = min(state.open[s], start)


def first_free(given: InsertionInput, state: InsertionState, s: int, least: int) -> int:
    """Return the GPU of a server that is free first among those that are not taken and admit a level; -1 for none."""
    found = -1
    for g in range(given.gpu_at[s], given.gpu_at[s + 1]):
        admitted = state.cap[g] >= least and state.taken[g] != state.choice[0]
        if admitted and (found < 0 or state.free[g] < state.free[found]):
            found = g
    return found


def choose(given: InsertionInput, state: InsertionState, k: int, b: int, least: int) -> bool:
    """Choose the GPUs of a window that are free first among those that admit a level."""
    first, final, slots, count = given.member_at[b], given.member_at[b + 1], given.slots[k], 0
    state.choice[0] += 1
    for m in range(first, final):
        for _ in range(given.fewest[m]):
            g = first_free(given, state, given.server[m], least)
            if g < 0:
                return False
            state.taken[g], state.chosen[count] = state.choice[0], g
            count += 1
    while count < slots:
        best = -1
        for m in range(first, final):
            if given.most[m] > given.fewest[m]:
                g = first_free(given, state, given.server[m], least)
                if g >= 0 and (best < 0 or state.free[g] < state.free[best]):
                    best = g
        if best < 0:
            return False
        state.taken[best], state.chosen[count] = state.choice[0], best
        count += 1
    return True


def deep_enough(given: InsertionInput, state: InsertionState, k: int) -> bool:
    """Return whether the chosen GPUs admit the deepest levels of a class in some order.

    It suffices to compare in descending order: the n-th largest need must be met by more than n GPUs.
    """
    for n in range(given.slots[k]):
        able = 0
        for s in range(given.slots[k]):
            able += state.cap[state.chosen[s]] >= given.need[given.need_at[k] + n]
        if able <= n:
            return False
    return True


def deal(given: InsertionInput, state: InsertionState, k: int, first: int, barrier: int, at: int) -> None:
    """Choose the levels of an iteration: the deepest block goes to the GPU that would end it first and admits it.

    `barrier`: time at which the iteration may begin, in microseconds.
    """
    slots, asked, level = given.slots[k], given.asked, state.trial_level
    if given.fixed[k] or asked[first] == asked[first + slots - 1]:
        for s in range(slots):
            level[at + s] = asked[first + s]
        return
    depth, rank, finish = given.depth[k], state.rank, state.finish
    for s in range(slots):
        g = state.chosen[s]
        duration = given.time[given.time_at[k] + given.gpu_type[g] * depth + asked[first] - 1]
        start, _ = gap(state, state.cursor[s], barrier, duration)
        finish[s], n = start + duration, s
        while n > 0 and finish[rank[n - 1]] > finish[s]:
            rank[n] = rank[n - 1]
            n -= 1
        rank[n] = s
    for n in range(slots):
        low = 0
        while state.cap[state.chosen[rank[low]]] < asked[first + n]:
            low += 1
        level[at + rank[low]] = asked[first + n]
        for m in range(low, slots - 1 - n):
            rank[m] = rank[m + 1]


def try_blocks(given: InsertionInput, state: InsertionState, k: int, barrier: int, at: int) -> int:
    """Time the blocks of an iteration, and return the last end, in microseconds.

    The starts of transfers receive the times at which their buckets are ready.

    `barrier`: time at which the iteration may begin, in microseconds.
    """
    slots, buckets, depth, last = given.slots[k], given.buckets[k], given.depth[k], barrier
    level, start = state.trial_level, state.trial_start
    for p in range(at + slots, at + slots + buckets):
        start[p] = barrier
    for s in range(slots):
        times = given.time_at[k] + given.gpu_type[state.chosen[s]] * depth
        duration = given.time[times + level[at + s] - 1]
        start[at + s], _ = gap(state, state.cursor[s], barrier, duration)
        last = max(last, start[at + s] + duration)
        for b in range(min(level[at + s], buckets)):
            start[at + slots + b] = max(start[at + slots + b], start[at + s] + given.time[times + b])
    return last


def together(given: InsertionInput, state: InsertionState, b: int, moment: int, duration: int) -> int:
    """Return the first time at which all links of a window are free for some duration.

    The links are asked in turn until all of them agree on one start.

    Start in microseconds; the earliest start where the window has no link.

    `duration`: length that is needed, in microseconds.
    """
    first, settled, n = given.link_at[b], 0, 0
    links = given.link_at[b + 1] - first
    # The start is common to all links once as many in a row agree on it as there are.
    while settled < links and duration > 0:
        start, state.link_cursor[n] = gap(state, state.link_cursor[n], moment, duration)
        settled = settled + 1 if start == moment else 1
        moment = start
        n = n + 1 if n + 1 < links else 0
    return moment


def transfer_us(given: InsertionInput, state: InsertionState, k: int, b: int, at: int, bucket: int) -> int:
    """Return the duration of a transfer of an iteration over the channel of a window, in microseconds."""
    slots, count = given.slots[k], 0
    for s in range(slots):
        count += state.trial_level[at + s] > bucket
    first = given.exchange_at[k * given.channels[0] + given.channel[b]]
    return given.exchange[first + bucket * slots + count - 1]


def try_window(given: InsertionInput, state: InsertionState, k: int, b: int, release: int, most: int) -> int:
    """Time a job of a class on the chosen GPUs of a window.

    End of the job in microseconds; `beyond` where it is not before `most`.

    `release`: earliest start of the job, in microseconds. `most`: end that must be improved on, in microseconds.
    """
    slots, buckets, barrier = given.slots[k], given.buckets[k], release
    least = given.least_us[k * given.channels[0] + given.channel[b]]
    for s in range(slots):
        state.cursor[s] = state.chosen[s]
    for n in range(given.link_at[b + 1] - given.link_at[b]):
        state.link_cursor[n] = given.link[given.link_at[b] + n]
    for i in range(given.iterations[k]):
        # Every iteration that is left takes `least` at least, so this window cannot end before `most` any more.
        if barrier + (given.iterations[k] - i) * least >= most:
            return state.beyond[0]
        at = i * (slots + buckets + 1)
        for s in range(slots):
            state.cursor[s] = passed(state, state.cursor[s], barrier)
        deal(given, state, k, given.level_at[k] + i * slots, barrier, at)
        last, moment = try_blocks(given, state, k, barrier, at), barrier
        for p in range(at + slots, at + slots + buckets):
            duration = transfer_us(given, state, k, b, at, p - at - slots)
            moment = together(given, state, b, max(moment, state.trial_start[p]), duration)
            state.trial_start[p] = moment
            moment += duration
        barrier = max(last, moment)
        state.trial_start[at + slots + buckets] = barrier
        state.visits[0] += slots + buckets
    return barrier if barrier < most else state.beyond[0]


def keep_trial(given: InsertionInput, state: InsertionState, k: int) -> None:
    """Copy the last trial to the best one."""
    for s in range(given.slots[k]):
        state.best_gpu[s] = state.chosen[s]
    for p in range(given.iterations[k] * (given.slots[k] + given.buckets[k] + 1)):
        state.best_level[p], state.best_start[p] = state.trial_level[p], state.trial_start[p]


def earliest_end(given: InsertionInput, state: InsertionState, k: int, b: int) -> int:
    """Return a lower bound on the end of a job of a class in a window.

    Time in microseconds; `beyond` where no GPU there admits the deepest level.
    """
    start = state.beyond[0]
    for m in range(given.member_at[b], given.member_at[b + 1]):
        start = min(start, state.open[given.server[m]])
    least = given.least_us[k * given.channels[0] + given.channel[b]]
    return start + given.iterations[k] * least if start < state.beyond[0] else start


def most_promising(given: InsertionInput, state: InsertionState, k: int, first: int, final: int) -> int:
    """Return the window with the least lower bound on the end of a job of a class.

    Number of the window, -1 where none admits the job.

    `first, final`: position of the first window in `window`, and the position after the last one.
    """
    found, least = -1, state.beyond[0]
    for n in range(first, final):
        end = earliest_end(given, state, k, given.window[n])
        if end < least:
            found, least = given.window[n], end
    return found


def end_at(given: InsertionInput, state: InsertionState, k: int, b: int, release: int, most: int) -> int:
    """Return when a job of a class ends in a window; an end before `most` is kept as the best trial.

    Time in microseconds; `beyond` where it is not before `most`.

    `release`: earliest start of the job, in microseconds.
    """
    beyond = state.beyond[0]
    if earliest_end(given, state, k, b) >= most:
        return beyond
    # GPUs that admit every level come first. Only where they are too few, others must admit the levels in some order.
    if not choose(given, state, k, b, given.depth[k]):
        shallowest = given.need[given.need_at[k] + given.slots[k] - 1]
        if not choose(given, state, k, b, shallowest) or not deep_enough(given, state, k):
            return beyond
    end = try_window(given, state, k, b, release, most)
    if end < beyond:
        keep_trial(given, state, k)
    return end


def best_window(given: InsertionInput, state: InsertionState, k: int, release: int) -> tuple[int, int]:
    """Return the window in which a job of a class ends first, and that end.

    The window, -1 where memory admits none; and the end in microseconds.

    `release`: earliest start of the job, in microseconds.
    """
    survey(given, state, k, release)
    best, found, final = state.beyond[0], -1, given.reserve_at[k]
    # An early end found first lets the lower bounds of the other windows reject them.
    first = most_promising(given, state, k, given.window_at[k], final)
    if first >= 0:
        best = end_at(given, state, k, first, release, best)
        found = first if best < state.beyond[0] else -1
    for n in range(given.window_at[k], given.window_at[k + 1]):
        # Windows in reserve are tried only where no other one admits the job.
        if n == final and found >= 0:
            break
        b = given.window[n]
        end = end_at(given, state, k, b, release, best) if b != first else best
        if end < best:
            best, found = end, b
    return found, best


def take(given: InsertionInput, state: InsertionState, j: int, k: int, b: int) -> None:
    """Insert a job of a class at a window, with the levels and starts of the best trial."""
    slots, buckets, base, depth = given.slots[k], given.buckets[k], given.operation_at[j], given.depth[k]
    width = slots + buckets + 1
    size = given.iterations[k] * width
    for p in range(size):
        state.level[base + p], state.start[base + p] = state.best_level[p], state.best_start[p]
        state.trial_level[p] = state.best_level[p]
    for s in range(slots):
        g, deepest, place = state.best_gpu[s], 0, state.best_gpu[s]
        times = given.time_at[k] + given.gpu_type[g] * depth
        for i in range(given.iterations[k]):
            p = s + i * width
            deepest = max(deepest, state.best_level[p])
            start = state.best_start[p]
            # Iterations follow one another, so that the search for the next place begins at this one.
            place = occupy(state, place, start, start + given.time[times + state.best_level[p] - 1])
        slot = given.slot_at[j] + s
        state.gpu[slot], state.peak_before[slot] = g, state.peak[g]
        state.resident[g] += given.state_bytes[k]
        state.peak[g] = max(state.peak[g], given.activation[given.activation_at[k] + deepest - 1])
    for n in range(given.link_at[b], given.link_at[b + 1]):
        place = given.link[n]
        for i in range(given.iterations[k]):
            at = i * width
            for p in range(at + slots, at + slots + buckets):
                duration = transfer_us(given, state, k, b, at, p - at - slots)
                if duration > 0:
                    place = occupy(state, place, state.best_start[p], state.best_start[p] + duration)


def withdraw(given: InsertionInput, state: InsertionState) -> None:
    """Remove the job that was inserted last."""
    n = state.inserted[0] - 1
    j, k, after, before = state.at[n], state.of_class[n], state.after, state.before
    for s in range(given.slot_at[j], given.slot_at[j] + given.slots[k]):
        state.resident[state.gpu[s]] -= given.state_bytes[k]
        state.peak[state.gpu[s]] = state.peak_before[s]
    # In reverse order of insertion, each busy time still has the neighbours between which it was put.
    for new in range(state.busy[0] - 1, state.mark[n] - 1, -1):
        after[before[new]], before[after[new]] = after[new], before[new]
    state.busy[0], state.inserted[0] = state.mark[n], n


@kernel
def insert_in_order(given: InsertionInput, state: InsertionState, order: Numbers, limits: Numbers) -> int:
    """Insert all jobs in an order, each where it ends first; jobs that the last order began with as well stay.

    The objective; `beyond` where it is above a limit, a job found no window with memory, or it was halted.

    `limits`: by position: what the objective of the jobs up to there has to be at most for the schedule to be of use;
    insertion ends where it is more.
    """
    kept, weighted, value = 0, len(given.weight) > 0, 0
    while kept < state.inserted[0]:
        if state.at[kept] != order[kept] or state.of_class[kept] != given.job_class[order[kept]]:
            break
        kept += 1
    while state.inserted[0] > kept:
        withdraw(given, state)
    for n in range(len(order)):
        j = order[n]
        k = given.job_class[j]
        if n >= kept:
            b, last = best_window(given, state, k, given.release[j])
            if b < 0 or state.halt[0] != 0:
                return state.beyond[0]
            state.at[n], state.of_class[n], state.mark[n] = j, k, state.busy[0]
            take(given, state, j, k, b)
            state.job_end[j], state.inserted[0] = last, n + 1
        value = value + given.weight[j] * state.job_end[j] if weighted else max(value, state.job_end[j])
        state.partial[n] = value
        if value > limits[n]:
            return state.beyond[0]
    return value
