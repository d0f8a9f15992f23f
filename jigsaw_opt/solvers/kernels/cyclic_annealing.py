"""Annealing of an operation sequence and of who takes which level on the cyclic horizon, on flat numbers.

Most steps look at the critical circuit of the schedule (`period`): two operations of different jobs on it, neighbours
on a GPU or link, change places, or a block on it exchanges levels. The others shift all operations of a job against the
rest.
"""

from __future__ import annotations

from typing import NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers, Reals, kernel
from jigsaw_opt.solvers.kernels.period import Period, least_period
from jigsaw_opt.solvers.kernels.randomness import following
from jigsaw_opt.solvers.kernels.sequence import Graph, set_durations
from jigsaw_opt.solvers.kernels.sequence_annealing import (
    beyond_cutoff,
    critical_operation,
    exchange_levels,
    exchange_partner,
    levels_to_exchange,
    merge_job,
    swap_critical_arc,
)

_KINDS = 8
"""One in so many steps shifts a whole job; of the others about half exchange levels."""


class CyclicState(NamedTuple):
    """A cyclic schedule, and the incumbent. A single number is stored as a list of length 1.

    `start, cause, position`: by operation, as in `Period`; levels and durations are there. `circuit`: an operation on
    its critical circuit. `best_sequence, best_level, best_start, best_critical`: the incumbent; by job, whether it is
    on its critical circuit. `best_value, value`: period of the incumbent, and of the current schedule. `rng, steps,
    visits`: the state of the random numbers, how many steps were taken, and how many operations they visited.
    """

    sequence: Numbers
    start: Numbers
    cause: Numbers
    position: Numbers
    circuit: Numbers
    best_sequence: Numbers
    best_level: Numbers
    best_start: Numbers
    best_critical: Numbers
    best_value: Numbers
    value: Numbers
    rng: Numbers
    steps: Numbers
    visits: Numbers


def shift_cut(state: CyclicState, buffer: Numbers, first: int) -> None:
    """Rotate the sequence of the current schedule so that it begins at another operation."""
    sequence, start = state.sequence, state.start
    size, base = len(sequence), start[sequence[first]]
    for n in range(first):
        start[sequence[n]] += state.value[0]
    for n in range(size):
        buffer[n] = sequence[(first + n) % size]
    for n in range(size):
        sequence[n] = buffer[n]
        state.position[sequence[n]] = n
        start[sequence[n]] -= base


def shift_job(graph: Graph, state: CyclicState, trial: Period, j: int, by: int) -> None:
    """Shift all operations of a job in a copy of the schedule, modulo the period.

    `by`: shift in microseconds, from 0 to less than the period.
    """
    job, sequence, start, shifted, period = graph.job, state.sequence, state.start, trial.start, state.value[0]
    size = len(sequence)
    end = start[sequence[0]] + period
    # Position of the job's first operation that passes the end of the period, and with it all of its later ones.
    first = size
    for n in range(size):
        p = sequence[n]
        if job[p] == j:
            shifted[p] += by
            if first == size and start[p] + by >= end:
                first = n
    for n in range(first, size):
        if job[sequence[n]] == j:
            shifted[sequence[n]] -= period
    merge_job(graph, sequence, j, first, shifted, trial.sequence)


def accept(state: CyclicState, trial: Period, value: int) -> None:
    """Make the trial the current schedule, in the order of its starts.

    `value`: period of the trial, in microseconds.
    """
    sequence, start, base = state.sequence, state.start, trial.start[trial.sequence[0]]
    for n in range(len(sequence)):
        # Insertion sort: the sequence is nearly in the order of its starts.
        p, k = trial.sequence[n], n
        start[p], state.cause[p] = trial.start[p] - base, trial.cause[p]
        while k > 0 and start[sequence[k - 1]] > start[p]:
            sequence[k] = sequence[k - 1]
            k -= 1
        sequence[k] = p
    for n in range(len(sequence)):
        state.position[sequence[n]] = n
    state.value[0], state.circuit[0] = value, trial.circuit[0]


