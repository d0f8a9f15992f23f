"""Arguments about jobs with a task graph, for a program to check (docs/proofs.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jigsaw_opt.problem.bound_proof import Argument
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph

ChainStep = tuple[int, int]
"""An operation of a chain, and how many iterations it is after the one before it."""
Chain = Sequence[tuple[Sequence[ChainStep], int]]
"""A chain in parts, each with how often it is repeated."""

_MOST_STEPS = 4_000
"""Largest number of operations of a chain that are listed."""


def exclusive_argument(resource: Mapping[str, Any], head: int, tail: int) -> Argument:
    """Return the argument of operations that exclude each other, of at least a head and a tail."""
    return {"kind": "exclusive operations", "resource": resource, "head": head, "tail": tail}


def chain_argument(graph: CompiledTaskGraph, chain: Chain) -> Argument | None:
    """Return the argument of a chain of a job; None where it is too long to be listed."""
    parts, listed, passed = [], 0, 0
    names = graph.shape.operations
    for steps, times in chain:
        own = list[ChainStep]()
        for operation, lag in steps:
            passed += lag
            # Milestones take no time, and are not part of task graphs.
            if operation < graph.size:
                own.append((operation, passed))
                passed = 0
        for run, often in _runs(own) if times == 1 else [(own, times)]:
            named = [[names[operation], lag] if lag else names[operation] for operation, lag in run]
            parts.append({"operations": named, "times": often})
            listed += len(run)
    argument = {"kind": "longest chain", "job": graph.job.name, "parts": parts}
    return argument if listed <= _MOST_STEPS else None


def _runs(steps: Sequence[ChainStep]) -> Iterator[tuple[Sequence[ChainStep], int]]:
    """Yield a chain in parts, each with how often it is repeated at once."""
    next_place, following = dict[ChainStep, int](), [0] * len(steps)
    for place in reversed(range(len(steps))):
        following[place] = next_place.get(steps[place], len(steps))
        next_place[steps[place]] = place
    at = start = 0
    while at < len(steps):
        length, times = following[at] - at, 1
        while steps[at + times * length : at + (times + 1) * length] == steps[at : at + length]:
            times += 1
        if times > 1:
            if start < at:
                yield steps[start:at], 1
            yield steps[at : at + length], times
            start = at + times * length
        at = max(start, at + 1)
    if start < at:
        yield steps[start:], 1


def placements_argument(
    order: Sequence[Sequence[str]],
    servers: Sequence[str],
    bound: int,
    cases: Mapping[tuple[int, ...], Argument | None],
    without_place: Sequence[tuple[int, ...]],
) -> Argument | None:
    """Return the argument of a search over the servers of slots; None where a case has no argument.

    `order, servers`: job and name of each slot, and names of servers. `cases, without_place`: servers of the first
    slots, each with the argument for it, and those that leave no place for the next slot.
    """
    arguments, tree = dict[str, tuple[int, Argument]](), dict[str, Any]()
    for chosen in (*cases, *without_place):
        at, (*before, last) = tree, ["", *(servers[server] for server in chosen)]
        for name in before:
            at = at.setdefault(name, {})
        at[last] = {}
        if chosen in cases:
            own = cases[chosen]
            if own is None:
                return None
            at[last] = arguments.setdefault(repr(own), (len(arguments), own))[0]
    deepest = max(len(chosen) for chosen in (*cases, *((*each, 0) for each in without_place)))
    listed = [own for _, own in arguments.values()]
    first = list(order[:deepest])
    return {"kind": "placements", "bound": bound, "order": first, "arguments": listed, "tree": tree[""]}
