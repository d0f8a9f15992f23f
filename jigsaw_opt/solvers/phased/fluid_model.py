"""Jobs of an instance as fluids, on the GPUs that they have or may have."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.operations import cut
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.assignments.layout import Layout, demands
from jigsaw_opt.solvers.phased.fluid import FluidJob, FluidJobs
from jigsaw_opt.solvers.phased.shelves import cyclic_part, iteration_counts
from jigsaw_opt.solvers.search.candidates import CandidateGenerator
from jigsaw_opt.solvers.search.problem_data import ProblemData
from jigsaw_opt.solvers.search.state.partial_placement import PartialPlacement

__all__ = ["FluidModel"]

_ITERATIONS = 16
"""Of the job with most of them; levels are averaged over so many, and the others have fewer in proportion."""
_AMPLE = 2**53 - 1


class FluidModel:
    """Makes fluid jobs.

    Parameters
    ----------
    instance
        Of the finite horizon, each of its jobs with a plan if it is alone.
    rng
        Source of chance.

    Attributes
    ----------
    fluids
        Says when they end.
    """

    def __init__(self, instance: Instance, rng: random.Random) -> None:
        self._jobs = instance.data_parallel
        part = cyclic_part(instance, iteration_counts({job.name: job.iterations for job in self._jobs}, _ITERATIONS))
        ample = tuple(altered(server, gpu_memory=_AMPLE) for server in instance.cluster.servers)
        self._data = _data(part)
        self._ample = PartialPlacement(_data(altered(part, cluster=altered(part.cluster, servers=ample))), rigid=False)
        self._generator = CandidateGenerator(self._ample.data, rng)
        layout = self._data.layout
        self.fluids = FluidJobs({name: layout.memory[gpu] for name, gpu in self._data.number.items()})
        self._name = {gpu: name for name, gpu in self._data.number.items()}
        self._known: dict[tuple[int, tuple[int, ...]], FluidJob | None] = {}

    def on(self, index: int, gpus: Sequence[str]) -> FluidJob | None:
        """A job on GPUs by name; None where memory does not admit it even alone."""
        return self._made(index, [self._data.number[gpu] for gpu in gpus])

    def anywhere(self) -> list[FluidJob] | None:
        """Every job on some GPUs, whatever the others do; None where one finds none."""
        found = [next(self.elsewhere(index, ()), None) for index in range(len(self._jobs))]
        known = [job for job in found if job is not None]
        return known if len(known) == len(found) else None

    def elsewhere(self, index: int, placed: Sequence[FluidJob | None]) -> Iterator[FluidJob]:
        """A job on a few other sets of GPUs that the others, as far as they are placed, load little."""
        for other, job in enumerate(placed):
            if job is not None and other != index:
                assignment = self._ample.assignment(other, [self._data.number[gpu] for gpu in job.gpus])
                if assignment is not None:
                    levels = [max(column) for column in zip(*assignment.plan.rows, strict=True)]
                    self._ample.place(other, assignment, levels)
        found = [self._made(index, gpus) for gpus in self._generator.of(self._ample, index)]
        for other, assignment in enumerate(self._ample.assignments):
            if assignment is not None:
                self._ample.unplace(other)
        yield from (job for job in found if job is not None)

    def _made(self, index: int, gpus: Sequence[int]) -> FluidJob | None:
        key = index, tuple(gpus)
        if key not in self._known:
            self._known[key] = self._fluid(index, gpus)
        return self._known[key]

    def _fluid(self, index: int, gpus: Sequence[int]) -> FluidJob | None:
        assignment = PartialPlacement(self._data).assignment(index, gpus)
        if assignment is None:
            return None
        graph, job, layout = assignment.job, self._jobs[index], self._data.layout
        exchange_us = sum(map(sum, assignment.exchange)) / graph.iterations
        loads = [*zip(assignment.gpus, map(float, assignment.slot_us), strict=True)]
        loads += [(len(layout.gpus) + link, exchange_us) for link in assignment.links if exchange_us]
        names = tuple(self._name[gpu] for gpu in assignment.gpus)
        own = job.iterations, job.weight, job.release_us, job.deadline_us
        sizes = graph.state_bytes, graph.activation_bytes[-1]
        used = tuple((resource, load_us) for resource, load_us in loads if load_us)
        return FluidJob(job.name, *own, names, max(1, assignment.iteration_us), used, *sizes)


def _data(part: Instance) -> ProblemData:
    operations = cut(part)
    asked = demands(operations)
    assert asked is not None, "some job alone has no plan, which is said before"
    return ProblemData(operations, Layout(operations), asked)
