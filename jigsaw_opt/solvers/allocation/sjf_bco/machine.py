"""Starting jobs one after another in a given order: what the algorithms of SJF-BCO have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from jigsaw_opt.formulations.sjf_bco import Batch, BatchProgress, BatchSchedule, estimate, overestimate
from jigsaw_opt.solvers.allocation.sjf_bco.rules import Rule


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """A schedule that an algorithm made.

    `gpus`: the GPUs of every job, ascending; they are numbered from 0 through the servers.
    """

    schedule: BatchSchedule
    ends: tuple[int, ...]
    gpus: tuple[tuple[int, ...], ...]

    @property
    def makespan(self) -> int:
        """Return the last end, in slots."""
        return max(self.ends)


class Estimates:
    """Estimates that the algorithms have of a batch beforehand."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.slots = [estimate(batch, job) for job in batch.jobs]
        self.divisor = overestimate(batch)
        self.server_of = [s for s, count in enumerate(batch.gpus) for _ in range(count)]

    def budget(self, limit: int) -> int:
        """Return the largest sum of estimates on a GPU under the limit: ``sum rho^_j / u <= theta``, in integers."""
        return int(limit * self.divisor)


class Machine:
    """The GPUs while jobs are started on them.

    `limit`: no GPU is planned to work longer, ``theta``, in slots.
    """

    def __init__(self, known: Estimates, limit: int) -> None:
        self.known = known
        self.sizes, self.server_of = known.batch.gpus, known.server_of
        self.loads = [0] * len(known.server_of)
        """Sum of estimates on every GPU so far, ``u U_g``."""
        self.progress = BatchProgress(known.batch)
        self._budget = known.budget(limit)
        self._free = set(range(len(self.loads)))
        self._held: dict[int, tuple[int, ...]] = {}
        self._starts: dict[int, int] = {}
        self._gpus: dict[int, tuple[int, ...]] = {}

    def candidates(self, job: int) -> list[int]:
        """Return the GPUs, ascending, that are free now and stay within the limit with this job."""
        room = self._budget - self.known.slots[job]
        return sorted(gpu for gpu in self._free if self.loads[gpu] <= room)

    def workers(self, job: int) -> int:
        """Return how many GPUs a job needs."""
        return self.known.batch.jobs[job].workers

    def start(self, job: int, gpus: Iterable[int]) -> None:
        """Start a job now on GPUs."""
        chosen = tuple(sorted(gpus))
        self._gpus[job] = self._held[job] = chosen
        self._starts[job] = self.progress.clock
        self._free.difference_update(chosen)
        for gpu in chosen:
            self.loads[gpu] += self.known.slots[job]
        self.progress.start(job, self._spread(chosen))

    def wait(self, until: int) -> bool:
        """Go on to the next end of a job before slot `until`; return False where there is none."""
        if not self.progress.to_next_end(until - 1):
            return False
        for job in self._held.keys() - self.progress.running.keys():
            self._free.update(self._held.pop(job))
        return True

    def outcome(self) -> BatchOutcome:
        """Return the schedule, once all jobs have ended."""
        jobs = range(len(self.known.batch.jobs))
        gpus = tuple(self._gpus[job] for job in jobs)
        schedule = BatchSchedule(tuple(self._starts[job] for job in jobs), tuple(map(self._spread, gpus)))
        return BatchOutcome(schedule, tuple(self.progress.ends[job] for job in jobs), gpus)

    def _spread(self, gpus: Sequence[int]) -> tuple[int, ...]:
        spread = [0] * len(self.sizes)
        for gpu in gpus:
            spread[self.server_of[gpu]] += 1
        return tuple(spread)


def list_schedule(known: Estimates, order: Sequence[int], rule: Rule, limit: int, before: int) -> BatchOutcome | None:
    """Start the jobs strictly in order, each as soon as the rule finds GPUs for it.

    None where a job finds no GPUs although nothing runs, or the makespan is not below `before`.

    `known, order, rule`: the batch, its jobs in the order in which they start, and who chooses GPUs.
    """
    machine = Machine(known, limit)
    for job in order:
        while (chosen := rule(job, machine)) is None:
            if not machine.wait(before):
                return None
        machine.start(job, chosen)
    while machine.progress.running:
        if not machine.wait(before):
            return None
    return machine.outcome()


def best_limit(horizon: int, attempt: Callable[[int, int], BatchOutcome | None]) -> BatchOutcome | None:
    """Bisect on the limit: lower after an improvement, higher after none (Algorithm 1).

    `attempt`: from a limit and a makespan to beat, a schedule or None.
    """
    best, makespan = None, horizon
    low, high = 1, horizon
    while low <= high:
        limit = (low + high) // 2
        found = attempt(limit, makespan)
        if found is None:
            low = limit + 1
        else:
            best, makespan, high = found, found.makespan, limit - 1
    return best
