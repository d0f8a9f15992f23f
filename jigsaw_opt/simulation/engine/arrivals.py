"""When jobs arrive: once they are submitted, the jobs before them have ended, and their array has room for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter

from jigsaw_opt.errors import wrong_input
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.dependencies import ArrayPlaces, numbers_by_name

_MOST_NAMES = 5


class Arrivals:
    """The jobs of a workload that a policy does not see yet.

    A job that must wait for others arrives when the last of them ends, and a task of an array with a limit when so few
    other tasks of it are there. Names that no job and no array has are of jobs that ended before.

    `jobs`: the jobs in order of submission. `constrained`: whether any job waits for more than its submission. `held`:
    numbers of those that are submitted and have not arrived, in order of submission. `later`: the time and the number
    of those that are submitted only later, though jobs after them have been.
    """

    def __init__(self, jobs: Sequence[TraceJob]) -> None:
        self._jobs = jobs
        self.submitted = 0
        self.held: list[int] = []
        self.later: list[tuple[int, int]] = []
        self._before = _numbers_before(jobs)
        self._after: defaultdict[int, list[int]] = defaultdict(list)
        for index, before in self._before.items():
            for other in before:
                self._after[other].append(index)
        _refuse_cycles(jobs, self._before)
        self._places = ArrayPlaces()
        self.constrained = is_constrained(jobs)

    @property
    def next_us(self) -> int | None:
        """When the next job is submitted; None where all are."""
        times = [time_us for time_us, _ in self.later[:1]]
        times += [job.submit_us for job in self._jobs[self.submitted : self.submitted + 1]]
        return min(times, default=None)

    def submit(self, now_us: int) -> list[int]:
        """Return the numbers of the jobs that are submitted by now and were not before."""
        first = self.submitted
        while self.submitted < len(self._jobs) and self._jobs[self.submitted].submit_us <= now_us:
            self.submitted += 1
        new = []
        while self.later and self.later[0][0] <= now_us:
            new.append(self.later.pop(0)[1])
        new += range(first, self.submitted)
        self.held += new
        return new

    def arrive(self) -> list[int]:
        """Return the numbers of the jobs that arrive now, in order of submission."""
        found = [index for index in self.held if self._has_room(index)]
        if found:
            gone = set(found)
            self.held = [index for index in self.held if index not in gone]
        return found

    def end(self, index: int) -> None:
        """Note that a job has ended."""
        self._places.leave(self._jobs[index])
        for other in self._after.pop(index, ()):
            self._before[other].discard(index)

    def restore(self, active: Iterable[int], ended: Iterable[int], held: Iterable[int]) -> str | None:
        """Restore which jobs are active, have ended and are held; return what of it cannot be, or None."""
        active, ended, self.held = list(active), list(ended), list(held)
        self.submitted = len(active) + len(ended) + len(self.held)
        for index in ended:
            self.end(index)
        self._places = ArrayPlaces(map(self._jobs.__getitem__, active))
        early = next((k for k in (*active, *ended) if self._before.get(k)), None)
        if early is not None:
            return f"job {self._jobs[early].name!r} is there before the jobs that it waits for have ended"
        return None

    def _has_room(self, index: int) -> bool:
        """Return whether a job waits for no other, and its array has room; then it takes a place there."""
        job = self._jobs[index]
        if self._before.get(index) or not self._places.has_room(job):
            return False
        self._places.take(job)
        return True


def is_constrained(jobs: Iterable[TraceJob]) -> bool:
    """Return whether any job waits for more than its submission."""
    return any(job.after or job.array_limit for job in jobs)


def _numbers_before(jobs: Sequence[TraceJob]) -> dict[int, set[int]]:
    """Return the numbers of the jobs that must have ended before each job that waits for any."""
    if not any(job.after for job in jobs):
        return {}
    named = numbers_by_name(dict(enumerate(jobs)))
    found = {k: {other for name in job.after or () for other in named.get(name, ())} for k, job in enumerate(jobs)}
    return {index: before for index, before in found.items() if before}


def _refuse_cycles(jobs: Sequence[TraceJob], before: dict[int, set[int]]) -> None:
    """Raise an error that names jobs which wait for each other."""
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        *cycle, _ = reversed(error.args[1])
        first = cycle.index(min(cycle))
        names = ", ".join(repr(jobs[k].name) for k in [*cycle[first:], *cycle[:first]][:_MOST_NAMES])
        raise wrong_input("$.jobs", f"jobs wait for each other: {names}", code="cycle") from None
