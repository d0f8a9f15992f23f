"""One process's part in carrying out one plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jigsaw_opt.executor.replay.checkpoint import Checkpoint
from jigsaw_opt.executor.replay.clock import ReplayClock
from jigsaw_opt.executor.replay.hosted_replica import HostedReplica
from jigsaw_opt.executor.replay.link_order import LinkOrder, Windows
from jigsaw_opt.executor.replay.order import BlockStep, ReplayExtent, ReplayOrder, TransferKey
from jigsaw_opt.executor.replay.records import Part

__all__ = ["Run"]


@dataclass
class Run:
    """A plan that is carried out.

    Parameters
    ----------
    order, progress
        What all processes do, and how far.
    rank, replicas
        This process, and its workers by job.
    windows, link_order, clock
        When it may go on.
    pace
        Whether nothing starts before its planned start.
    exclusive
        Whether a job has its GPUs for itself until all its transfers have ended.
    checkpoint, every
        Where the workers are saved after so many iterations; None for not at all.
    ended
        Whether it has all been done.
    """

    order: ReplayOrder
    progress: ReplayExtent
    rank: int
    replicas: Mapping[int, HostedReplica]
    windows: Windows
    link_order: LinkOrder
    clock: ReplayClock
    pace: bool = False
    exclusive: bool = False
    checkpoint: Checkpoint | None = None
    every: int | None = None
    ended: bool = False
    _begin: int | None = None
    _origins: list[int] = field(default_factory=list)
    _saves: list[tuple[int, int]] = field(default_factory=list)

    def carry_out(self) -> Part:
        """Do this process's part, together with the others."""
        self._begin = begin = self.clock.meet()
        zero, origins = begin - self._first_start(), self._origins
        for window in self.order.windows(self.progress):
            self.windows.enter(window)
            if self.progress.passes is not None and window >= self.progress.passes + self.order.windows_behind:
                break
            if not self.order.cyclic:
                self._wait()
                origins.append(self.clock.meet() - begin)
                zero = (
                    begin + origins[-1] - (window * self.order.period_us if len(origins) > 1 else self._first_start())
                )
            for step in self.order.steps(self.rank, window, self.progress):
                self._step(step, zero)
        self._wait()
        self._save_all()
        part = self.part()
        self.ended = True
        return part

    def close(self) -> None:
        """Let the workers begin another run."""
        for replica in self.replicas.values():
            replica.blocks, replica.transfers = [], []

    def part(self) -> Part:
        """Return what has been done so far; another thread may ask while the run goes on."""
        begin = self._begin or 0
        blocks = [b for replica in self.replicas.values() for b in list(replica.blocks)]
        transfers = [t for replica in self.replicas.values() for t in list(replica.transfers)]
        return Part(
            [b._replace(start_us=b.start_us - begin, end_us=b.end_us - begin) for b in blocks],
            [t._replace(start_us=t.start_us - begin, end_us=t.end_us - begin) for t in transfers],
            list(self._origins),
            self.progress.passes,
            begin,
            [(start - begin, end - begin) for start, end in list(self._saves)],
        )

    def _first_start(self) -> int:
        """Planned start of what is left; 0 where everything is, so that releases count from the begin."""
        if not any(self.progress.done):
            return 0
        ranks, windows = range(len(self.order.gpus)), self.order.windows(self.progress)
        for window in windows:
            starts = [step.start_us for rank in ranks for step in self.order.steps(rank, window, self.progress)]
            if starts:
                return min(starts)
        return 0

    def _step(self, step: BlockStep, zero: int) -> None:
        replica = self.replicas[step.job]
        if self.exclusive:
            self._wait()
        replica.wait()
        self._save(replica)
        levels = self.order.levels(step.job, step.iteration)
        starts = [0] * self.order.depths[step.job]
        if self.pace and len(levels) > 1:
            keys = (TransferKey(step.job, step.iteration, bucket) for bucket in range(1, len(starts) + 1))
            starts = [zero + self.order.transfer_start_us(key) for key in keys]
        self.clock.wait_until(zero + (step.start_us if self.pace else self.order.release_us(step)))
        replica.run(step, levels, self.link_order, self.clock, starts)

    def _wait(self) -> None:
        for replica in self.replicas.values():
            replica.wait()

    def _save(self, replica: HostedReplica, at_end: bool = False) -> None:
        due = at_end or (self.every is not None and replica.worker.iteration % self.every == 0)
        if self.checkpoint and due and replica.worker.iteration > replica.saved:
            start = self.clock.now()
            self.checkpoint.save(replica.job, replica.worker)
            self._saves.append((start, self.clock.now()))
            replica.saved = replica.worker.iteration

    def _save_all(self) -> None:
        """At the end, so that a longer run can go on from there."""
        for replica in self.replicas.values():
            self._save(replica, at_end=True)