def save_incumbent(graph: Graph, state: CyclicState, level: Numbers) -> None:
    """Copy the current schedule to the incumbent."""
    state.best_value[0], p = state.value[0], state.circuit[0]
    for n in range(len(state.sequence)):
        state.best_sequence[n], state.best_start[n] = state.sequence[n], state.start[n]
        state.best_level[n] = level[n]
    for j in range(len(state.best_critical)):
        state.best_critical[j] = 0
    # Causes lead around the circuit, so that this comes back to where it began.
    while True:
        state.best_critical[graph.job[p]] = 1
        p = state.cause[p]
        if p == state.circuit[0]:
            return


def propose(graph: Graph, state: CyclicState, trial: Period, seed: int) -> tuple[int, bool, int, int, int]:
    """Begin a trial with the current schedule and make a random change, in its sequence or of levels.

    Blocks that have exchanged levels, and by how many the first is less deep; 0 where none has.
    """
    kind, seed = seed % _KINDS, following(seed)
    p = q = less = 0
    if kind > 0:
        p = critical_operation(graph, trial.level, state.cause, state.circuit[0], kind % 2, seed)
        if p < 0:
            return seed, False, p, q, less
        seed = following(seed)
        if kind % 2 > 0:
            q = exchange_partner(graph, p, seed)
            seed = following(seed)
            less = levels_to_exchange(graph, trial.level, p, q, seed)
            if less == 0:
                return seed, False, p, q, less
        else:
            q = state.cause[p]
            # Then p waits for q in the period before. The cut is moved to q, which puts both into one period in the
            # right order.
            if state.position[q] > state.position[p]:
                shift_cut(state, trial.sequence, state.position[q])
    for n in range(len(state.sequence)):
        trial.sequence[n], trial.start[n] = state.sequence[n], state.start[n]
    if kind == 0:
        j = seed % len(graph.last)
        seed = following(seed)
        shift_job(graph, state, trial, j, seed % state.value[0])
    elif less != 0:
        exchange_levels(graph, trial.level, trial.duration, p, q, less)
    else:
        swap_critical_arc(
            graph, state.sequence, state.position, q, p, seed % 2, trial.sequence, trial.visited, trial.epoch[0]
        )
        trial.epoch[0] += 1
    return seed, True, p, q, less


def evaluate_first(graph: Graph, state: CyclicState, trial: Period) -> None:
    """Evaluate the schedule that an annealing begins with, and make it the incumbent."""
    for p in range(len(state.sequence)):
        if graph.first[p] == p:
            set_durations(graph, trial.level, trial.duration, p)
        trial.sequence[p], trial.start[p] = state.sequence[p], state.start[p]
    accept(state, trial, least_period(graph, trial, 1e300))
    save_incumbent(graph, state, trial.level)


@kernel
def anneal_cyclic_sequence(
    graph: Graph,
    state: CyclicState,
    trial: Period,
    first: int,
    steps: int,
    total: int,
    hot: float,
    cutoff: float,
    exponentials: Reals,
) -> int:
    """Take some steps of an annealing.

    `state, trial`: sequence and starts, levels and the state of the random numbers are given; all of it changes.
    `first, steps, total`: number of the first step, how many to take now, and how many there are in all. `hot`:
    temperature in step 0, as a share of the period; it falls to 0 with the square of the steps that are left. `cutoff`:
    period that the schedule has to reach to be of use; the steps end where that is out of reach.
    """
    trial.iterations[0] = 0
    if first == 0:
        evaluate_first(graph, state, trial)
    seed, taken = state.rng[0], 0
    for step in range(first, first + steps):
        left = 1.0 - step / total
        if beyond_cutoff(state.best_value[0], cutoff, left):
            break
        taken += 1
        seed, changes, p, q, less = propose(graph, state, trial, following(seed))
        if not changes:
            continue
        seed = following(seed)
        # The Metropolis rule, drawn beforehand, so that the search for a period may end at the limit.
        limit = state.value[0] * (1.0 + hot * left * left * exponentials[seed % len(exponentials)])
        value = least_period(graph, trial, limit)
        if value > limit:
            if less != 0:
                exchange_levels(graph, trial.level, trial.duration, q, p, less)
            continue
        accept(state, trial, value)
        if value < state.best_value[0]:
            save_incumbent(graph, state, trial.level)
    state.rng[0], state.steps[0], state.visits[0] = seed, taken, trial.iterations[0] * len(state.sequence)
    return state.best_value[0]
