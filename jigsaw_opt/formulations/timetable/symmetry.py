"""Symmetry breaking: jobs, servers and GPUs that are alike stand in one order.

Identical data-parallel jobs end in their order. Servers that could be swapped have falling lists of how many workers
they hold, and the GPUs of one server of which workers and slots. Every plan has a twin that is so ordered: renaming
jobs does not change which ends there are, renaming servers changes no end, and renaming GPUs of a server neither an end
nor a server's list.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.model import TimetableModel
from jigsaw_opt.formulations.timetable.variables import JobVariables
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.rules.keyed import altered


def identical_jobs(operations: Operations) -> list[list[int]]:
    """Return the jobs in groups that differ in nothing but their name."""
    groups: list[list[int]] = []
    capacities = operations.instance.scarce_capacities
    nameless = [(replace(job, name=""), [own.amounts.get(job.name) for own in capacities]) for job in operations.jobs]
    for j, job in enumerate(nameless):
        group = next((group for group in groups if nameless[group[0]] == job), None)
        if group is None:
            groups.append([j])
        else:
            group.append(j)
    return groups


def identical_servers(eligibility: GpuEligibility) -> list[list[int]]:
    """Return the servers in groups whose swap changes nothing: alike, on equal links to one neighbour.

    In a ring over a cluster without cycles the order of the servers is of no effect; elsewhere it decides
    which routes are taken, and every server is a group of its own, as where policies or power caps name servers.
    """
    cluster = eligibility.operations.cluster
    policed = eligibility.operations.instance.policed
    # In a forest every route is the only path, so two leaves at one neighbour may change places. Policies and power
    # caps name servers, and a swap might change what they say.
    forest = len(eligibility.sides) == len(cluster.links) and not policed and not cluster.capacities
    groups: dict[Hashable, list[int]] = {}
    for s, server in enumerate(cluster.servers):
        cables = [
            (end, link.bandwidth, link.latency_us)
            for link in cluster.links
            for end in link.ends
            if server.name in link.ends and end != server.name
        ]
        alike = forest and len(cables) <= 1
        groups.setdefault((altered(server, name=""), *cables) if alike else s, []).append(s)
    return list(groups.values())


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
