"""Parts of an instance, and the smallest of them that conflict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from jigsaw_opt.problem.operations import Operations
from jigsaw_opt.problem.rules.keyed import altered

__all__ = ["quickxplain", "restrict"]


def restrict(operations: Operations, jobs: Iterable[int]) -> Operations:
    """Return the instance with only some of its jobs, given by index in the order wanted.

    `jobs`: indices of the jobs to keep, among those of the instance.
    """
    kept = tuple(operations.instance.jobs[k] for k in jobs)
    graphs, others = (
        {job.name: job for job in operations.jobs},
        {each.job.name: each for each in operations.task_graphs},
    )
    part = replace(
        operations,
        instance=altered(operations.instance, jobs=kept),
        jobs=tuple(graphs[job.name] for job in kept if job.name in graphs),
        task_graphs=tuple(others[job.name] for job in kept if job.name in others),
    )
    part.__dict__["routes"] = operations.routes  # the same cluster: its routes stay known
    return part


def quickxplain(
    holds: Callable[[Sequence[int]], bool], given: tuple[int, ...], jobs: tuple[int, ...], grown: bool
) -> tuple[int, ...]:
    """Return those of some jobs that are in a minimal conflict (QuickXplain, Junker, AAAI 2004).

    `holds`: whether some jobs, by index, are not known to conflict. `grown`: whether the background has grown since it
    was last asked about, so that it may conflict on its own.
    """
    if grown and not holds(given):
        return ()
    if len(jobs) == 1:
        return jobs
    first, second = jobs[: len(jobs) // 2], jobs[len(jobs) // 2 :]
    right = quickxplain(holds, given + first, second, True)
    left = quickxplain(holds, given + right, first, bool(right))
    return left + right
