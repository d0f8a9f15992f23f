"""Symmetry breaking: jobs, servers and GPUs that are alike stand in one order.

Identical data-parallel jobs end in their order. Servers that could be swapped have falling lists of how many workers
they hold, and the GPUs of one server of which workers and slots. Every plan has a twin that is so ordered: renaming
jobs does not change which ends there are, renaming servers changes no end, and renaming GPUs of a server neither an end
nor a server's list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.model import TimetableModel
from jigsaw_opt.formulations.timetable.network import identical_jobs, identical_servers
from jigsaw_opt.formulations.timetable.variables import JobVariables


class Pair(NamedTuple):
    """What one job or slot has of two servers or GPUs that are alike: literals, of which at most `most` hold."""

    first: Sequence[Any]
    second: Sequence[Any]
    most: int


def add_order_of_jobs(
    model: TimetableModel, eligibility: GpuEligibility, jobs: Sequence[JobVariables[Any, Any]]
) -> None:
    """Order identical jobs by their ends."""
    for group in identical_jobs(eligibility.operations):
        for j, k in pairwise(group):
            model.add(jobs[j].ends[-1] <= jobs[k].ends[-1], f"alike_jobs_{j}_{k}")


def alike_servers(
    eligibility: GpuEligibility, jobs: Sequence[JobVariables[Any, Any]]
) -> Iterator[tuple[str, list[Pair]]]:
    """Yield neighbours among identical servers: a name, and what the jobs have of both."""
    by_server = eligibility.by_server
    for servers in identical_servers(eligibility):
        for s, r in pairwise(servers):
            pairs = [
                Pair(
                    _held(job_vars.assigned, by_server[s]),
                    _held(job_vars.assigned, by_server[r]),
                    min(job_vars.job.slots, len(by_server[s])),
                )
                for job_vars in jobs
                if s in job_vars.used
            ]
            yield f"alike_servers_{s}_{r}", pairs


def alike_gpus(eligibility: GpuEligibility, holders: Sequence[Mapping[int, Any]]) -> Iterator[tuple[str, list[Pair]]]:
    """Yield neighbours among the GPUs of a server: a name, and who has either.

    `holders`: literals by GPU of all who may hold one, jobs or slots.
    """
    for g, h in (pair for gpus in eligibility.by_server for pair in pairwise(gpus)):
        yield f"alike_gpus_{g}_{h}", [Pair([holder[g]], [holder[h]], 1) for holder in holders if g in holder]


def _held(holder: Mapping[int, Any], gpus: Iterable[int]) -> list[Any]:
    """Return the literals of some GPUs."""
    return [holder[g] for g in gpus if g in holder]
