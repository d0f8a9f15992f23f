"""State of the annealing of assignments: candidate server sets, and which of them every job has."""

from __future__ import annotations

from typing import NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers

__all__ = ["Assignment", "Buffers", "CandidateSets"]


class CandidateSets(NamedTuple):
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
    inside_at, inside
        Resources that the berths of a group take.
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
    inside_at: Numbers
    inside: Numbers


class Assignment(NamedTuple):
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


class Buffers(NamedTuple):
    """Room for one annealing to work in.

    Parameters
    ----------
    chance
        The state of chance, alone in its list: from 1 to `LARGEST_SEED`.
    moved, target
        Who moves to which berths; two each.
    touched
        How many loads change, and then which: room for what four berths take.
    """

    chance: Numbers
    moved: Numbers
    target: Numbers
    touched: Numbers
