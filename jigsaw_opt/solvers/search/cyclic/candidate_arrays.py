"""Candidate server sets of all jobs as flat lists, for the annealing of assignments."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.solvers.engines.compiled import Reals
from jigsaw_opt.solvers.kernels.assignment_annealing import CandidateSets
from jigsaw_opt.solvers.search.cyclic.candidate_table import CandidateSet

if TYPE_CHECKING:
    from jigsaw_opt.solvers.search.cyclic.hierarchy import HierarchicalAssignment

__all__ = ["CandidateArrays", "Choices"]


class Choices:
    """Candidate server sets of all jobs that ask the same, with the shares of servers and links that they take.

    Sets within one group and buddy-allocated there come alone where there are such.
    """

    def __init__(self, candidate_sets: Sequence[CandidateSet], hierarchy: HierarchicalAssignment, index: int) -> None:
        group_of = [hierarchy.common_group(candidate_set.servers) for candidate_set in candidate_sets]
        nested = [
            group is not None and hierarchy.buddy_allocated(b.servers)
            for b, group in zip(candidate_sets, group_of, strict=True)
        ]
        inside = [group is not None for group in group_of]
        kept = nested if any(nested) else inside if any(inside) else [True] * len(candidate_sets)
        self.candidate_sets = [candidate_set for candidate_set, keep in zip(candidate_sets, kept, strict=True) if keep]
        self.group_of = [group for group, keep in zip(group_of, kept, strict=True) if keep]
        self.takes = [
            list(hierarchy.takes(index, candidate_set)) for candidate_set in checking_deadline(self.candidate_sets)
        ]


class CandidateArrays:
    """The candidate server sets of all classes in flat lists.

    `job_class`: by job, the number of its class.
    """

    def __init__(
        self, job_class: Sequence[int], choices: Sequence[Choices], groups: Sequence[Sequence[int]], servers: int
    ) -> None:
        self.first = [0, *accumulate(len(own.candidate_sets) for own in choices)]
        group_of = [group for own in choices for group in own.group_of]
        takes = [take for own in choices for take in own.takes]
        candidate_sets = [candidate_set for own in choices for candidate_set in own.candidate_sets]
        taken: list[set[int]] = [set() for _ in groups]
        for group, own_takes in zip(group_of, takes, strict=True):
            if group is not None:
                taken[group].update(resource for resource, _ in own_takes)
        within: list[int] = []
        within_from, within_to = [0] * (len(choices) * len(groups)), [0] * (len(choices) * len(groups))
        at: list[int] = []
        at_from, at_to = [0] * (len(choices) * servers), [0] * (len(choices) * servers)
        for k, own in enumerate(choices):
            of_group: dict[int | None, list[int]] = {}
            at_server: dict[int, list[int]] = {}
            for number, (candidate_set, group) in enumerate(
                zip(own.candidate_sets, own.group_of, strict=True), self.first[k]
            ):
                of_group.setdefault(group, []).append(number)
                for server in candidate_set.servers:
                    at_server.setdefault(server, []).append(number)
            for group, numbers in of_group.items():
                for g in range(len(groups)) if group is None else (group,):
                    if group is not None or g not in of_group:
                        cell = k * len(groups) + g
                        within_from[cell], within_to[cell] = len(within), len(within) + len(numbers)
                within += numbers
            for server, numbers in at_server.items():
                cell = k * servers + server
                at_from[cell], at_to[cell] = len(at), len(at) + len(numbers)
                at += numbers
        self.options = CandidateSets(
            job_class=list(job_class),
            group_of=[-1 if group is None else group for group in group_of],
            take_at=[0, *accumulate(map(len, takes))],
            resource=[resource for own in takes for resource, _ in own],
            server_at=[0, *accumulate(len(candidate_set.servers) for candidate_set in candidate_sets)],
            server=[server for candidate_set in candidate_sets for server in candidate_set.servers],
            within_from=within_from,
            within_to=within_to,
            within=within or [0],
            at_from=at_from,
            at_to=at_to,
            at=at or [0],
            group_at=[0, *accumulate(map(len, groups))],
            member=[server for inside in groups for server in inside],
            inside_at=[0, *accumulate(map(len, taken))],
            inside=[resource for inside in taken for resource in sorted(inside)] or [0],
        )
        self.amount: Reals = [amount for own in takes for _, amount in own]
