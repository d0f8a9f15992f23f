"""A worker of a data-parallel job in this process, with the thread of its transfers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from jigsaw_opt.errors import RunFailedError
from jigsaw_opt.executor.exchange.by_bucket import GradientExchange
from jigsaw_opt.executor.hosts.host import Host, HostSetting, Turn, blamed
from jigsaw_opt.executor.models.building import build
from jigsaw_opt.executor.own_worker import OwnWorker
from jigsaw_opt.executor.processes import allow_children
from jigsaw_opt.executor.schedules.order import RowStep, TransferKey
from jigsaw_opt.executor.schedules.records import RunRecord
from jigsaw_opt.executor.worker import TrainingRecipe, Worker, ZooWorker, block_and_send, parameters_sha256
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.rules.report import Place

_MOST_WARM = 16


class ReplicaHost(Host):
    """A worker that stays in this process; fields as of the class that it extends."""

    worker: Worker

    def __init__(self, setting: HostSetting, job: int, number: int, exchange: GradientExchange | None) -> None:
        super().__init__(setting, job, number, exchange)
        assert exchange is not None and setting.connect is not None, "workers exchange gradients in turn"
        self._exchange, self._block_bytes = exchange, 0
        self.worker = _worker(setting, job, number, exchange)
        self._store = setting.connect()  # of its own, for the thread of its transfers
        self._ending.callback(self.worker.buckets.close)
        pool = ThreadPoolExecutor(1, thread_name_prefix=f"transfers of {self.name}")
        self._pool = self._ending.enter_context(pool)

    @classmethod
    def takes(cls, setting: HostSetting, job: int) -> bool:
        """Return whether a job is data-parallel."""
        return setting.schedule_of(job) is None

    def prepare(self, times: int, levels: Sequence[tuple[int, ...]]) -> None:
        """Run iterations that nobody measures, and find what a block keeps for its backward pass."""
        for own in [*levels[:_MOST_WARM]] * times:
            self._launch(own, lambda bucket, own=own: self.worker.transfer(bucket, own, self._exchange))  # type: ignore[misc]
            self.wait()
        if self.device.type == "cpu":
            self._block_bytes = self.worker.block_bytes(max(own[self.worker.number] for own in levels))

    def run(self, step: RowStep, turn: Turn) -> None:
        """Run a block; its transfers go on when it returns."""
        clock, levels, starts = turn.clock, turn.order.levels(step.job, step.iteration), turn.transfer_starts(step)
        clock.wait_until(turn.start(step))

        def transfer(bucket: int) -> None:
            key = TransferKey(step.job, step.iteration, bucket)
            turn.link_order.wait(key, self._store)
            clock.wait_until(starts[bucket - 1])
            start = clock.now()
            self.worker.transfer(bucket, levels, self._exchange)
            self.records.append(RunRecord("transfer", *key, start, clock.now()))
            turn.link_order.end(key, self._store)

        start = clock.now()
        loss = self._launch(levels, transfer)
        self.records.append(RunRecord("block", *step[1:4], start, clock.now(), step.level, loss))

    def needs(self) -> tuple[int, int]:
        """Return the bytes of its worker, and of what a block keeps for its backward pass."""
        return self.worker.held_bytes(), self._block_bytes

    def parameters_sha256(self) -> str:
        """Return the digest of the trained parameters, after the optimiser's step of the last block."""
        self.worker.step()
        return parameters_sha256(self.worker.model)

    def _launch(self, levels: Sequence[int], transfer: Callable[[int], None]) -> float:
        """Run a block, with `transfer` in the other thread, and return its loss when the device is done."""
        worker = self.worker
        where = f"job {self.name}, worker {worker.number}, iteration {worker.iteration}"

        def send(bucket: int) -> None:
            if len(levels) > 1:  # a worker alone has nobody to send to
                self._sent.append(self._pool.submit(transfer, bucket))

        with blamed(where, in_stages=False):
            loss = block_and_send(worker, levels[worker.number], send)
            self.settle()
        if not math.isfinite(value := float(loss)):
            raise RunFailedError(f"{where}: the loss is {value}")
        return value


def _worker(setting: HostSetting, job: int, number: int, exchange: GradientExchange) -> Worker:
    """Build a worker of a data-parallel job."""
    request, asked = setting.request, setting.request.instance.jobs[job]
    assert isinstance(asked, Job), "it is no job in stages"
    seed, model = request.seed + job, request.instance.models[asked.model]
    if model.executor is not None and "train" in model.executor:
        allow_children()
        place: Place = ((("$", "models"), asked.model), "executor")
        return OwnWorker(model.executor, place, number, asked.workers, setting.device, exchange.group, seed)
    recipe = TrainingRecipe(request.optimiser, request.options, seed)
    return ZooWorker(number, build(asked.model, model, request.trusted, seed), recipe, setting.device)
