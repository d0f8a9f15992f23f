"""Jobs of an instance at rates, on the GPUs that they have or may have."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.problem.workload import LARGEST
from jigsaw_opt.solvers.activities.serial_placing import SerialPlacing
from jigsaw_opt.solvers.phased.rates.jobs import RateJob, RateJobs
from jigsaw_opt.solvers.phased.shelves import cyclic_part, iteration_counts
from jigsaw_opt.solvers.placement.assignment import ProblemData
from jigsaw_opt.solvers.placement.candidates import CandidateGenerator
from jigsaw_opt.solvers.placement.layout import demands, kind_of
from jigsaw_opt.solvers.placement.state import PartialPlacement

_ITERATIONS = 16
"""Iterations over which levels are averaged, of the job with most iterations; others have fewer in proportion."""
_SCHEDULED, _OPERATIONS = 4, 1000
"""Most iterations of a task-graph job that are scheduled alone, as they may overlap and the mean of them counts; and
most operations in all of them, where one has not more already."""
_MOST_MOVING = 4_000_000
"""Largest product of jobs and GPUs for which jobs move, since each may be anywhere at any time."""
_MOST_OPTIONS = 8
"""Largest number of sets of GPUs on several servers that are offered to a job which may move."""


class RateModel:
    """Makes jobs at rates.

    `instance`: of the finite horizon, each of its jobs with a plan if it is alone. None of them moves beside a
    task-graph job, under power caps or where licences are scarce. `jobs`: jobs of the instance by index, data-parallel
    ones first.
    """

    def __init__(self, instance: Instance, rng: random.Random) -> None:
        own = instance.data_parallel_jobs
        self.jobs: tuple[Job | TaskGraphJob, ...] = (*own, *instance.task_graph_jobs)
        self._may_move = not (instance.task_graph_jobs or instance.cluster.capacities or instance.scarce_capacities)
        counts = iteration_counts({job.name: job.iterations for job in own}, _ITERATIONS)
        part = cyclic_part(instance, counts | {job.name: 1 for job in instance.task_graph_jobs})
        self._data = _data(part)
        # Jobs that do not fit into memory together may still run in turn, so only their load says where another one
        # goes.
        self._ample = PartialPlacement(_data(_with_ample_memory(part)), rigid=False)
        self._generator, self._rng = CandidateGenerator(self._ample.data, rng), rng
        self._serial = _serial_placing(instance) if instance.task_graph_jobs else None
        layout = self._data.layout
        self._servers = instance.cluster.servers
        kinds = {server.name: kind_of(server) for server in self._servers}
        self.rate_jobs = RateJobs({name: layout.memory[gpu] for name, gpu in self._data.number.items()}, kinds)
        self._name = {gpu: name for name, gpu in self._data.number.items()}
        self.gpus = len(self._name)
        self._known: dict[tuple[int, tuple[int, ...]], RateJob | None] = {}

    def on(self, index: int, gpus: Sequence[str]) -> RateJob | None:
        """Return a job on GPUs; None where memory does not admit it even alone."""
        return self._made(index, [self._data.number[gpu] for gpu in gpus])

    def anywhere(self) -> list[RateJob] | None:
        """Return every job on some GPUs, whatever the others do; None where one finds none."""
        found = [self._moving(index) or next(self.elsewhere(index, ()), None) for index in range(len(self.jobs))]
        known = [job for job in found if job is not None]
        return known if len(known) == len(found) else None

    def elsewhere(self, index: int, placed: Sequence[RateJob | None]) -> Iterator[RateJob]:
        """Yield a job on a few other sets of GPUs with little load of the others, as far as they are placed.

        `placed`: by index, the other jobs on their GPUs; None or missing for those that are not placed.
        """
        if self._serial is not None:
            yield from self._gathered(index, placed)
        if index >= len(self._data.operations.jobs):
            return
        for other, job in enumerate(placed[: len(self._data.operations.jobs)]):
            if job is not None and other != index:
                assignment = self._ample.assignment(other, [self._data.number[gpu] for gpu in job.gpus])
                if assignment is not None:
                    levels = [max(column) for column in zip(*assignment.plan.rows, strict=True)]
                    self._ample.place(other, assignment, levels)
        found = [self._made(index, gpus) for gpus in self._generator.of(self._ample, index)]
        # `_ample` is shared by all calls and is empty between them.
        self._ample.clear()
        yield from (job for job in found if job is not None)

    def _gathered(self, index: int, placed: Sequence[RateJob | None]) -> Iterator[RateJob]:
        """Yield a job on GPUs near to each other with little load of the others, and on random ones."""
        assert self._serial is not None
        load_us = [0.0] * self.gpus
        for other in (job for k, job in enumerate(placed) if job is not None and k != index):
            for resource, own_us in other.loads_us:
                if resource < self.gpus:
                    load_us[resource] += other.iterations * own_us
        number = {gpu: k for k, gpu in enumerate(self._data.layout.gpus)}
        chance = self._rng.sample(range(self.gpus), self.gpus)
        for busy_us in ([*map(int, load_us)], chance):
            for found in self._serial.gathered(index, dict(zip(number, busy_us, strict=True))):
                job = self._made(index, [number[gpu] for gpu in found])
                if job is not None:
                    yield job

    def _made(self, index: int, gpus: Sequence[int]) -> RateJob | None:
        key = index, tuple(gpus)
        if key not in self._known:
            made = self._of_relaxation if index < len(self._data.operations.jobs) else self._of_schedule
            self._known[key] = made(index, gpus)
        return self._known[key]

    def _of_relaxation(self, index: int, gpus: Sequence[int]) -> RateJob | None:
        assignment = PartialPlacement(self._data).assignment(index, gpus)
        if assignment is None:
            return None
        graph, layout = assignment.job, self._data.layout
        # `exchange` lists a period of several iterations; loads are those of the mean iteration.
        exchange_us = sum(map(sum, assignment.exchange)) / graph.iterations
        loads = [*zip(assignment.gpus, map(float, assignment.slot_us), strict=True)]
        loads += [(len(layout.gpus) + link, exchange_us) for link in assignment.links if exchange_us]
        sizes = graph.state_bytes, graph.activation_bytes[-1]
        return self._rate_job(index, assignment.gpus, assignment.iteration_us, loads, sizes)

    def _of_schedule(self, index: int, gpus: Sequence[int]) -> RateJob | None:
        """Return a task-graph job on GPUs, as a list schedule of it alone has it; None where there is none."""
        assert self._serial is not None
        layout, count = self._data.layout, _scheduled(self.jobs[index])
        alone = self._serial.alone_on(index, tuple(layout.gpus[gpu] for gpu in gpus))
        if alone is None:
            return None
        uses = [*zip(gpus, alone.slots, strict=True), *((len(layout.gpus) + link, use) for link, use in alone.others)]
        loads = [(resource, use.share * alone.length_us / count) for resource, use in uses]
        # Memory is the same on all GPUs of a job at rates, so that the slot that needs most counts for all of them.
        sizes = max(use.size for use in alone.slots), max(use.activations for use in alone.slots)
        return self._rate_job(index, gpus, alone.length_us // count, loads, sizes)

    def _rate_job(
        self,
        index: int,
        gpus: Sequence[int],
        iteration_us: int,
        loads: Sequence[tuple[int, float]],
        sizes: tuple[int, int],
    ) -> RateJob:
        job, names = self.jobs[index], tuple(self._name[gpu] for gpu in gpus)
        own = job.iterations, job.weight, job.release_us, job.deadline_us
        used = tuple((resource, load_us) for resource, load_us in loads if load_us)
        return RateJob(job.name, *own, names, max(1, iteration_us), used, *sizes, job.restart_us)

    def _moving(self, index: int) -> RateJob | None:
        """Return a job that may move, on any GPUs of one server, or of consecutive servers; None for other jobs."""
        job = self.jobs[index]
        may_move = self._may_move and job.restart_us is not None
        if not may_move or len(self.jobs) * len(self._name) > _MOST_MOVING:
            return None
        options, width = list[RateJob](), self._data.operations.jobs[index].slots
        # One server stands for all of its kind: reversed, the dictionary keeps the first one of each.
        for server in {kind_of(each): each for each in reversed(self._servers) if each.gpus >= width}.values():
            option = self.on(index, [f"{server.name}/{k}" for k in range(width)])
            options += [replace(option, anywhere=True)] if option is not None else []
        if not options:
            options = [*self._across(index)]
        options.sort(key=lambda option: option.iteration_us)
        return replace(options[0], anywhere=False, options=tuple(options)) if options else None

    def _across(self, index: int) -> Iterator[RateJob]:
        """Yield a job on the GPUs of consecutive servers, from some first servers in turn."""
        names = [(s, f"{server.name}/{k}") for s, server in enumerate(self._servers) for k in range(server.gpus)]
        # Rounded up, the step leaves at most `_MOST_OPTIONS` first servers.
        width, step = self._data.operations.jobs[index].slots, -(-len(self._servers) // _MOST_OPTIONS)
        for first in range(0, len(self._servers), step):
            gpus = [name for s, name in names if s >= first][:width]
            option = self.on(index, gpus) if len(gpus) == width else None
            if option is not None:
                yield option


def _scheduled(job: Job | TaskGraphJob) -> int:
    size = len(job.shape.operations) if isinstance(job, TaskGraphJob) else 1
    return max(1, min(_SCHEDULED, job.iterations, _OPERATIONS // size))


def _serial_placing(instance: Instance) -> SerialPlacing:
    """Return what schedules jobs alone, each with a few of its iterations."""
    jobs = tuple(altered(job, iterations=_scheduled(job)) for job in instance.jobs)
    return SerialPlacing(compile_instance(altered(instance, jobs=jobs)))


def _with_ample_memory(instance: Instance) -> Instance:
    """Return the instance with as much memory on every GPU as a document can state."""
    servers = tuple(altered(server, gpu_memory=LARGEST) for server in instance.cluster.servers)
    return altered(instance, cluster=altered(instance.cluster, servers=servers))


def _data(part: Instance) -> ProblemData:
    operations = replace(compile_instance(part), task_graphs=())
    asked = demands(operations)
    assert asked is not None, "some job alone has no plan, which is said before"
    return ProblemData(operations, asked)
