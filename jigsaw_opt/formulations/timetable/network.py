"""Jobs and servers that could be swapped without effect."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
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
