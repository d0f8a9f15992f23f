"""Jobs that wait for others: for jobs and arrays before them to end, and for a place in their own array."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from jigsaw_opt.problem.workload import TraceJob


def numbers_by_name(jobs: Mapping[int, TraceJob]) -> Mapping[str, Sequence[int]]:
    """Return the numbers of the jobs of each name and of each array."""
    named: defaultdict[str, list[int]] = defaultdict(list)
    for index, job in jobs.items():
        for name in {job.name, job.array}:
            if name is not None:
                named[name].append(index)
    return named


class ArrayPlaces:
    """The places of arrays of which only so many tasks may wait or run at a time.

    `jobs`: the jobs that wait or run.
    """

    def __init__(self, jobs: Iterable[TraceJob] = ()) -> None:
        self._taken = Counter(job.array for job in jobs if job.array_limit)

    def has_room(self, job: TraceJob) -> bool:
        """Return whether the array of a job has a place for it, as has none at all."""
        return not job.array_limit or job.array is None or self._taken[job.array] < job.array_limit

    def take(self, job: TraceJob) -> None:
        """Note that a job waits or runs."""
        self._taken[job.array] += bool(job.array_limit)

    def leave(self, job: TraceJob) -> None:
        """Note that a job has ended."""
        self._taken[job.array] -= bool(job.array_limit)
