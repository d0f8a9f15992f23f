"""The order of what is alike, as clauses and conditional rows; and the twin of a plan that is so ordered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat.variables import InstanceVariables
from jigsaw_opt.formulations.cpsat_model import CpSatRows
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.symmetry import (
    Pair,
    add_order_of_jobs,
    alike_gpus,
    alike_servers,
    identical_servers,
)

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


def add_order(instance_vars: InstanceVariables) -> None:
    """Order identical jobs, identical servers, and the GPUs of a server."""
    model, eligibility, jobs = instance_vars.proto, instance_vars.eligibility, instance_vars.jobs
    add_order_of_jobs(CpSatRows(model), eligibility, jobs)
    # Slots say nothing of the order of servers: the engine proves no sooner by that.
    for _, pairs in alike_servers(eligibility, jobs):
        _falling(model, pairs)
    # Who holds a GPU: each data-parallel job, and each slot of the others.
    holders = [job_vars.assigned for job_vars in jobs] + [
        at for graph_vars in instance_vars.graphs for at in graph_vars.at
    ]
    # Where each holds one GPU, the order says that no GPU is used before the one ahead of it. Clauses say it soonest.
    single = all(job_vars.job.slots == 1 for job_vars in jobs)
    for _, pairs in alike_gpus(eligibility, holders):
        if not single:
            _falling(model, pairs)
        for number, pair in enumerate(pairs if single else ()):
            model.add_bool_or([~pair.second[0], *(before.first[0] for before in pairs[:number])])


def _falling(model: cp_model.CpModel, pairs: Sequence[Pair]) -> None:
    """Require that the list of the first sums is lexicographically no smaller than that of the second ones."""
    equal: list[cp_model.IntVar] = []
    for ours, theirs, _ in pairs:
        first, second = sum(ours), sum(theirs)
        # While all pairs before are equal, this one may not rise; `still` may be false only where it falls strictly.
        still = model.new_bool_var("")
        model.add(first >= second).only_enforce_if(equal)
        model.add(first >= second + 1).only_enforce_if([*equal, ~still])
        equal = [still]


def ordered_names(eligibility: GpuEligibility, holders: Sequence[set[int]]) -> dict[int, int]:
    """Return the number of each GPU in the ordered twin of a plan.

    `holders`: the GPUs of each data-parallel job, and then those of each slot.
    """
    by_server = eligibility.by_server
    names: dict[int, int] = {}
    for servers in identical_servers(eligibility):
        # The order that `add_order` asks for: servers by falling numbers of workers, then the GPUs of each by falling
        # rows of who has a worker there.
        lists = {s: [len(row.intersection(by_server[s])) for row in holders] for s in servers}
        for s, old in zip(servers, sorted(servers, key=lists.__getitem__, reverse=True), strict=True):
            columns = {g: [g in row for row in holders] for g in by_server[old]}
            names.update(zip(sorted(columns, key=columns.__getitem__, reverse=True), by_server[s], strict=True))
    return names
