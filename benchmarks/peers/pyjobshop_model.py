"""The problem as a PyJobShop model.

A task for each block and transfer, machines for GPUs and links. PyJobShop cannot choose a duration by the levels of
other tasks, so levels belong to *roles*: in every iteration role ``k`` of a job has the ``k``-th deepest level, and
which GPU of the job takes which role is free. Placement, the set of servers and memory are choices of modes, tied
together by mode dependencies; memory is a consumable. Left out are choices of level under `free` depth, delays that
depend on the GPU type, and rates that depend on how workers are spread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Generic, TypeVar

from depth import shallow_levels

from jigsaw_opt.problem import Channel, OperationGraph, Operations
from jigsaw_opt.problem.compiled.timetable import Gpu, JobDecision, Timetable, assemble
from jigsaw_opt.problem.costs import contributors

if TYPE_CHECKING:
    import pyjobshop
    from ortools.sat.python import cp_model
    from pyjobshop.solvers.ortools import CPModel

Servers = frozenset[int]
Meaning = TypeVar("Meaning")


@dataclass(slots=True)
class Choice(Generic[Meaning]):
    """A task of PyJobShop, its number, and its modes with their numbers by what they stand for."""

    task: pyjobshop.Task
    index: int
    modes: dict[Meaning, tuple[int, pyjobshop.Mode]] = field(default_factory=dict)


@dataclass(slots=True)
class ShopJob:
    """A job of the instance: levels by iteration and role, where it may go, and its tasks by iteration."""

    job: OperationGraph
    rows: tuple[tuple[int, ...], ...]
    gpus: Sequence[int]
    channels: Mapping[Servers, Channel]
    roles: list[list[Choice[int]]] = field(default_factory=list)
    transfers: list[list[Choice[Servers]]] = field(default_factory=list)


class ShopModel:
    """PyJobShop's model of a finite instance; without `places`, PyJobShop chooses the GPUs of each job's workers."""

    def __init__(self, operations: Operations, places: Sequence[Sequence[Gpu]] | None) -> None:
        from pyjobshop import Model

        self.operations, self.model = operations, Model()
        servers = operations.cluster.servers
        self.gpus = [(s, k) for s, server in enumerate(servers) for k in range(server.gpus)]
        self.types = [servers[s].gpu_type for s, _ in self.gpus]
        self.machines = [self.model.add_machine() for _ in self.gpus]
        self.memories = [self.model.add_consumable(servers[s].gpu_memory) for s, _ in self.gpus]
        self.links = [self.model.add_machine() for _ in operations.cluster.links]
        self.jobs = [self._job(job, None if places is None else places[j]) for j, job in enumerate(operations.jobs)]
        for gpu in range(len(self.gpus)):
            self._activations(gpu)
        if operations.objective == "weighted_completion":
            self.model.set_objective(weight_total_flow_time=1)
        else:
            self.model.set_objective(weight_makespan=1)

    @property
    def constant(self) -> int:
        """What the instance's objective is above PyJobShop's, whose flow times leave out the releases."""
        if self.operations.objective != "weighted_completion":
            return 0
        return sum(job.weight * job.release_us for job in self.operations.jobs)

    def plan(self, built: CPModel, value: Callable[[cp_model.LinearExprT], int]) -> Timetable:
        """Timetable of a solution of the engine's model that PyJobShop built."""
        return Timetable(assemble(self.operations, [self._decision(job, built, value) for job in self.jobs]))

    def _job(self, job: OperationGraph, place: Sequence[Gpu] | None) -> ShopJob:
        rows = shallow_levels(job)
        if rows is None:
            raise ValueError(f"the rule of job {job.name} allows no levels")
        if place is None:
            gpus = [gpu for gpu, kind in enumerate(self.types) if kind in job.gpu_types]
            channels = dict(_free_channels(self.operations, job, {self.gpus[gpu][0] for gpu in gpus}))
        else:
            gpus = [self.gpus.index(gpu) for gpu in place]
            channels = _placed_channel(self.operations, place)
        it = ShopJob(job, rows, gpus, channels)
        self._iterations(it)
        if len(gpus) > job.slots:
            self._one_place(it)
        if len(channels) > 1 and job.transfers:
            self._one_set_of_servers(it)
        return it

    def _task(self, job: pyjobshop.Job | None = None) -> Choice[Meaning]:
        return Choice(self.model.add_task(job), len(self.model.tasks) - 1)

    def _mode(
        self,
        choice: Choice[Meaning],
        meaning: Meaning,
        resources: Sequence[pyjobshop.Machine | pyjobshop.Consumable],
        duration: int = 0,
        demands: Sequence[int] = (),
    ) -> None:
        mode = self.model.add_mode(choice.task, list(resources), duration, list(demands))
        choice.modes[meaning] = len(self.model.modes) - 1, mode

    def _depends(self, mode: pyjobshop.Mode, on: Sequence[pyjobshop.Mode]) -> None:
        self.model.add_mode_dependency(mode, list(on))

    def _iterations(self, job: ShopJob) -> None:
        """Blocks, transfers and the barriers between iterations (specification: iteration)."""
        shop = self.model.add_job(weight=job.job.weight, release_date=job.job.release_us)
        barrier: Choice[None] | None = None
        for row in job.rows:
            roles = [self._block(job, shop, k, level) for k, level in enumerate(row)]
            for one, other in combinations(roles, 2):
                self.model.add_different_resources(one.task, other.task)
            job.roles.append(roles)
            transfers = self._transfers(job, shop, row)
            job.transfers.append(transfers)
            if barrier is not None:
                for role in roles:
                    self.model.add_end_before_start(barrier.task, role.task)
            barrier = self._task(shop)
            self._mode(barrier, None, ())
            for task in (*(role.task for role in roles), *(transfer.task for transfer in transfers[-1:])):
                self.model.add_end_before_start(task, barrier.task)

    def _block(self, job: ShopJob, shop: pyjobshop.Job, role: int, level: int) -> Choice[int]:
        """A block with a mode for each GPU; those of the first iteration take the memory of the whole horizon."""
        choice: Choice[int] = self._task(shop)
        first = not job.roles
        # Roles that never differ need no choice among GPUs that are fixed.
        alike = len(job.gpus) == job.job.slots and all(len(set(row)) == 1 for row in job.rows)
        for gpu in job.gpus[role : role + 1] if alike else job.gpus:
            resources = (self.machines[gpu], self.memories[gpu]) if first else (self.machines[gpu],)
            demands = (0, job.job.state_bytes) if first else (0,)
            self._mode(choice, gpu, resources, self._times(job, gpu)[level - 1], demands)
        return choice

    def _transfers(self, job: ShopJob, shop: pyjobshop.Job, row: Sequence[int]) -> list[Choice[Servers]]:
        """The transfers of an iteration in their order, with a mode for each set of servers."""
        transfers: list[Choice[Servers]] = []
        for operation in job.job.transfers:
            choice: Choice[Servers] = self._task(shop)
            for servers, channel in job.channels.items():
                duration = job.job.transfer_us(operation.bucket, contributors(row, operation.bucket), channel)
                # A transfer of no length may lie inside another one.
                self._mode(choice, servers, [self.links[k] for k in channel.links if duration], duration)
            for role, level in zip(job.roles[-1], row, strict=True):
                if level >= operation.bucket:
                    # A delay cannot follow the mode, so the slowest GPU sets it.
                    ready = max(self._times(job, gpu)[operation.bucket - 1] for gpu in job.gpus)
                    self.model.add_start_before_start(role.task, choice.task, ready)
            if transfers:
                self.model.add_end_before_start(transfers[-1].task, choice.task)
            transfers.append(choice)
        return transfers

    def _times(self, job: ShopJob, gpu: int) -> Sequence[int]:
        return job.job.blocks[0].duration_us[self.types[gpu]]

    def _one_place(self, job: ShopJob) -> None:
        """The GPUs of every iteration are those of the first one (specification: placement)."""
        for roles in job.roles[1:]:
            for role in roles:
                for gpu, (_, mode) in role.modes.items():
                    self._depends(mode, [other.modes[gpu][1] for other in job.roles[0]])

    def _one_set_of_servers(self, job: ShopJob) -> None:
        """All transfers take the modes of the set of servers that hold a worker (specification: ring)."""
        chosen: Choice[Servers] = self._task()
        for servers in job.channels:
            self._mode(chosen, servers, ())
        for role in job.roles[0]:
            for gpu, (_, mode) in role.modes.items():
                self._depends(mode, [m for servers, (_, m) in chosen.modes.items() if self.gpus[gpu][0] in servers])
        for servers, (_, mode) in chosen.modes.items():
            for server in servers:
                here = [gpu for gpu in job.gpus if self.gpus[gpu][0] == server]
                self._depends(mode, [role.modes[gpu][1] for role in job.roles[0] for gpu in here])
            for transfer in (choice for row in job.transfers for choice in row):
                self._depends(mode, [transfer.modes[servers][1]])

    def _activations(self, gpu: int) -> None:
        """The largest activations of the workers on a GPU take memory once (specification: memory)."""
        users = [
            (job.job.activation_bytes[level - 1], role.modes[gpu][1])
            for job in self.jobs
            for row, roles in zip(job.rows, job.roles, strict=True)
            for level, role in zip(row, roles, strict=True)
            if gpu in role.modes
        ]
        peak: Choice[int] = self._task()
        for size in sorted({0, *(size for size, _ in users)}):
            self._mode(peak, size, (self.memories[gpu],), 0, (size,))
        for size, mode in users:
            self._depends(mode, [m for at, (_, m) in peak.modes.items() if at >= size])

    def _decision(self, job: ShopJob, built: CPModel, value: Callable[[cp_model.LinearExprT], int]) -> JobDecision:
        variables = built.variables

        def start(index: int) -> int:
            return value(variables.task_vars[index].start)

        def gpu_of(role: Choice[int]) -> int:
            return next(gpu for gpu, (mode, _) in role.modes.items() if value(variables.mode_vars[mode]))

        levels, starts, gpus = [], [], [gpu_of(role) for role in job.roles[0]]
        for row, roles in zip(job.rows, job.roles, strict=True):
            by_gpu = {gpu_of(role): (level, start(role.index)) for level, role in zip(row, roles, strict=True)}
            levels.append([by_gpu[gpu][0] for gpu in gpus])
            starts.append([by_gpu[gpu][1] for gpu in gpus])
        transfers = [[start(transfer.index) for transfer in row] for row in job.transfers]
        return JobDecision([self.gpus[gpu] for gpu in gpus], levels, starts, transfers)


def _placed_channel(operations: Operations, place: Sequence[Gpu]) -> dict[Servers, Channel]:
    counts = Counter(server for server, _ in place)
    channel = operations.routes.channel(counts)
    if channel is None:
        raise ValueError("no path joins the servers of a given placement")
    return {frozenset(counts): channel}


def _free_channels(operations: Operations, job: OperationGraph, servers: set[int]) -> Iterator[tuple[Servers, Channel]]:
    """Every set of servers that can hold the workers, as if each held two unless each holds one."""
    for count in range(1, min(len(servers), job.slots) + 1):
        for chosen in combinations(sorted(servers), count):
            room = sum(operations.cluster.servers[s].gpus for s in chosen)
            channel = operations.routes.channel(dict.fromkeys(chosen, 1 if count == job.slots else 2))
            if room >= job.slots and channel is not None:
                yield frozenset(chosen), channel
