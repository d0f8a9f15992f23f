"""Jobs moved between candidate server sets by simulated annealing, on flat numbers.

Python runs `anneal_assignment` and `reassign_pairs`, or numba has compiled them (`engines.compiled`). They draw their
own numbers, by multiplication modulo the prime 2^31 - 1 (Park and Miller, 1988), and take exponential ones from a
table, so both do the same.
"""

from __future__ import annotations

from jigsaw_opt.solvers.engines.compiled import Numbers, Reals, kernel
from jigsaw_opt.solvers.kernels.assignment import Assignment, Buffers, CandidateSets
from jigsaw_opt.solvers.kernels.randomness import randint

__all__ = ["anneal_assignment", "excess", "insert", "reassign_pairs", "remove"]

_ANY_PAIR = 2
"""One in so many pairs of groups that share out their jobs is drawn without a look at what is too full."""
_EXCHANGE_SHARE = 2
"""One in so many changes moves a job alone; the others move two."""


def proposed(
    options: CandidateSets,
    state: Assignment,
    jobs: Numbers,
    groups: Numbers,
    chance: Numbers,
    moved: Numbers,
    target: Numbers,
) -> int:
    """Draw a change: who moves to which berths. Returns how many jobs do, which may be none."""
    now, guests, guest, home = state.now, state.guests, state.guest, options.home
    width, all_groups = len(guest) // len(guests), len(options.group_at) - 1
    # A job of some server, the sooner the more servers it has: what is left is settled by the wide ones.
    g = groups[randint(chance, len(groups))]
    s = options.member[options.group_at[g] + randint(chance, options.group_at[g + 1] - options.group_at[g])]
    j = guest[s * width + randint(chance, guests[s])] if guests[s] > 0 else jobs[randint(chance, len(jobs))]
    if home[now[j]] < 0:
        j = jobs[randint(chance, len(jobs))]
    cell = options.kind[j] * all_groups + groups[randint(chance, len(groups))]
    choices = options.within_to[cell] - options.within_from[cell]
    if choices == 0:
        return 0
    moved[0], target[0] = j, options.within[options.within_from[cell] + randint(chance, choices)]
    if randint(chance, _EXCHANGE_SHARE) == 0:
        return 1
    # A job at the berth that this one comes to goes where this one was.
    s = server_of(options, target[0], chance)
    if guests[s] == 0:
        return 1
    other = guest[s * width + randint(chance, guests[s])]
    cell = options.kind[other] * len(guests) + server_of(options, now[j], chance)
    choices = options.at_to[cell] - options.at_from[cell]
    if other == j or choices == 0 or home[now[other]] < 0:
        return 1
    moved[1], target[1] = other, options.at[options.at_from[cell] + randint(chance, choices)]
    return 2


def server_of(options: CandidateSets, berth: int, chance: Numbers) -> int:
    """One of the servers of a berth."""
    at = options.server_at[berth]
    return options.server[at + randint(chance, options.server_at[berth + 1] - at)]


def change_by(options: CandidateSets, amount: Reals, berth: int, sign: float, change: Reals, touched: Numbers) -> None:
    """Count what a berth takes as a change of loads."""
    at, count = options.take_at[berth], touched[0]
    for n in range(at, options.take_at[berth + 1]):
        r = options.resource[n]
        touched[count + 1 + n - at] = r
        change[r] += sign * amount[n]
    touched[0] = count + options.take_at[berth + 1] - at


def cost_delta(load: Reals, change: Reals, touched: Numbers) -> float:
    """By how much the sum of squared excesses rises with a change of loads, which is forgotten."""
    found = 0.0
    # One that is touched twice has no change the second time. To square and subtract takes less than to ask whether.
    for n in range(1, touched[0] + 1):
        r = touched[n]
        before = load[r] - 1.0
        after = before + change[r]
        before = before if before > 0.0 else 0.0
        after = after if after > 0.0 else 0.0
        change[r] = 0.0
        found += after * after - before * before
    touched[0] = 0
    return found


def remove(options: CandidateSets, amount: Reals, load: Reals, state: Assignment, j: int) -> None:
    """Take a job away from its berth."""
    now, guests, guest = state.now, state.guests, state.guest
    width = len(guest) // len(guests)
    for n in range(options.take_at[now[j]], options.take_at[now[j] + 1]):
        load[options.resource[n]] -= amount[n]
    for n in range(options.server_at[now[j]], options.server_at[now[j] + 1]):
        s = options.server[n]
        k = s * width
        while guest[k] != j:
            k += 1
        guests[s] -= 1
        guest[k] = guest[s * width + guests[s]]


