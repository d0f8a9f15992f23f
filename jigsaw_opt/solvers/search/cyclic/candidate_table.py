"""Which server sets a job is offered, and all of them as flat lists."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, Protocol

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.solvers.engines.compiled import Reals
from jigsaw_opt.solvers.kernels.assignment_annealing import CandidateSets
from jigsaw_opt.solvers.placement.assignment import Assignment, ProblemData
from jigsaw_opt.solvers.placement.candidates import CandidateGenerator
from jigsaw_opt.solvers.placement.state import PartialPlacement

if TYPE_CHECKING:
    from jigsaw_opt.solvers.search.cyclic.hierarchy import HierarchicalAssignment


class InsertionPolicy(Protocol):
    """Offers of assignments for jobs."""

    def assignments(self, placement: PartialPlacement, index: int) -> Iterable[Assignment]:
        """Return where a job may be inserted, in the order in which to try.

        Parameters
        ----------
        placement
            The jobs that are placed so far.
        index
            Index of the job.
        """

    def target(self, index: int) -> Assignment:
        """Return an assignment at which room may be made for a job."""


class FixedPolicy:
    """Every job has one assignment."""

    def __init__(self, assignments: Sequence[Assignment]) -> None:
        self._assignments = assignments

    def assignments(self, placement: PartialPlacement, index: int) -> Iterable[Assignment]:
        """Return the one assignment of a job."""
        return (self._assignments[index],)

    def target(self, index: int) -> Assignment:
        """Return the assignment."""
        return self._assignments[index]


class CandidateSet(NamedTuple):
    """Servers for a job, and the job there if it is alone on them.

    `alone`: the job on their first GPUs. `length, exchange`: time of all its iterations, and of all its transfers, in
    microseconds.
    """

    servers: tuple[int, ...]
    alone: Assignment
    length: int
    exchange: int


class CandidateTable:
    """All candidate server sets of all jobs: single servers, or buddy-allocated blocks of them for a wider job."""

    def __init__(self, data: ProblemData) -> None:
        self.data = data
        self._generator = CandidateGenerator(data, random.Random(0))
        self._by_class: dict[int, list[CandidateSet]] = {}

    def of(self, index: int) -> list[CandidateSet]:
        """Return all candidate sets of a job; one list for all jobs that ask the same."""
        key = id(self.data.demands[index])
        if key not in self._by_class:
            candidate_sets = [
                self._candidate_set(index, servers) for servers in checking_deadline(self._generator.blocks(index))
            ]
            self._by_class[key] = [candidate_set for candidate_set in candidate_sets if candidate_set is not None]
        return self._by_class[key]

    @property
    def complete(self) -> bool:
        """Return whether every job has a candidate set.

        Under a route policy none may be found, though there is a place.
        """
        return all(map(self.of, range(len(self.data.operations.jobs))))

    def assignment(
        self, placement: PartialPlacement, index: int, candidate_set: CandidateSet, period: int
    ) -> Assignment | None:
        """Return the job on the least loaded GPUs of a candidate set; None where they lack the memory or the time.

        `period`: largest load of a GPU, in microseconds.
        """
        inside, load = self.data.layout.on_server, placement.gpu_us
        gpus = [gpu for server in candidate_set.servers for gpu in sorted(inside[server], key=load.__getitem__)]
        chosen = self._generator.chosen(placement, index, gpus)
        assignment = None if chosen is None else placement.assignment(index, chosen)
        if assignment is None:
            return None
        iterations = assignment.job.iterations
        times = zip(assignment.gpus, assignment.slot_us, strict=True)
        return assignment if all(load[gpu] + slot_us * iterations <= period for gpu, slot_us in times) else None

    def _candidate_set(self, index: int, servers: tuple[int, ...]) -> CandidateSet | None:
        data = self.data
        job = data.operations.jobs[index]
        gpus = [gpu for server in servers for gpu in data.layout.on_server[server]][: job.slots]
        alone = data.assignment(index, data.demands[index], gpus, [job.levels] * job.slots)
        if alone is None:
            return None
        return CandidateSet(servers, alone, alone.iteration_us * job.iterations, sum(map(sum, alone.exchange)))


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
