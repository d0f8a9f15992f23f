"""Symmetry breaking: jobs, servers and GPUs that are alike stand in one order.

Identical jobs end in their order. Servers that could be swapped have falling lists of workers by job, and so have the
GPUs of one server. Every plan has a twin that is so ordered: renaming jobs does not change which ends there
are, renaming servers changes no end, and renaming GPUs of a server neither an end nor a server's list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_timetable.variables import JobVariables
from jigsaw_opt.formulations.timetable.network import RoutedNetwork, identical_jobs, identical_servers
from jigsaw_opt.problem.compiled.timetable import Timetable, job_end
from jigsaw_opt.problem.plan import JobPlan

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat_timetable.variables import Expression


def add_order(model: cp_model.CpModel, network: RoutedNetwork, jobs: Sequence[JobVariables]) -> None:
    """Order identical jobs, identical servers, and the GPUs of a server."""
    eligibility = network.eligibility
    for group in identical_jobs(eligibility.operations):
        for j, k in pairwise(group):
            model.add(jobs[j].ends[-1] <= jobs[k].ends[-1])
    for servers in identical_servers(network):
        for s, r in pairwise(servers):
            users = [job_vars for job_vars in jobs if s in job_vars.used]
            _falling(
                model,
                [
                    (sum(job_vars.on_server(eligibility, s)), sum(job_vars.on_server(eligibility, r)))
                    for job_vars in users
                ],
            )
    for gpus in eligibility.by_server:
        for g, h in pairwise(gpus):
            _falling(
                model, [(job_vars.assigned[g], job_vars.assigned[h]) for job_vars in jobs if g in job_vars.assigned]
            )


def _falling(model: cp_model.CpModel, pairs: Iterable[tuple[Expression, Expression]]) -> None:
    """Require that the list of the first entries is lexicographically no smaller than that of the second ones."""
    equal: list[cp_model.IntVar] = []
    for first, second in pairs:
        # While all pairs before are equal, this one may not rise; `still` may be false only where it falls strictly.
        still = model.new_bool_var("")
        model.add(first >= second).only_enforce_if(equal)
        model.add(first >= second + 1).only_enforce_if([*equal, ~still])
        equal = [still]


def ordered_twin(network: RoutedNetwork, timetable: Timetable) -> list[tuple[JobPlan, list[int]]]:
    """Return by job the part of a timetable that it takes in its ordered twin, and the GPUs of its workers there."""
    plans = list(timetable.jobs)
    for group in identical_jobs(network.eligibility.operations):
        for j, plan in zip(group, sorted((plans[k] for k in group), key=job_end), strict=True):
            plans[j] = plan
    gpus = [[network.eligibility.index[name] for name in plan.gpus] for plan in plans]
    names = _gpu_names(network, [set(row) for row in gpus])
    return [(plan, [names[g] for g in row]) for plan, row in zip(plans, gpus, strict=True)]


def _gpu_names(network: RoutedNetwork, placed: Sequence[set[int]]) -> dict[int, int]:
    """Return the number of each GPU in the ordered twin, given the GPUs of each job."""
    by_server = network.eligibility.by_server
    names: dict[int, int] = {}
    for servers in identical_servers(network):
        # The order that `add_order` asks for: servers by falling numbers of workers per job, then the GPUs of each by
        # falling rows of the jobs that have a worker there.
        lists = {s: [len(row.intersection(by_server[s])) for row in placed] for s in servers}
        for s, old in zip(servers, sorted(servers, key=lists.__getitem__, reverse=True), strict=True):
            columns = {g: [g in row for row in placed] for g in by_server[old]}
            names.update(zip(sorted(columns, key=columns.__getitem__, reverse=True), by_server[s], strict=True))
    return names
