"""Which server sets a job is offered."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.solvers.placement.assignment import Assignment, ProblemData
from jigsaw_opt.solvers.placement.candidates import CandidateGenerator
from jigsaw_opt.solvers.placement.state import PartialPlacement


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
