"""States of workers whose jobs are absent from some phases, or go on in other processes."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from tempfile import TemporaryFile
from typing import IO, Any

import torch
import torch.distributed as dist

from jigsaw_opt.errors import RunFailedError
from jigsaw_opt.executor.pipeline.hosted_stages import HostedStages
from jigsaw_opt.executor.replay.hosted_replica import HostedReplica

__all__ = ["AbsentWorkers"]


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
