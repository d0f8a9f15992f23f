"""Jobs moved between candidate server sets by simulated annealing, on flat numbers.

Python runs `anneal_assignment` and `reassign_pairs`, or they are compiled (`engines.compiled`). They draw their
own numbers, by multiplication modulo the prime 2^31 - 1 (Park and Miller, 1988), and take exponential ones from a
table, so both do the same.
"""

from __future__ import annotations

from typing import NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers, Reals, kernel
from jigsaw_opt.solvers.kernels.randomness import randint


class CandidateSets(NamedTuple):
    """Candidate server sets of all jobs; jobs of one class ask for the same and share theirs.

    `group_of`: by candidate: its group, or -1. `take_at, resource`: resources that a candidate takes are
    ``resource[take_at[b]:take_at[b + 1]]``. `server_at, server`: servers of a candidate are
    ``server[server_at[b]:server_at[b + 1]]``. `within_from, within_to, within`: candidates of a class in a group, or
    outside of all where it has none inside, by class and group. `at_from, at_to, at`: candidates of a class with a
    server, by class and server. `inside_at, inside`: resources that the candidates of a group take.
    """

    job_class: Numbers
    group_of: Numbers
    take_at: Numbers
    resource: Numbers
    server_at: Numbers
    server: Numbers
    within_from: Numbers
    within_to: Numbers
    within: Numbers
    at_from: Numbers
    at_to: Numbers
    at: Numbers
    group_at: Numbers
    member: Numbers
    inside_at: Numbers
    inside: Numbers


class GroupAssignment(NamedTuple):
    """Candidate of every job, and the jobs on every server.

    `occupancy`: number of jobs on each server. `occupant`: the jobs on each server, in rows of one length.
    """

    chosen: Numbers
    occupancy: Numbers
    occupant: Numbers


class Buffers(NamedTuple):
    """Buffers of one annealing.

    `rng`: the state of the random numbers, alone in its list: from 1 to `LARGEST_SEED`. `moved, target`: jobs that
    move, and the candidates that they move to; two each. `touched`: number of loads that change, followed by their
    resources; room for those of four candidates. `change`: by resource: how its load changes; zeros between two steps.
    `inside, before`: jobs in the two groups, and their candidates before; room for all jobs. `halt`: one number: once
    it is 1, an annealing ends where it is.
    """

    rng: Numbers
    moved: Numbers
    target: Numbers
    touched: Numbers
    change: Reals
    over: Reals
    pair: Numbers
    inside: Numbers
    before: Numbers
    halt: Numbers


_ANY_PAIR = 2
"""One in so many pairs of groups is drawn without regard to their excess."""
_EXCHANGE_SHARE = 2
"""One in so many changes moves one job; the others move two."""


def propose(options: CandidateSets, state: GroupAssignment, jobs: Numbers, groups: Numbers, buffers: Buffers) -> int:
    """Draw a random change: which one or two jobs move to which candidates.

    Number of jobs that move; 0 where the draw found no candidate.
    """
    rng, moved, target = buffers.rng, buffers.moved, buffers.target
    chosen, occupancy, occupant, group_of = state.chosen, state.occupancy, state.occupant, options.group_of
    width, all_groups = len(occupant) // len(occupancy), len(options.group_at) - 1
    # A job of some server, the sooner the more servers it has: what is left is settled by the wide ones.
    g = groups[randint(rng, len(groups))]
    s = options.member[options.group_at[g] + randint(rng, options.group_at[g + 1] - options.group_at[g])]
    j = occupant[s * width + randint(rng, occupancy[s])] if occupancy[s] > 0 else jobs[randint(rng, len(jobs))]
    if group_of[chosen[j]] < 0:
        j = jobs[randint(rng, len(jobs))]
    cell = options.job_class[j] * all_groups + groups[randint(rng, len(groups))]
    choices = options.within_to[cell] - options.within_from[cell]
    if choices == 0:
        return 0
    moved[0], target[0] = j, options.within[options.within_from[cell] + randint(rng, choices)]
    if randint(rng, _EXCHANGE_SHARE) == 0:
        return 1
    # A job at the candidate that this one comes to goes where this one was.
    s = server_of(options, target[0], rng)
    if occupancy[s] == 0:
        return 1
    other = occupant[s * width + randint(rng, occupancy[s])]
    cell = options.job_class[other] * len(occupancy) + server_of(options, chosen[j], rng)
    choices = options.at_to[cell] - options.at_from[cell]
    if other == j or choices == 0 or group_of[chosen[other]] < 0:
        return 1
    moved[1], target[1] = other, options.at[options.at_from[cell] + randint(rng, choices)]
    return 2


