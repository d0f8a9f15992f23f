"""Things that are alike, and one order in which they stand.

Identical jobs end in their order. Servers that could be swapped have falling lists of workers by job, and so have the
GPUs of one server. Every plan has a twin that is so ordered: renaming jobs does not change which ends there
are, renaming servers changes no end, and renaming GPUs of a server neither an end nor a server's list.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_timetable.channel import Network
from jigsaw_opt.formulations.cpsat_timetable.variables import JobVariables
from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.problem.plan import JobPlan
from jigsaw_opt.problem.timetable import Timetable, job_end

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat_timetable.variables import Expression

__all__ = ["add_order", "identical_jobs", "ordered_twin"]


def add_order(model: cp_model.CpModel, network: Network, jobs: Sequence[JobVariables]) -> None:
    """Order identical jobs, identical servers, and the GPUs of a server."""
    ground = network.ground
    for group in identical_jobs(ground.pieces):
        for j, k in pairwise(group):
            model.add(jobs[j].ends[-1] <= jobs[k].ends[-1])
    for servers in identical_servers(network):
        for s, r in pairwise(servers):
            users = [it for it in jobs if s in it.used]
            _falling(model, [(sum(it.on_server(ground, s)), sum(it.on_server(ground, r))) for it in users])
    for gpus in ground.by_server:
        for g, h in pairwise(gpus):
            _falling(model, [(it.here[g], it.here[h]) for it in jobs if g in it.here])


def _falling(model: cp_model.CpModel, pairs: Iterable[tuple[Expression, Expression]]) -> None:
    """The list of the first entries is lexicographically no smaller than that of the second ones."""
    equal: list[cp_model.IntVar] = []
    for first, second in pairs:
        still = model.new_bool_var("")
        model.add(first >= second).only_enforce_if(equal)
        model.add(first >= second + 1).only_enforce_if([*equal, ~still])
        equal = [still]


def ordered_twin(network: Network, timetable: Timetable) -> list[tuple[JobPlan, list[int]]]:
    """For each job, the part of a timetable that it takes in its ordered twin, and the GPUs of its workers there."""
    plans = list(timetable.jobs)
    for group in identical_jobs(network.ground.pieces):
        for j, plan in zip(group, sorted((plans[k] for k in group), key=job_end), strict=True):
            plans[j] = plan
    gpus = [[network.ground.index[name] for name in plan.gpus] for plan in plans]
    names = _gpu_names(network, [set(row) for row in gpus])
    return [(plan, [names[g] for g in row]) for plan, row in zip(plans, gpus, strict=True)]


def _gpu_names(network: Network, placed: Sequence[set[int]]) -> dict[int, int]:
    """What each GPU is called in the ordered twin, given the GPUs of each job."""
    by_server = network.ground.by_server
    names: dict[int, int] = {}
    for servers in identical_servers(network):
        lists = {s: [len(row.intersection(by_server[s])) for row in placed] for s in servers}
        for s, old in zip(servers, sorted(servers, key=lists.__getitem__, reverse=True), strict=True):
            columns = {g: [g in row for row in placed] for g in by_server[old]}
            names.update(zip(sorted(columns, key=columns.__getitem__, reverse=True), by_server[s], strict=True))
    return names


def identical_jobs(pieces: Pieces) -> list[list[int]]:
    """Jobs in groups that differ in nothing but their name."""
    groups: list[list[int]] = []
    nameless = [replace(job, name="") for job in pieces.jobs]
    for j, job in enumerate(nameless):
        group = next((group for group in groups if nameless[group[0]] == job), None)
        if group is None:
            groups.append([j])
        else:
            group.append(j)
    return groups


def identical_servers(network: Network) -> list[list[int]]:
    """Servers in groups whose swap changes nothing: alike, and on equal links to the same neighbour.

    In a ring over a cluster without cycles the order of the servers is of no effect; elsewhere it decides
    which routes are taken, and every server is a group of its own.
    """
    cluster = network.cluster
    forest = len(network.sides) == len(cluster.links)
    groups: dict[Hashable, list[int]] = {}
    for s, server in enumerate(cluster.servers):
        cables = [
            (end, link.bandwidth, link.latency_us)
            for link in cluster.links
            for end in link.ends
            if server.name in link.ends and end != server.name
        ]
        alike = forest and len(cables) <= 1
        groups.setdefault((replace(server, name=""), *cables) if alike else s, []).append(s)
    return list(groups.values())
