"""A plan in a user's own processes: blocks and exchanges of their training wait for their turn in it.

Each worker of each job has a process of its own. They tell through a store how many blocks and transfers have ended.
A process that has left counts as one that has ended everything, so nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from sys import maxsize
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any

import torch
import torch.distributed as dist

from jigsaw_opt.checking.require import require_correct
from jigsaw_opt.errors import RunFailedError, UsageError, malformed, mismatch, missing_option, unsupported, wrong_order
from jigsaw_opt.executor.partial.turns import set_turns
from jigsaw_opt.executor.processes import TIMEOUT
from jigsaw_opt.executor.schedules.link_order import AnyStore, HashStore, PrefixStore, TCPStore
from jigsaw_opt.executor.schedules.order import ReplayExtent, ReplayOrder, RowStep, TransferKey
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import JobPlan, Plan

_PAUSE_S = 2e-4
_BEAT_S = 1.0
"""How often a process tells that it lives."""
LOST_S = 30.0
"""A process that has told nothing for so long counts as killed. Its thread speaks while the training computes."""
_ENDLESS = 2**62


@contextmanager
def following(
    plan: Plan,
    instance: Instance,
    job: str,
    *,
    meet: str | None = None,
    process_group: dist.ProcessGroup | None = None,
    timeout: timedelta = TIMEOUT,
) -> Iterator[JobPlan]:
    """Have the training of this process wait for its turns in a plan, by GPU and by link.

    Every worker of every job of the plan has a process of its own, and enters such a block. In it, a `PartialBackprop`
    whose `levels` are the job of the plan begins a block when those before it on its GPU have ended, and exchanges a
    bucket when its links are free of those before it. The plan is repeated as long as the training goes on. The order
    alone binds, as in a run without ``--time-triggered``. Who leaves the block is waited for no more.

    Parameters
    ----------
    plan, instance
        A plan that lists all iterations, correct for the instance.
    job
        Name of the job that this process trains.
    meet
        ``HOST:PORT`` where all processes meet; the first worker of the plan's first job keeps it. None for the store
        of the default process group, which then has the workers of all jobs.
    process_group
        The group of the job's workers; None for the default group.
    timeout
        Longest wait for another process. One that was killed, so that it cannot leave the block, is missed after 30 s.

    Yields
    ------
    JobPlan
        The job of the plan, for `levels`.

    Raises
    ------
    UsageError
        There is no such job, the number of workers is another one, or the processes do not know where to meet.
    CheckFailedError
        The plan breaks a rule.
    RunFailedError
        Another process did not come in time, or was killed, or nobody keeps `meet`.
    """
    require_correct(instance, plan)
    if any(phase.is_counted for _, _, phase in plan.all_phases()):
        message = "a plan whose phases are counted cannot be followed: it needs one that lists all iterations"
        raise unsupported("plan", message)
    if any(own.exchange is not None and (own.exchange.every or 1) > 1 for own in instance.data_parallel_jobs):
        raise unsupported("instance", "an iteration with several steps, the `every` of an exchange, cannot be followed")
    names = [job.name for job in plan.data_parallel]
    if job not in names:
        raise UsageError(
            f"the plan has no job {job!r}, but {', '.join(map(repr, names))}", code="unknown-name", path="job"
        )
    number = names.index(job)
    workers = len(plan.data_parallel[number].gpus)
    rank, world = (dist.get_rank(process_group), dist.get_world_size(process_group)) if _is_group() else (0, 1)
    if world != workers:
        raise mismatch("workers", f"job {job!r} of the plan has {workers} workers; here are {world}")
    order = ReplayOrder(instance, plan)
    place = _Place(number, rank, sum(map(len, order.ranks)))
    turns = PlanTurns(order, place, _store(place, meet, timeout), timeout)
    before = set_turns(turns)
    try:
        with turns:
            yield plan.data_parallel[number]
    finally:
        set_turns(before)


@dataclass(frozen=True)
class _Place:
    """The job and the worker of a process, by number, and how many workers all jobs have."""

    job: int
    worker: int
    processes: int


def _is_group() -> bool:
    return dist.is_available() and dist.is_initialized()


def _store(place: _Place, meet: str | None, timeout: timedelta) -> tuple[AnyStore, bool]:
    """Return the store that all share, and whether this process keeps it."""
    if meet is not None:
        host, _, port = meet.rpartition(":")
        if not host or not port.isdecimal():
            raise malformed("meet", f"processes meet at HOST:PORT, not {meet!r}")
        keeps = place.job == 0 and place.worker == 0
        try:
            return TCPStore(host, int(port), None, keeps, timeout, wait_for_workers=False), keeps
        except dist.DistError as error:
            keeper = "the first worker of the plan's first job"
            why = f"{keeper} cannot keep it: {_first_line(error)}" if keeps else f"{keeper} has not begun"
            raise RunFailedError(f"nobody is at {meet} after {timeout.total_seconds():g} s: {why}") from None
    if place.processes == 1:
        return HashStore(), False
    if not _is_group() or dist.get_world_size() < place.processes:
        message = f"the plan has {place.processes} workers in all: say meet='HOST:PORT', the same to all"
        raise missing_option("meet", message)
    return PrefixStore("plan", dist.distributed_c10d._get_default_store()), dist.get_rank() == 0


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


class PlanTurns:
    """The turns of one process.

    `order`: the order of all blocks and transfers. `place`: the job and the worker of this process. `store`: what all
    processes share, and whether it ends with this one.
    """

    def __init__(self, order: ReplayOrder, place: _Place, store: tuple[AnyStore, bool], timeout: timedelta) -> None:
        self._order, self._place, self._timeout = order, place, timeout.total_seconds()
        self._store, self._keeps = store
        self._ended = Event()
        self._heard: dict[tuple[int, int], tuple[int, float]] = {}
        self._extent = ReplayExtent([0] * len(order.jobs), maxsize)
        everything, rank = ReplayExtent([0] * len(order.jobs), maxsize), order.ranks[place.job][place.worker]
        windows = order.windows(everything)
        # All blocks on this GPU in their order, pass behind pass.
        self._steps = (step for window in windows for step in order.steps(rank, window, everything))
        self._ended_buckets: set[int] = set()
        self._has_begun = self._is_over = False

    def __enter__(self) -> PlanTurns:
        Thread(target=self._tell_of_life, name="heartbeat", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over = error[0] is not None
        self._ended.set()
        with suppress(*[RunFailedError] if self._is_over else []):
            self._leave()

    def _leave(self) -> None:
        self._ask("set", f"left {self._place.job} {self._place.worker}", "")
        left = self._ask("add", "left", 1)
        if self._keeps and not self._is_over:
            everybody = [(job, worker) for job, ranks in enumerate(self._order.ranks) for worker in range(len(ranks))]
            self._wait(
                lambda: left == self._place.processes or self._ask("add", "left", 0) == self._place.processes, everybody
            )

    def follows(self, job: object) -> bool:
        """Return whether a training whose levels are those of `job` waits for these turns."""
        return job is self._order.jobs[self._place.job] or job == self._order.jobs[self._place.job]

    def begin_block(self, iteration: int) -> None:
        """Return when all blocks before that of `iteration` on this GPU have ended."""
        job, worker = self._place.job, self._place.worker
        if not self._has_begun:
            self._has_begun = True
            self._ask("set", f"first {job} {worker}", str(iteration))
        for step in self._steps:
            if (step.job, step.place) == (job, worker):
                if step.iteration == iteration:
                    return
                if step.iteration > iteration:
                    raise wrong_order(
                        "iteration",
                        f"iteration {iteration} of job {self._order.jobs[job].name!r} is behind in the plan: one model "
                        "follows a job, iteration after iteration; enter following() anew for another one",
                    )
            else:
                self._wait(lambda step=step: self._has_ended(step), [(step.job, step.place)])  # type: ignore[misc]

    def end_block(self, device: torch.device) -> None:
        """Tell that the block has ended on its device."""
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()
        self._ask("add", f"blocks {self._place.job} {self._place.worker}", 1)

    @contextmanager
    def transfer(self, iteration: int, bucket: int, is_first: bool, is_last: bool) -> Iterator[None]:
        """Wait, before the exchange of a part of a bucket, until its links are free; note afterwards that it has ended.

        `bucket`: number of the bucket, from 1. `is_last`: whether it is the bucket's last part, with whose end the
        transfer has ended.
        """
        if is_first:
            self._wait_for_links(TransferKey(self._place.job, iteration, bucket))
        yield
        if is_last:
            self._end_transfer(bucket)

    def end_iteration(self) -> None:
        """Tell that the transfers of this iteration have ended, those of buckets without parameters too."""
        for bucket in range(1, self._order.depths[self._place.job] + 1):
            if bucket not in self._ended_buckets:
                self._end_transfer(bucket)
        self._ended_buckets.clear()

    def _end_transfer(self, bucket: int) -> None:
        self._ended_buckets.add(bucket)
        self._ask("add", f"transfers {self._place.job} {bucket}", 1)

    def _wait_for_links(self, key: TransferKey) -> None:
        while True:
            earlier = self._order.before(key, self._extent)
            for one in earlier:
                workers = [(one.job, worker) for worker in range(len(self._order.ranks[one.job]))]
                self._wait(lambda one=one: self._has_arrived(one), workers)  # type: ignore[misc]
            gone = [one.job for one in earlier if self._has_left(one.job)]
            if not gone:
                return
            for job in gone:  # who stood before them may still be there
                self._extent.done[job] = _ENDLESS  # type: ignore[index]

    def _has_ended(self, step: RowStep) -> bool:
        return self._has_worker_left(step.job, step.place) or self._is_past(
            step.job, step.place, f"blocks {step.job} {step.place}", 1, step.iteration
        )

    def _has_arrived(self, key: TransferKey) -> bool:
        workers = len(self._order.ranks[key.job])
        return self._is_past(key.job, 0, f"transfers {key.job} {key.bucket}", workers, key.iteration) or self._has_left(
            key.job
        )

    def _is_past(self, job: int, worker: int, counter: str, each: int, iteration: int) -> bool:
        """Return whether more than `iteration` have ended since the worker's first one; `each` counts make one."""
        first = f"first {job} {worker}"
        return bool(
            self._ask("check", [first])
            and int(self._ask("get", first)) + self._ask("add", counter, 0) // each > iteration
        )

    def _has_left(self, job: int) -> bool:
        return all(self._has_worker_left(job, worker) for worker in range(len(self._order.ranks[job])))

    def _wait(self, is_over: Callable[[], bool], workers: Sequence[tuple[int, int]]) -> None:
        """Return when something is over for which these `workers` of jobs, by number, have to come."""
        began, looked = monotonic(), 0.0
        while not is_over():
            now = monotonic()
            if self._is_over or now > began + self._timeout:
                awaited = " or ".join(self._named(*worker) for worker in workers if not self._has_worker_left(*worker))
                raise RunFailedError(f"{awaited} did not come to a turn in {self._timeout:g} s")
            if now > looked + _BEAT_S:
                looked = now
                for worker in workers:
                    self._require_alive(*worker)
            sleep(_PAUSE_S)

    def _tell_of_life(self) -> None:
        key = f"alive {self._place.job} {self._place.worker}"
        with suppress(RunFailedError):  # who trains will find out
            while not self._ended.wait(_BEAT_S):
                self._ask("add", key, 1)

    def _require_alive(self, job: int, worker: int) -> None:
        """Raise `RunFailedError` if a worker that has begun has told nothing for too long, and has not left."""
        beats, now = self._ask("add", f"alive {job} {worker}", 0), monotonic()
        known, since = self._heard.get((job, worker), (-1, now))
        if beats != known:
            self._heard[job, worker] = beats, now
        elif beats and now > since + LOST_S and not self._has_worker_left(job, worker):
            raise RunFailedError(
                f"{self._named(job, worker)} was killed or stands still: no sign of life for {LOST_S:g} s"
            )

    def _has_worker_left(self, job: int, worker: int) -> bool:
        return bool(self._ask("check", [f"left {job} {worker}"]))

    def _ask(self, name: str, *arguments: Any) -> Any:
        """Call a method of the store, whose loss is an error of the run."""
        try:
            return getattr(self._store, name)(*arguments)
        except dist.DistError as error:
            raise RunFailedError(f"who keeps the place where all meet has gone: {_first_line(error)}") from None

    def _named(self, job: int, worker: int) -> str:
        plan = self._order.jobs[job]
        return f"worker {worker} of job {plan.name!r} on {plan.gpus[worker]}"