def server_of(options: CandidateSets, candidate: int, rng: Numbers) -> int:
    """Return a random server of a candidate."""
    at = options.server_at[candidate]
    return options.server[at + randint(rng, options.server_at[candidate + 1] - at)]


def add_change(options: CandidateSets, amount: Reals, candidate: int, sign: float, buffers: Buffers) -> None:
    """Add the loads of a candidate to the pending change.

    `sign`: 1.0 where a job comes to it, -1.0 where it leaves.
    """
    change, touched = buffers.change, buffers.touched
    at, count = options.take_at[candidate], touched[0]
    for n in range(at, options.take_at[candidate + 1]):
        r = options.resource[n]
        touched[count + 1 + n - at] = r
        change[r] += sign * amount[n]
    touched[0] = count + options.take_at[candidate + 1] - at


def cost_delta(load: Reals, buffers: Buffers) -> float:
    """Return the rise of the sum of squared excesses that a pending change causes, and clear the change."""
    change, touched, found = buffers.change, buffers.touched, 0.0
    # One that is touched twice has no change the second time. To square and subtract takes less than to ask whether.
    # The first entry of `touched` says how many follow.
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


def remove(options: CandidateSets, amount: Reals, load: Reals, state: GroupAssignment, j: int) -> None:
    """Take a job off its candidate.

    `state`: candidate of every job, and the jobs of every server; changes. The job keeps its entry in `chosen`.
    """
    chosen, occupancy, occupant = state.chosen, state.occupancy, state.occupant
    width = len(occupant) // len(occupancy)
    for n in range(options.take_at[chosen[j]], options.take_at[chosen[j] + 1]):
        load[options.resource[n]] -= amount[n]
    for n in range(options.server_at[chosen[j]], options.server_at[chosen[j] + 1]):
        s = options.server[n]
        k = s * width
        while occupant[k] != j:
            k += 1
        # The order of jobs on a server does not matter, so that the last one fills the gap.
        occupancy[s] -= 1
        occupant[k] = occupant[s * width + occupancy[s]]


def insert(options: CandidateSets, amount: Reals, load: Reals, state: GroupAssignment, j: int, candidate: int) -> None:
    """Put a job on a candidate; each of its servers must have a free place."""
    chosen, occupancy, occupant = state.chosen, state.occupancy, state.occupant
    width = len(occupant) // len(occupancy)
    chosen[j] = candidate
    for n in range(options.take_at[candidate], options.take_at[candidate + 1]):
        load[options.resource[n]] += amount[n]
    for n in range(options.server_at[candidate], options.server_at[candidate + 1]):
        s = options.server[n]
        occupant[s * width + occupancy[s]] = j
        occupancy[s] += 1


