"""The workers that one process hosts, each with the thread of its transfers, and what they did when."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from types import TracebackType

import torch

from jigsaw_opt.errors import JigsawError, RunFailedError
from jigsaw_opt.executor.exchange.by_bucket import GradientExchange
from jigsaw_opt.executor.replay.clock import ReplayClock
from jigsaw_opt.executor.replay.link_order import LinkOrder, TCPStore
from jigsaw_opt.executor.replay.order import BlockStep, TransferKey
from jigsaw_opt.executor.replay.records import BlockRecord, TransferRecord
from jigsaw_opt.executor.user_code.importing import told
from jigsaw_opt.executor.worker import Worker, block_and_send, parameters_sha256


class HostedReplica:
    """A worker that stays in this process.

    `job, name`: number and name of its job in the instance. `worker, exchange`: the worker, and the exchange of its
    job. `store`: A connection of its own, for the thread of its transfers. `saved`: after how many iterations its
    worker was last saved.
    """

    def __init__(self, job: int, name: str, worker: Worker, exchange: GradientExchange, store: TCPStore) -> None:
        self.job, self.name, self.worker, self.exchange = job, name, worker, exchange
        self.saved = 0
        self.blocks: list[BlockRecord] = []
        self.transfers: list[TransferRecord] = []
        self._store = store
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"transfers of {name}")
        self._sent: list[Future[None]] = []

    def warm_up(self, levels: Sequence[int]) -> None:
        """Run an iteration that nobody measures."""
        self._launch(levels, lambda bucket: self.worker.transfer(bucket, levels, self.exchange))
        self.wait()

    def run(
        self, step: BlockStep, levels: Sequence[int], link_order: LinkOrder, clock: ReplayClock, starts: Sequence[int]
    ) -> None:
        """Run a block; its transfers go on when it returns."""

        def transfer(bucket: int) -> None:
            key = TransferKey(step.job, step.iteration, bucket)
            link_order.wait(key, self._store)
            clock.wait_until(starts[bucket - 1])
            start = clock.now()
            self.worker.transfer(bucket, levels, self.exchange)
            self.transfers.append(TransferRecord(key, start, clock.now()))
            link_order.end(key, self._store)

        start = clock.now()
        loss = self._launch(levels, transfer)
        self.blocks.append(BlockRecord(step.job, step.iteration, step.slot, step.level, start, clock.now(), loss))

    def wait(self) -> None:
        """Return when all transfers of the last block have ended here."""
        for future in self._sent:
            future.result()
        self._sent.clear()

    def forget(self) -> None:
        """Forget what was measured, before another run."""
        self.blocks, self.transfers = [], []

    def close(self) -> None:
        """End the thread of its transfers, so that its worker takes no memory once nobody refers to it."""
        self._pool.shutdown()
        self.worker.buckets.close()

    def parameters_sha256(self) -> str:
        """Return the digest of the trained parameters, after the optimiser's step of the last block."""
        self.worker.step()
        return parameters_sha256(self.worker.model)

    def _launch(self, levels: Sequence[int], transfer: Callable[[int], None]) -> float:
        """Run a block, with `transfer` in the other thread, and return its loss when the device is done."""
        worker, device = self.worker, self.worker.device
        where = f"job {self.name}, worker {worker.number}, iteration {worker.iteration}"

        def send(bucket: int) -> None:
            if len(levels) > 1:  # a worker alone has nobody to send to
                self._sent.append(self._pool.submit(transfer, bucket))

        with _Blamed(where):
            loss = block_and_send(worker, levels[worker.number], send)
            if device.type == "cuda":
                torch.cuda.current_stream(device).synchronize()
        if not math.isfinite(value := float(loss)):
            raise RunFailedError(f"{where}: the loss is {value}")
        return value


class _Blamed(AbstractContextManager[None]):
    """A context that names the place where a model raised."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, (Exception, SystemExit)) and not isinstance(error, JigsawError):
            raise RunFailedError(f"{self._where}: {told(error)}") from error
