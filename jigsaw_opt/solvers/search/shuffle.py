"""Jobs moved about between berths by simulated annealing, on flat numbers.

Python runs `shuffle`, or numba has compiled it (`engines.compiled`). It draws its own numbers, by multiplication modulo
the prime 2^31 - 1 (Park and Miller, 1988), and takes exponential ones from a table, so both do the same.
"""

from __future__ import annotations

from math import log
from typing import Any, NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers, Reals, compilable

__all__ = ["EXPONENTIALS", "LARGEST_SEED", "Options", "State", "shuffle"]

LARGEST_SEED = 2**31 - 2
_EXCHANGE_SHARE = 2
"""One in so many changes moves a job alone; the others move two."""

EXPONENTIALS = [-log((k + 0.5) / 4096) for k in range(4096)]
"""Quantiles of the exponential distribution of mean 1."""


class Options(NamedTuple):
    """What may be: berths of all jobs, jobs that ask the same (a *kind*) sharing theirs.

    Parameters
    ----------
    kind
        By job.
    home
        By berth: its group, or -1.
    take_at, resource
        Resources that a berth takes are ``resource[take_at[b]:take_at[b + 1]]``.
    server_at, server
        Likewise its servers.
    within_from, within_to, within
        Berths of a kind in a group, or outside of all where it has none inside, by kind and group.
    at_from, at_to, at
        Berths of a kind with a server, by kind and server.
    group_at, member
        Servers of a group.
    """

    kind: Numbers
    home: Numbers
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


class State(NamedTuple):
    """What is.

    Parameters
    ----------
    now
        Berth of every job.
    guests
        How many jobs each server has.
    guest
        Which, in rows of one length.
    """

    now: Numbers
    guests: Numbers
    guest: Numbers


def shuffle(
    options: Options,
    amount: Reals,
    jobs: Numbers,
    groups: Numbers,
    steps: int,
    hot: float,
    cooling: float,
    exponentials: Reals,
    seed: int,
    load: Reals,
    state: State,
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
    hot
        By how much the sum may well rise in the first step.
    cooling
        Times this from step to step.
    exponentials
        `EXPONENTIALS`.
    seed
        Of all chance, from 1 to `LARGEST_SEED`.
    load
        By resource; changes.
    state
        See there; changes.

    Returns
    -------
    int
        How many changes were kept.
    """
    kind, home, take_at, resource, server_at, server = options[:6]
    within_from, within_to, within, at_from, at_to, at, group_at, member = options[6:]
    now, guests, guest = state
    servers, width = len(guests), len(guest) // len(guests)
    all_groups = len(group_at) - 1
    change, touched = [0.0] * len(load), [0]
    moved, target = [0, 0], [0, 0]
    kept = 0
    temperature = hot / cooling
    for _ in range(steps):
        temperature *= cooling
        # A job of some server, the sooner the more servers it has: what is left is settled by the wide ones.
        seed = seed * 48271 % 2147483647
        g = groups[seed % len(groups)]
        seed = seed * 48271 % 2147483647
        s = member[group_at[g] + seed % (group_at[g + 1] - group_at[g])]
        seed = seed * 48271 % 2147483647
        j = guest[s * width + seed % guests[s]] if guests[s] > 0 else jobs[seed % len(jobs)]
        if home[now[j]] < 0:
            seed = seed * 48271 % 2147483647
            j = jobs[seed % len(jobs)]
        seed = seed * 48271 % 2147483647
        cell = kind[j] * all_groups + groups[seed % len(groups)]
        if within_from[cell] == within_to[cell]:
            continue
        seed = seed * 48271 % 2147483647
        moved[0] = j
        target[0] = within[within_from[cell] + seed % (within_to[cell] - within_from[cell])]
        count = 1
        seed = seed * 48271 % 2147483647
        if seed % _EXCHANGE_SHARE > 0:
            # A job at the berth that this one comes to goes where this one was.
            b = target[0]
            seed = seed * 48271 % 2147483647
            s = server[server_at[b] + seed % (server_at[b + 1] - server_at[b])]
            if guests[s] > 0:
                seed = seed * 48271 % 2147483647
                other = guest[s * width + seed % guests[s]]
                b = now[j]
                seed = seed * 48271 % 2147483647
                s = server[server_at[b] + seed % (server_at[b + 1] - server_at[b])]
                cell = kind[other] * servers + s
                if other != j and at_from[cell] < at_to[cell] and home[now[other]] >= 0:
                    seed = seed * 48271 % 2147483647
                    moved[1], target[1] = other, at[at_from[cell] + seed % (at_to[cell] - at_from[cell])]
                    count = 2
        touched.clear()
        for m in range(count):
            for n in range(take_at[now[moved[m]]], take_at[now[moved[m]] + 1]):
                if change[resource[n]] == 0.0:
                    touched.append(resource[n])
                change[resource[n]] -= amount[n]
            for n in range(take_at[target[m]], take_at[target[m] + 1]):
                if change[resource[n]] == 0.0:
                    touched.append(resource[n])
                change[resource[n]] += amount[n]
        rise = 0.0
        for r in touched:
            # One that was back at 0 in between is there twice.
            if change[r] != 0.0:
                before = load[r] - 1.0
                after = before + change[r]
                change[r] = 0.0
                if before > 0.0:
                    rise -= before * before
                if after > 0.0:
                    rise += after * after
        seed = seed * 48271 % 2147483647
        if rise > temperature * exponentials[seed % len(exponentials)]:
            continue
        full = False
        for m in range(count):
            for n in range(server_at[target[m]], server_at[target[m] + 1]):
                full = full or guests[server[n]] + count > width
        if full:
            continue
        for m in range(count):
            j = moved[m]
            for n in range(take_at[now[j]], take_at[now[j] + 1]):
                load[resource[n]] -= amount[n]
            for n in range(server_at[now[j]], server_at[now[j] + 1]):
                s = server[n]
                k = s * width
                while guest[k] != j:
                    k += 1
                guests[s] -= 1
                guest[k] = guest[s * width + guests[s]]
            now[j] = target[m]
            for n in range(take_at[now[j]], take_at[now[j] + 1]):
                load[resource[n]] += amount[n]
            for n in range(server_at[now[j]], server_at[now[j] + 1]):
                s = server[n]
                guest[s * width + guests[s]] = j
                guests[s] += 1
        kept += 1
    return kept


def _types(numba: Any) -> Any:
    integer, numbers, real, reals = numba.int64, numba.int64[::1], numba.float64, numba.float64[::1]
    options, state = (numba.types.NamedUniTuple(numbers, len(kind._fields), kind) for kind in (Options, State))
    return integer(options, reals, numbers, numbers, integer, real, real, reals, integer, reals, state)


compilable(shuffle, _types)
