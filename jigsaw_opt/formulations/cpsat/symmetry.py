"""Symmetry breaking: jobs, servers and GPUs that are alike stand in one order.

Identical data-parallel jobs end in their order. Servers that could be swapped have falling lists of how many workers
they hold, and the GPUs of one server of which workers and slots. Every plan has a twin that is so ordered: renaming
jobs does not change which ends there are, renaming servers changes no end, and renaming GPUs of a server neither an end
nor a server's list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat.variables import JobVariables, TaskGraphVariables
from jigsaw_opt.formulations.timetable.network import RoutedNetwork, identical_jobs, identical_servers

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


def add_order(
    model: cp_model.CpModel,
    network: RoutedNetwork,
    jobs: Sequence[JobVariables],
    graphs: Sequence[TaskGraphVariables],
) -> None:
    """Order identical jobs, identical servers, and the GPUs of a server."""
    by_server = network.eligibility.by_server
    for group in identical_jobs(network.eligibility.operations):
        for j, k in pairwise(group):
            model.add(jobs[j].ends[-1] <= jobs[k].ends[-1])
    # Who holds a GPU: each data-parallel job, and each slot of the others.
    holders = [job_vars.assigned for job_vars in jobs] + [at for graph_vars in graphs for at in graph_vars.at]
    # Slots say nothing of the order of servers: the engine proves no sooner by that.
    for servers in identical_servers(network):
        for s, r in pairwise(servers):
            pairs = ((_held(holder, by_server[s]), _held(holder, by_server[r])) for holder in holders[: len(jobs)])
            _falling(model, [pair for pair in pairs if pair[0]])
    # Where each holds one GPU, the order says that no GPU is used before the one ahead of it. Clauses say it soonest.
    single = all(job_vars.job.slots == 1 for job_vars in jobs)
    for g, h in (pair for gpus in by_server for pair in pairwise(gpus)):
        own = [(holder[g], holder[h]) for holder in holders if g in holder]
        if not single:
            _falling(model, [([first], [second]) for first, second in own])
        for number, (_, second) in enumerate(own if single else ()):
            model.add_bool_or([~second, *(first for first, _ in own[:number])])


def _held(holder: Mapping[int, cp_model.IntVar], gpus: Iterable[int]) -> list[cp_model.IntVar]:
    """Return the literals of some GPUs."""
    return [holder[g] for g in gpus if g in holder]


def _falling(
    model: cp_model.CpModel, pairs: Sequence[tuple[Sequence[cp_model.IntVar], Sequence[cp_model.IntVar]]]
) -> None:
    """Require that the list of the first sums is lexicographically no smaller than that of the second ones."""
    equal: list[cp_model.IntVar] = []
    for ours, theirs in pairs:
        first, second = sum(ours), sum(theirs)
        # While all pairs before are equal, this one may not rise; `still` may be false only where it falls strictly.
        still = model.new_bool_var("")
        model.add(first >= second).only_enforce_if(equal)
        model.add(first >= second + 1).only_enforce_if([*equal, ~still])
        equal = [still]


def ordered_names(network: RoutedNetwork, holders: Sequence[set[int]]) -> dict[int, int]:
    """Return the number of each GPU in the ordered twin of a plan.

    `holders`: the GPUs of each data-parallel job, and then those of each slot.
    """
    by_server = network.eligibility.by_server
    names: dict[int, int] = {}
    for servers in identical_servers(network):
        # The order that `add_order` asks for: servers by falling numbers of workers, then the GPUs of each by falling
        # rows of who has a worker there.
        lists = {s: [len(row.intersection(by_server[s])) for row in holders] for s in servers}
        for s, old in zip(servers, sorted(servers, key=lists.__getitem__, reverse=True), strict=True):
            columns = {g: [g in row for row in holders] for g in by_server[old]}
            names.update(zip(sorted(columns, key=columns.__getitem__, reverse=True), by_server[s], strict=True))
    return names