def insert(options: CandidateSets, amount: Reals, load: Reals, state: Assignment, j: int, berth: int) -> None:
    """Put a job to a berth whose servers have room for one more guest."""
    now, guests, guest = state.now, state.guests, state.guest
    width = len(guest) // len(guests)
    now[j] = berth
    for n in range(options.take_at[berth], options.take_at[berth + 1]):
        load[options.resource[n]] += amount[n]
    for n in range(options.server_at[berth], options.server_at[berth + 1]):
        s = options.server[n]
        guest[s * width + guests[s]] = j
        guests[s] += 1


@kernel()
def anneal_assignment(
    options: CandidateSets,
    amount: Reals,
    jobs: Numbers,
    groups: Numbers,
    steps: int,
    hot: float,
    cold: float,
    exponentials: Reals,
    load: Reals,
    state: Assignment,
    change: Reals,
    room: Buffers,
) -> int:
    """Move jobs about within some groups so that less is too full: the sum of squared excesses over 1 falls.

    Parameters
    ----------
    options
        See there.
    amount
        How much a berth takes of each of its resources.
    jobs, groups
        Those that take part.
    steps
        Number of steps.
    hot, cold
        By how much the sum may well rise in the first step, and in the last.
    exponentials
        `EXPONENTIALS`.
    load
        By resource; changes.
    state
        See there; changes.
    change
        Zeros by resource.
    room
        See there.

    Returns
    -------
    int
        How many changes were kept.
    """
    guests, width = state.guests, len(state.guest) // len(state.guests)
    chance, moved, target, touched = room
    kept = 0
    temperature, cooling = hot, (cold / hot) ** (1.0 / max(1, steps))
    for _ in range(steps):
        count = proposed(options, state, jobs, groups, chance, moved, target)
        for m in range(count):
            change_by(options, amount, state.now[moved[m]], -1.0, change, touched)
            change_by(options, amount, target[m], 1.0, change, touched)
        worse = cost_delta(load, change, touched)
        refused = count == 0 or worse > temperature * exponentials[randint(chance, len(exponentials))]
        temperature *= cooling
        for m in range(count):
            for n in range(options.server_at[target[m]], options.server_at[target[m] + 1]):
                refused = refused or guests[options.server[n]] + count > width
        if not refused:
            kept += 1
            for m in range(count):
                remove(options, amount, load, state, moved[m])
                insert(options, amount, load, state, moved[m], target[m])
    return kept


def excess(options: CandidateSets, load: Reals, group: int, most: float) -> float:
    """Sum of squared excesses over a load in a group."""
    found = 0.0
    for n in range(options.inside_at[group], options.inside_at[group + 1]):
        over = load[options.inside[n]] - most
        if over > 0.0:
            found += over * over
    return found


@kernel(lists=True)
def reassign_pairs(
    options: CandidateSets,
    amount: Reals,
    groups: Numbers,
    times: int,
    steps: int,
    hot: float,
    cold: float,
    most: float,
    exponentials: Reals,
    load: Reals,
    state: Assignment,
    change: Reals,
    room: Buffers,
) -> int:
    """Let pairs of groups share out their jobs anew, most often such as have something too full.

    That is kept where no more of both is too full than before.

    Parameters
    ----------
    groups
        Those that take part.
    times
        How often two groups share out their jobs.
    steps
        Steps of the annealing for each job that the two have.
    most
        Load above which something counts as too full.

    Other parameters are as for `anneal_assignment`.

    Returns
    -------
    int
        Steps of all annealings.
    """
    now, taken = state.now, 0
    chance = room.chance
    over = [0.0] * len(groups)
    pair, there, before = [0, 0], [0], [0]
    if len(groups) < 2:
        return 0
    for _ in range(times):
        total = 0.0
        for k in range(len(groups)):
            over[k] = excess(options, load, groups[k], most)
            total += over[k]
        # Now and then two in which nothing is too full: else those that are get to see the same ones again and again.
        first = randint(chance, len(groups))
        if total > 0.0 and randint(chance, _ANY_PAIR) > 0:
            first, left = 0, total * randint(chance, 65536) / 65536
            while first < len(groups) - 1 and left >= over[first]:
                left -= over[first]
                first += 1
        second = randint(chance, len(groups) - 1)
        second += second >= first
        pair[0], pair[1] = groups[first], groups[second]
        there.clear()
        before.clear()
        for j in range(len(now)):
            if options.home[now[j]] == pair[0] or options.home[now[j]] == pair[1]:
                there.append(j)
                before.append(now[j])
        if len(there) == 0:
            continue
        taken += steps * len(there)
        anneal_assignment(
            options, amount, there, pair, steps * len(there), hot, cold, exponentials, load, state, change, room
        )
        after = excess(options, load, pair[0], most) + excess(options, load, pair[1], most)
        if after > over[first] + over[second]:
            for n in range(len(there)):
                remove(options, amount, load, state, there[n])
            for n in range(len(there)):
                insert(options, amount, load, state, there[n], before[n])
    return taken
