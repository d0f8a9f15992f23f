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
from jigsaw_opt.executor.devices import TorchSettings
from jigsaw_opt.executor.exchange.by_bucket import GradientExchange
from jigsaw_opt.executor.hosts.host import Host, HostSetting
from jigsaw_opt.executor.hosts.kinds import build_host
from jigsaw_opt.problem.costs import needed_bytes


class Residents:
    """The workers and stages of this process that are in memory, by number of their job in the instance.

    `setting`: the process in which they are. `levels`: for each job, the levels of all workers that occur in an
    iteration, in a fixed order. `here`: what is here. `digests`: for each job and worker, the digest of its parameters
    when it was asked for last. `memory`: the most bytes that were taken. `notes`: what is to be told of stages.
    """

    def __init__(self, setting: HostSetting, levels: Sequence[list[tuple[int, ...]]]) -> None:
        self._setting, self._levels = setting, levels
        self.here: dict[int, Host] = {}
        self.digests: dict[tuple[int, int], str] = {}
        self.memory, self.notes = 0, list[str]()

    def enter(
        self, job: int, number: int, exchange: GradientExchange | None, restore: Callable[[Host], None]
    ) -> dict[str, Any]:
        """Build a worker or the stages of a job, and run iterations that nobody measures; return the state before them.

        `job, number, exchange`: the job, which worker of it is here, and its exchange; None of stages.
        """
        settings = TorchSettings()
        with settings.in_force():
            self.here[job] = hosted = build_host(self._setting, job, number, exchange)
            hosted.settings = settings
            restore(hosted)
            state = hosted.worker.state()
            hosted.prepare(self._setting.request.warm_up, self._levels[job])
            self.notes += hosted.notes
            hosted.worker.load(state)
        return state

    def note_memory(self) -> None:
        """Note what is taken now: by torch's allocator, or on a CPU counted as planned."""
        if self._setting.device.type == "cuda":
            found = torch.cuda.max_memory_allocated(self._setting.device)
        else:
            found = needed_bytes(hosted.needs() for hosted in self.here.values())
        self.memory = max(self.memory, found)

    def digest(self, jobs: Iterable[int]) -> None:
        """Find the digests of the parameters of jobs that are here."""
        for job in jobs:
            hosted = self.here[job]
            with hosted.settings.in_force():
                self.digests[job, hosted.worker.number] = hosted.parameters_sha256()

    def leave(self, jobs: Iterable[int]) -> None:
        """Let what is here of jobs go, so that others have its memory."""
        gone = [self.here.pop(job) for job in jobs]
        for hosted in gone:
            hosted.close()
        if gone:
            gone.clear()
            del hosted
            gc.collect()
            # Memory that nobody refers to goes back to the device, which processes may share, or to the system.
            if self._setting.device.type == "cuda":
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

    def put(self, hosted: Host) -> None:
        """Keep the state of a worker, or of the stages of this process."""
        data = BytesIO()
        torch.save(hosted.worker.state(), data)
        try:
            file = TemporaryFile()  # noqa: SIM115
            self._files[hosted.job, hosted.worker.number] = file
            file.write(data.getbuffer())
            file.flush()
        except OSError as error:
            where = f"job {hosted.name}, worker {hosted.worker.number}"
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
            data = [self._take(job, slot) if rank == source else None]
            if rank == source != target:
                dist.send_object_list(data, target, self._control)
            if rank == target:
                if source != target:
                    dist.recv_object_list(data, source, self._control)
                found = data[0]
        return None if found is None else torch.load(BytesIO(found), map_location="cpu", weights_only=True)

    def _take(self, job: int, slot: int) -> bytes:
        with self._files.pop((job, slot)) as file:
            file.seek(0)
            return file.read()
