"""The workers and stages that one process has in memory: built, warmed up, put away while absent, and let go."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from io import BytesIO
from tempfile import TemporaryFile
from typing import IO, Any

import torch
import torch.distributed as dist

from jigsaw_opt.errors import RunFailedError
from jigsaw_opt.executor.exchange.by_bucket import GradientExchange
from jigsaw_opt.executor.models.building import Replica, build
from jigsaw_opt.executor.pipeline.hosted_stages import HostedStages
from jigsaw_opt.executor.processes import allow_children
from jigsaw_opt.executor.replay.hosted_replica import HostedReplica
from jigsaw_opt.executor.replay.link_order import Store
from jigsaw_opt.executor.replay.request import ReplayRequest
from jigsaw_opt.executor.torch_settings import TorchSettings
from jigsaw_opt.executor.user_code.training import OwnRecipe, OwnReplica, WorkerPlace, own_training
from jigsaw_opt.executor.worker import TrainingRecipe, Worker
from jigsaw_opt.problem.costs import needed_bytes
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.rules.report import Place

Hosted = HostedReplica | HostedStages

_MOST_WARM = 16


class Residents:
    """The workers and stages of this process that are in memory, by number of their job in the instance.

    `request, device, store`: what is replayed, the device of this process, and the store of all. `levels`: for each
    job, the levels of all workers that occur in an iteration, in a fixed order. `build_stages`: builds the stages of
    this process, together with the others that have some. `here, settings`: what is here, and the settings of torch
    that each has. `digests`: for each job and worker, the digest of its parameters when it was asked for last.
    `memory`: the most bytes that were taken. `notes`: what is to be told of stages.
    """

    def __init__(
        self,
        request: ReplayRequest,
        device: torch.device,
        store: Store,
        levels: Sequence[list[tuple[int, ...]]],
        build_stages: Callable[[], HostedStages],
    ) -> None:
        self._request, self._device, self._store, self._levels = request, device, store, levels
        self._build_stages = build_stages
        self.here: dict[int, Hosted] = {}
        self.settings: dict[int, TorchSettings] = {}
        self.digests: dict[tuple[int, int], str] = {}
        self.memory, self.notes = 0, list[str]()
        self._block_bytes: dict[int, int] = {}

    def enter(
        self, job: int, number: int, exchange: GradientExchange | None, restore: Callable[[Hosted], None]
    ) -> dict[str, Any]:
        """Build a worker or the stages of a job, and run iterations that nobody measures; return the state before them.

        `job, number, exchange`: the job, which worker of it is here, and its exchange; None of stages.
        """
        self.settings[job] = TorchSettings()
        with self.settings[job].in_force():
            hosted = self._build_stages() if exchange is None else self._worker(job, number, exchange)
            self.here[job] = hosted
            restore(hosted)
            state = hosted.worker.state()
            self._warm_up(hosted)
            hosted.worker.load(state)
        return state

    def _worker(self, job: int, number: int, exchange: GradientExchange) -> HostedReplica:
        """Build a worker of a data-parallel job."""
        request, asked = self._request, self._request.instance.jobs[job]
        assert isinstance(asked, Job), "it is no job in stages"
        seed, model = request.seed + job, request.instance.models[asked.model]
        replica: Replica | OwnReplica
        recipe: TrainingRecipe | OwnRecipe
        if model.executor is not None and "train" in model.executor:
            allow_children()
            place: Place = ((("$", "models"), asked.model), "executor")
            mine = WorkerPlace(number, asked.workers, self._device, exchange.group)
            replica, recipe = own_training(model.executor, place, mine, seed)
        else:
            replica = build(asked.model, model, request.trusted, seed)
            recipe = TrainingRecipe(request.optimiser, request.options, seed)
        worker = Worker(number, replica, recipe, self._device)
        return HostedReplica(job, asked.name, worker, exchange, self._store.connect())

    def _warm_up(self, hosted: Hosted) -> None:
        """Run iterations that nobody measures, and find what a block keeps for its backward pass."""
        if isinstance(hosted, HostedStages):
            hosted.warm_up(self._request.warm_up)
            self._block_bytes[hosted.job], self.notes = hosted.block_bytes, hosted.notes
            return
        levels = self._levels[hosted.job]
        for turn in levels[:_MOST_WARM] * self._request.warm_up:
            hosted.warm_up(turn)
        if self._device.type == "cpu":
            worker = hosted.worker
            self._block_bytes[hosted.job] = worker.block_bytes(max(turn[worker.number] for turn in levels))

    def note_memory(self) -> None:
        """Note what is taken now: by torch's allocator, or on a CPU counted as planned."""
        if self._device.type == "cuda":
            found = torch.cuda.max_memory_allocated(self._device)
        else:
            needs = []
            for job, each in self.here.items():
                held, block = each.worker.held_bytes(), self._block_bytes.get(job, 0)
                # What stages keep for backward passes stays there while others run.
                needs.append((held + block, 0) if isinstance(each, HostedStages) else (held, block))
            found = needed_bytes(needs)
        self.memory = max(self.memory, found)

    def digest(self, jobs: Iterable[int]) -> None:
        """Find the digests of the parameters of jobs that are here."""
        for job in jobs:
            hosted = self.here[job]
            with self.settings[job].in_force():
                self.digests[job, hosted.worker.number] = hosted.parameters_sha256()

    def leave(self, jobs: Iterable[int]) -> None:
        """Let what is here of jobs go, so that others have its memory."""
        gone = [self.here.pop(job) for job in jobs]
        for hosted in gone:
            hosted.close()
        if gone:
            gone.clear()
            del hosted
            _give_back(self._device)


