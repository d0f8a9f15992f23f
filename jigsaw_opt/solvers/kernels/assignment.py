"""State of the annealing of assignments: candidate server sets, and which of them every job has."""

from __future__ import annotations

from typing import NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers, Reals

__all__ = ["Buffers", "CandidateSets", "GroupAssignment"]


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
