"""One process's part in carrying out one plan."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain
from math import inf
from time import monotonic

from jigsaw_opt.executor.hosts.host import Host
from jigsaw_opt.executor.randomness import generator_states, set_generators
from jigsaw_opt.executor.replay.checkpoint import Checkpoint
from jigsaw_opt.executor.schedules.clock import ReplayClock
from jigsaw_opt.executor.schedules.link_order import LinkOrder
from jigsaw_opt.executor.schedules.order import ReplayExtent, ReplayOrder, RowStep, TransferKey
from jigsaw_opt.executor.schedules.presence import Seam
from jigsaw_opt.executor.schedules.records import Part, RunRecord

_LOGGER = logging.getLogger(__name__)
_LOGGED_EVERY_S = 1.0


@dataclass
class Run:
    """A plan that is carried out.

    `order, progress`: what all processes do, and how far. `rank, replicas`: this process; its workers and stages by job
    of the plan, which `change` changes. `seams, change`: where in a pass workers are let go and built, the first one
    being done; and what does it, given the jobs that are to be here and whether those that leave come back.
    `time_triggered`: whether nothing starts before its planned start. `exclusive`: whether a job has its GPUs for
    itself until all its transfers have ended. `checkpoint, every`: where the workers are saved after so many
    iterations; None for not at all. `ended`: whether it has all been done.
    """

    order: ReplayOrder
    progress: ReplayExtent
    rank: int
    replicas: Mapping[int, Host]
    link_order: LinkOrder
    clock: ReplayClock
    seams: Sequence[Seam]
    change: Callable[[Collection[int], bool], None]
    time_triggered: bool = False
    exclusive: bool = False
    checkpoint: Checkpoint | None = None
    every: int | None = None
    ended: bool = False
    _begin: int | None = None
    _origins: list[int] = field(default_factory=list)
    _saves: list[tuple[int, int]] = field(default_factory=list)
    _zero: int = 0
    _row: Iterator[RowStep | Seam] = field(default_factory=lambda: iter(()))
    _jobs: frozenset[int] = frozenset()
    _comes_back: bool = True
    _stopped_before: int = 0
    _logged_s: float = -inf
    _left: list[RunRecord] = field(default_factory=list)

    def carry_out(self) -> Part:
        """Do this process's part, together with the others."""
        self._jobs = self.seams[0].jobs
        self._stopped_before = self.clock.stopped_us
        self._begin = self.clock.meet()
        self._row = self._steps(self._begin)
        for step in self._row:
            self._step(step)
        self._wait()
        for replica in self.replicas.values():
            replica.settle()
            self._save(replica, at_end=True)  # so that a longer run can go on from there
        part = self.part()
        self.ended = True
        return part

    def close(self) -> None:
        """Let the workers begin another run."""
        for replica in self.replicas.values():
            replica.forget()

    def part(self) -> Part:
        """Return what has been done so far; another thread may ask while the run goes on."""
        begin = self._begin or 0
        records = [*self._left, *chain.from_iterable(replica.records for replica in list(self.replicas.values()))]
        return Part(
            [r._replace(start_us=r.start_us - begin, end_us=r.end_us - begin) for r in records],
            list(self._origins),
            begin,
            [(start - begin, end - begin) for start, end in list(self._saves)],
            self.clock.stopped_us - self._stopped_before,
        )

    def _steps(self, begin: int) -> Iterator[RowStep | Seam]:
        """Yield what this process does, one behind the other, window by window."""
        self._zero, origins = begin - self._first_start(), self._origins
        for window in self.order.windows(self.progress):
            self._log_progress(window)
            if not self.order.cyclic:
                self._wait()
                self._comes_back = True
                self._cross(self.seams[0])
                self._comes_back = window + 1 < self.progress.passes
                origins.append(self.clock.meet() - begin)
                before = window * self.order.period_us if len(origins) > 1 else self._first_start()
                self._zero = begin + origins[-1] - before
            steps: Iterable[RowStep | Seam] = self.order.steps(self.rank, window, self.progress)
            if len(self.seams) > 1:
                moved = [seam._replace(start_us=seam.start_us + window * self.order.period_us) for seam in self.seams]
                steps = merge(moved[1:], steps, key=lambda step: step.start_us)
            yield from steps

    def _log_progress(self, window: int) -> None:
        """Log once a second how many passes over the plan have begun."""
        passes = self.progress.passes
        if not _LOGGER.isEnabledFor(logging.INFO) or window >= passes:
            return
        if (now := monotonic()) - self._logged_s >= _LOGGED_EVERY_S:
            self._logged_s = now
            _LOGGER.info("pass %d of %d over the plan", window + 1, passes)

    def _cross(self, seam: Seam) -> None:
        """Let workers go and build others, while the clocks of all processes stand still."""
        if seam.jobs == self._jobs:
            return
        self._jobs = seam.jobs
        leaving = [k for k in self.replicas if k not in seam.jobs]
        for k in leaving:
            self.replicas[k].wait()
        with self.clock.stopped():
            for k in leaving:
                self._save(self.replicas[k], at_end=True)
                done = self.replicas[k].records
                self.replicas[k].forget()
                self._left += done
            self.change(seam.jobs, self._comes_back)

    def _first_start(self) -> int:
        """Return the planned start of what is left; 0 where everything is, so that releases count from the begin."""
        if not any(self.progress.done):
            return 0
        ranks, windows = range(len(self.order.gpus)), self.order.windows(self.progress)
        steps = ([s for rank in ranks for s in self.order.steps(rank, window, self.progress)] for window in windows)
        return min((step.start_us for step in next(filter(None, steps), ())), default=0)

    def _step(self, step: RowStep | Seam) -> None:
        if isinstance(step, Seam):
            self._cross(step)
            return
        hosted = self.replicas[step.job]
        if self.exclusive:
            self._wait()
        hosted.wait()
        self._save(hosted)
        with hosted.settings.in_force():
            hosted.run(step, self)

    def start(self, step: RowStep) -> int:
        """Return the moment before which a step does not begin."""
        return self._zero + (step.start_us if self.time_triggered else self.order.release_us(step))

    def transfer_starts(self, step: RowStep) -> list[int]:
        """Return for each bucket the moment before which its transfer does not start."""
        buckets = range(1, self.order.depths[step.job] + 1)
        if not self.time_triggered or len(self.order.ranks[step.job]) == 1:
            return [0] * len(buckets)
        keys = (TransferKey(step.job, step.iteration, bucket) for bucket in buckets)
        return [self._zero + self.order.transfer_start_us(key) for key in keys]

    def passes(self, first: RowStep) -> Iterator[tuple[str, int]]:
        """Yield the passes of an iteration, each when it is asked for, once all that stands before it here is done.

        Each comes with the moment before which it does not begin. What the passes draw goes on as if nothing had been
        between them.
        """
        stages = self.replicas[first.job]
        yield first.action, self.start(first)
        drawn = None
        for step in self._row:
            if isinstance(step, RowStep) and step.action:
                if drawn is not None:
                    set_generators(drawn, stages.device)
                    drawn = None
                yield step.action, self.start(step)
            else:
                if drawn is None:
                    stages.settle()
                    drawn = generator_states(stages.device)
                self._step(step)

    def _wait(self) -> None:
        for replica in self.replicas.values():
            replica.wait()

    def _save(self, replica: Host, at_end: bool = False) -> None:
        due = at_end or (self.every is not None and replica.worker.iteration % self.every == 0)
        if self.checkpoint and due and replica.worker.iteration > replica.saved:
            start = self.clock.now()
            self.checkpoint.save(replica.job, replica.worker)
            self._saves.append((start, self.clock.now()))
            replica.saved = replica.worker.iteration