def _give_back(device: torch.device) -> None:
    """Give memory that nobody refers to back to the device, which processes may share, or to the system."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    else:
        with suppress(AttributeError, OSError):  # only glibc has it
            ctypes.CDLL(None).malloc_trim(0)


class AbsentWorkers:
    """The states of workers that this process has hosted and let go for a while.

    Each is in a temporary file without a name, so that nothing is left of it however the process ends.

    `control`: A Gloo group of the processes among which workers move.
    """

    def __init__(self, control: dist.ProcessGroup) -> None:
        self._control, self._files = control, dict[tuple[int, int], IO[bytes]]()

    def put(self, replica: HostedReplica | HostedStages) -> None:
        """Keep the state of a worker, or of the stages of this process."""
        data = BytesIO()
        torch.save(replica.worker.state(), data)
        try:
            file = TemporaryFile()  # noqa: SIM115
            self._files[replica.job, replica.worker.number] = file
            file.write(data.getbuffer())
            file.flush()
        except OSError as error:
            where = f"job {replica.name}, worker {replica.worker.number}"
            raise RunFailedError(f"{where}: its state cannot be kept in a temporary file: {error}") from error

    def bring(self, job: int, sources: Sequence[int], targets: Sequence[int]) -> dict[str, Any] | None:
        """Hand the states of all workers of a job over to the processes in which it goes on.

        All processes of the group call this together.

        The state of the worker that this process takes, on the CPU; None if it takes none.

        `sources, targets`: ranks of the processes that have let its workers go, and of those that take them, by worker.
        """
        rank, found = dist.get_rank(), None
        # All go through the workers in the same order, so a process waits only for what others do next.
        for slot, (source, target) in enumerate(zip(sources, targets, strict=True)):
            data = self._take(job, slot) if rank == source else None
            if source != target:
                data = self._passed(data, source, target)
            if rank == target and data is not None:
                found = data
        return None if found is None else torch.load(BytesIO(found), map_location="cpu", weights_only=True)

    def _take(self, job: int, slot: int) -> bytearray:
        with self._files.pop((job, slot)) as file:
            file.seek(0)
            return bytearray(file.read())

    def _passed(self, data: bytearray | None, source: int, target: int) -> bytearray | None:
        """Send data from one process to another; return what has come here."""
        rank = dist.get_rank()
        if data is not None:
            dist.send(torch.tensor(len(data)), target, self._control)
            dist.send(torch.frombuffer(data, dtype=torch.uint8), target, self._control)
        elif rank == target:
            length = torch.tensor(0)
            dist.recv(length, source, self._control)
            data = bytearray(int(length))
            dist.recv(torch.frombuffer(data, dtype=torch.uint8), source, self._control)
            return data
        return None
