"""Jobs of an instance at rates, on the GPUs that they have or may have."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from jigsaw_opt.problem.cluster import Server
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.operations import compile_instance
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.workload import LARGEST
from jigsaw_opt.solvers.assignments.layout import Layout, demands
from jigsaw_opt.solvers.phased.rate_jobs import RateJob, RateJobs
from jigsaw_opt.solvers.phased.shelves import cyclic_part, iteration_counts
from jigsaw_opt.solvers.search.candidates import CandidateGenerator
from jigsaw_opt.solvers.search.problem_data import ProblemData
from jigsaw_opt.solvers.search.state.partial_placement import PartialPlacement

__all__ = ["RateModel", "kind_of"]

_ITERATIONS = 16
"""Iterations over which levels are averaged, of the job with most iterations; others have fewer in proportion."""
_MOST_MOVING = 4_000_000
"""Largest product of jobs and GPUs for which jobs move, since each may be anywhere at any time."""
_MOST_OPTIONS = 8
"""Largest number of sets of GPUs on several servers that are offered to a job which may move."""


class RateModel:
    """Makes jobs at rates.

    Parameters
    ----------
    instance
        Of the finite horizon, each of its jobs with a plan if it is alone.
    rng
        Source of random numbers.

    Attributes
    ----------
    rate_jobs
        Says when they end.
    gpus
        Number of GPUs.
    """

    def __init__(self, instance: Instance, rng: random.Random) -> None:
        self._jobs = instance.data_parallel
        part = cyclic_part(instance, iteration_counts({job.name: job.iterations for job in self._jobs}, _ITERATIONS))
        self._data = _data(part)
        # Jobs that do not fit into memory together may still run in turn, so only their load says where another one
        # goes.
        self._ample = PartialPlacement(_data(_with_ample_memory(part)), rigid=False)
        self._generator = CandidateGenerator(self._ample.data, rng)
        layout = self._data.layout
        self._servers = instance.cluster.servers
        kinds = {server.name: kind_of(server) for server in self._servers}
        self.rate_jobs = RateJobs({name: layout.memory[gpu] for name, gpu in self._data.number.items()}, kinds)
        self._name = {gpu: name for name, gpu in self._data.number.items()}
        self.gpus = len(self._name)
        self._known: dict[tuple[int, tuple[int, ...]], RateJob | None] = {}

    def on(self, index: int, gpus: Sequence[str]) -> RateJob | None:
        """Return a job on GPUs; None where memory does not admit it even alone.

        Parameters
        ----------
        index
            Index of the job among the data-parallel ones.
        gpus
            Names of its GPUs.
        """
        return self._made(index, [self._data.number[gpu] for gpu in gpus])

    def anywhere(self) -> list[RateJob] | None:
        """Return every job on some GPUs, whatever the others do; None where one finds none."""
        found = [self._moving(index) or next(self.elsewhere(index, ()), None) for index in range(len(self._jobs))]
        known = [job for job in found if job is not None]
        return known if len(known) == len(found) else None

    def elsewhere(self, index: int, placed: Sequence[RateJob | None]) -> Iterator[RateJob]:
        """Yield a job on a few other sets of GPUs with little load of the others, as far as they are placed.

        Parameters
        ----------
        index
            Index of the job among the data-parallel ones.
        placed
            By index, the other jobs on their GPUs; None or missing for those that are not placed.
        """
        for other, job in enumerate(placed):
            if job is not None and other != index:
                assignment = self._ample.assignment(other, [self._data.number[gpu] for gpu in job.gpus])
                if assignment is not None:
                    levels = [max(column) for column in zip(*assignment.plan.rows, strict=True)]
                    self._ample.place(other, assignment, levels)
        found = [self._made(index, gpus) for gpus in self._generator.of(self._ample, index)]
        # `_ample` is shared by all calls and is empty between them.
        for other, assignment in enumerate(self._ample.assignments):
            if assignment is not None:
                self._ample.unplace(other)
        yield from (job for job in found if job is not None)

    def _made(self, index: int, gpus: Sequence[int]) -> RateJob | None:
        key = index, tuple(gpus)
        if key not in self._known:
            self._known[key] = self._of_relaxation(index, gpus)
        return self._known[key]

    def _of_relaxation(self, index: int, gpus: Sequence[int]) -> RateJob | None:
        assignment = PartialPlacement(self._data).assignment(index, gpus)
        if assignment is None:
            return None
        graph, job, layout = assignment.job, self._jobs[index], self._data.layout
        # `exchange` lists a period of several iterations; loads are those of the mean iteration.
        exchange_us = sum(map(sum, assignment.exchange)) / graph.iterations
        loads = [*zip(assignment.gpus, map(float, assignment.slot_us), strict=True)]
        loads += [(len(layout.gpus) + link, exchange_us) for link in assignment.links if exchange_us]
        names = tuple(self._name[gpu] for gpu in assignment.gpus)
        own = job.iterations, job.weight, job.release_us, job.deadline_us
        sizes = graph.state_bytes, graph.activation_bytes[-1]
        used = tuple((resource, load_us) for resource, load_us in loads if load_us)
        return RateJob(job.name, *own, names, max(1, assignment.iteration_us), used, *sizes, job.restart_us)

    def _moving(self, index: int) -> RateJob | None:
        """Return a job that may move, on any GPUs of one server, or of consecutive servers; None for other jobs."""
        job = self._jobs[index]
        if job.restart_us is None or len(self._jobs) * len(self._name) > _MOST_MOVING:
            return None
        options: list[RateJob] = []
        # One server stands for all of its kind: reversed, the dictionary keeps the first one of each.
        for server in {kind_of(each): each for each in reversed(self._servers) if each.gpus >= job.workers}.values():
            option = self.on(index, [f"{server.name}/{k}" for k in range(job.workers)])
            options += [replace(option, anywhere=True)] if option is not None else []
        if not options:
            options = [*self._across(index)]
        options.sort(key=lambda option: option.iteration_us)
        return replace(options[0], anywhere=False, options=tuple(options)) if options else None

    def _across(self, index: int) -> Iterator[RateJob]:
        """Yield a job on the GPUs of consecutive servers, from some first servers in turn."""
        names = [(s, f"{server.name}/{k}") for s, server in enumerate(self._servers) for k in range(server.gpus)]
        # Rounded up, the step leaves at most `_MOST_OPTIONS` first servers.
        width, step = self._jobs[index].workers, -(-len(self._servers) // _MOST_OPTIONS)
        for first in range(0, len(self._servers), step):
            gpus = [name for s, name in names if s >= first][:width]
            option = self.on(index, gpus) if len(gpus) == width else None
            if option is not None:
                yield option


def kind_of(server: Server) -> tuple[str, int, int, int]:
    """Return a key that servers of one kind share."""
    return server.gpu_type, server.gpu_memory, server.fabric_bandwidth, server.fabric_latency_us


def _with_ample_memory(instance: Instance) -> Instance:
    """Return the instance with as much memory on every GPU as a document can state."""
    servers = tuple(altered(server, gpu_memory=LARGEST) for server in instance.cluster.servers)
    return altered(instance, cluster=altered(instance.cluster, servers=servers))


def _data(part: Instance) -> ProblemData:
    operations = compile_instance(part)
    asked = demands(operations)
    assert asked is not None, "some job alone has no plan, which is said before"
    return ProblemData(operations, Layout(operations), asked)
