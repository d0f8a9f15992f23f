"""When jobs end that do iterations at rates, as far as those before them leave GPUs, links and memory."""

from __future__ import annotations

from typing import NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers, Reals, kernel

__all__ = ["FluidState", "FluidTable", "find_tight", "run_fluid", "set_rates"]

_LEAST_PACE = 1 / 16
"""Share of its own pace below which a job rather waits."""
_SHARING_COST = 1.1
"""What a job takes of a GPU or link from those behind it, beside what it uses: operations do not fit without gaps."""


class FluidTable(NamedTuple):
    """Jobs on GPUs, by number; one job on several sets of GPUs has several numbers.

    Parameters
    ----------
    iteration_us, release_us
        Time of an iteration when no one is in the way, and when it may begin.
    state, activation
        Bytes on each of its GPUs.
    load_at, resource, load_us
        Loads of GPUs and links in an iteration: where those of a job begin, which, and for how long.
    gpu_at, gpu
        Its GPUs: where those of a job begin, and which.
    memory
        Bytes by GPU.
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
    memory: Numbers


class FluidState(NamedTuple):
    """Jobs under way, by place in the order; all of it changes.

    Parameters
    ----------
    remaining, rate, end_us
        Iterations that are left, those a microsecond now, and when the last one ended.
    begun
        Whether a job has begun and has not ended.
    free
        Share of each GPU and link that is left.
    inside, held, largest
        By GPU, the number of jobs that have begun, their states and the largest of their activations, in bytes.
    tight
        By GPU, whether memory does not hold all jobs of the order; last, whether that is so of any.
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


def _hold(table: FluidTable, state: FluidState, k: int) -> None:
    for e in range(table.gpu_at[k], table.gpu_at[k + 1]):
        g = table.gpu[e]
        state.inside[g] += 1
        state.held[g] += table.state[k]
        state.largest[g] = max(state.largest[g], table.activation[k])


def _let_go(state: FluidState) -> None:
    for g in range(len(state.inside)):
        state.inside[g], state.held[g], state.largest[g] = 0, 0, 0


def _admitted(table: FluidTable, state: FluidState, k: int) -> bool:
    """Whether a job fits with its deepest levels beside those that have begun; alone in any case."""
    for e in range(table.gpu_at[k], table.gpu_at[k + 1]):
        g = table.gpu[e]
        need = state.held[g] + table.state[k] + max(state.largest[g], table.activation[k])
        if state.tight[g] and state.inside[g] and need > table.memory[g]:
            return False
    return True


def find_tight(table: FluidTable, state: FluidState, order: Numbers) -> None:
    """Note the GPUs whose memory does not hold all jobs of an order."""
    _let_go(state)
    for p in range(len(order)):
        _hold(table, state, order[p])
    last = len(state.inside)
    state.tight[last] = 0
    for g in range(last):
        over = state.inside[g] > 1 and state.held[g] + state.largest[g] > table.memory[g]
        state.tight[g] = 1 if over else 0
        state.tight[last] += state.tight[g]


def set_rates(table: FluidTable, state: FluidState, order: Numbers, now_us: float) -> None:
    """Work out how fast each job goes now, those in front first; 0 for those that wait."""
    for r in range(len(state.free)):
        state.free[r] = 1.0
    tight = state.tight[len(state.inside)] > 0
    if tight:
        _let_go(state)
        for p in range(len(order)):
            if state.begun[p]:
                _hold(table, state, order[p])
    for p in range(len(order)):
        k = order[p]
        state.rate[p] = 0.0
        if state.remaining[p] <= 0.0 or table.release_us[k] > now_us:
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


@kernel()
def run_fluid(table: FluidTable, state: FluidState, order: Numbers) -> int:
    """Work out when each job ends.

    Parameters
    ----------
    table
        Jobs on GPUs.
    state
        The iterations that remain are given, none of them 0.
    order
        Numbers of the jobs, those that come first in front.

    Returns
    -------
    int
        How often rates changed.
    """
    find_tight(table, state, order)
    now_us, left, changes = 0.0, len(order), 0
    for p in range(len(order)):
        state.begun[p] = 0
    while left > 0:
        set_rates(table, state, order, now_us)
        changes += 1
        step_us = -1.0
        for p in range(len(order)):
            until_us = -1.0
            if state.rate[p] > 0.0:
                until_us = state.remaining[p] / state.rate[p]
            elif table.release_us[order[p]] > now_us:
                until_us = table.release_us[order[p]] - now_us
            if until_us >= 0.0 and (step_us < 0.0 or until_us < step_us):
                step_us = until_us
        for p in range(len(order)):
            if state.rate[p] <= 0.0:
                continue
            lasts_us = state.remaining[p] / state.rate[p]
            state.remaining[p] -= state.rate[p] * step_us
            state.begun[p] = 1
            if lasts_us <= step_us * (1.0 + 1e-9):
                state.end_us[p], state.remaining[p], state.begun[p] = now_us + step_us, 0.0, 0
                left -= 1
        now_us += step_us
    return changes