@kernel
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
    state: GroupAssignment,
    buffers: Buffers,
) -> int:
    """Move jobs about within some groups so that less is too full: the sum of squared excesses over 1 falls.

    `hot, cold`: temperature in the first step and in the last: mean rise of the sum that is accepted.
    """
    occupancy, width = state.occupancy, len(state.occupant) // len(state.occupancy)
    rng, moved, target = buffers.rng, buffers.moved, buffers.target
    kept, temperature, cooling = 0, hot, (cold / hot) ** (1.0 / max(1, steps))
    for _ in range(steps):
        if buffers.halt[0] == 1:
            break
        count = propose(options, state, jobs, groups, buffers)
        for m in range(count):
            add_change(options, amount, state.chosen[moved[m]], -1.0, buffers)
            add_change(options, amount, target[m], 1.0, buffers)
        delta = cost_delta(load, buffers)
        refused = count == 0 or delta > temperature * exponentials[randint(rng, len(exponentials))]
        temperature *= cooling
        for m in range(count):
            for n in range(options.server_at[target[m]], options.server_at[target[m] + 1]):
                # As if all jobs of the change came to this server, so that no order of moves finds it full.
                refused = refused or occupancy[options.server[n]] + count > width
        if not refused:
            kept += 1
            for m in range(count):
                remove(options, amount, load, state, moved[m])
                insert(options, amount, load, state, moved[m], target[m])
    return kept


def excess(options: CandidateSets, load: Reals, group: int, most: float) -> float:
    """Return the sum of squared excesses over a load in a group."""
    found = 0.0
    for n in range(options.inside_at[group], options.inside_at[group + 1]):
        over = load[options.inside[n]] - most
        if over > 0.0:
            found += over * over
    return found


def draw_pair(groups: Numbers, over: Reals, buffers: Buffers) -> float:
    """Draw two groups, and return the excess of both.

    The first one is most often drawn with a probability proportional to its excess.
    """
    rng, total = buffers.rng, 0.0
    for k in range(len(groups)):
        total += over[k]
    # Now and then two in which nothing is too full: else those that are get to see the same ones again and again.
    first = randint(rng, len(groups))
    if total > 0.0 and randint(rng, _ANY_PAIR) > 0:
        # A fraction of integers is the same number in Python and in the compiled function.
        first, left = 0, total * randint(rng, 65536) / 65536
        while first < len(groups) - 1 and left >= over[first]:
            left -= over[first]
            first += 1
    # Drawn among all others: numbers from the first on are one higher.
    second = randint(rng, len(groups) - 1)
    second += second >= first
    buffers.pair[0], buffers.pair[1] = groups[first], groups[second]
    return over[first] + over[second]


def jobs_inside(options: CandidateSets, state: GroupAssignment, buffers: Buffers) -> int:
    """List the jobs in two groups with their candidates, and return how many there are."""
    chosen, pair, count = state.chosen, buffers.pair, 0
    for j in range(len(chosen)):
        if options.group_of[chosen[j]] == pair[0] or options.group_of[chosen[j]] == pair[1]:
            buffers.inside[count], buffers.before[count] = j, chosen[j]
            count += 1
    return count


@kernel
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
    state: GroupAssignment,
    buffers: Buffers,
) -> int:
    """Reassign the jobs of pairs of groups anew, most often of pairs with an excess.

    A new assignment is kept where the excess of both groups is no larger than before.
    """
    taken, pair, inside = 0, buffers.pair, buffers.inside
    if len(groups) < 2:
        return 0
    for _ in range(times):
        if buffers.halt[0] == 1:
            break
        for k in range(len(groups)):
            buffers.over[k] = excess(options, load, groups[k], most)
        over = draw_pair(groups, buffers.over, buffers)
        count = jobs_inside(options, state, buffers)
        if count == 0:
            continue
        steps_now = steps * count
        taken += steps_now
        jobs = inside[:count]
        anneal_assignment(options, amount, jobs, pair, steps_now, hot, cold, exponentials, load, state, buffers)
        after = excess(options, load, pair[0], most)
        after += excess(options, load, pair[1], most)
        if after > over:
            for n in range(count):
                remove(options, amount, load, state, inside[n])
            for n in range(count):
                insert(options, amount, load, state, inside[n], buffers.before[n])
    return taken
