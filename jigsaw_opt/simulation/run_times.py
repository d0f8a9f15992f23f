"""How long jobs last that have not ended, and which jobs arrive, drawn from those that were there before.

Run times are drawn from the jobs of the same user and size first (Smith, Taylor and Foster, JSSPP 1999), and only from
those that lasted longer than the job has run (Downey, IPPS 1997). Jobs that still run count as well: of one that is
drawn it is known that it lasts longer than it has run, so that one of those that lasted longer still is drawn in its
place. So draws follow the estimator of Kaplan and Meier (Efron, Berkeley Symposium 1967).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random

from jigsaw_opt.problem.workload import LARGEST, TraceJob

__all__ = ["RunTimes", "arrivals", "lasting"]

_ENOUGH = 5
"""From so many jobs that lasted longer a run time is drawn; where there are fewer, from a wider group."""
_ALIKE = 0.5
"""So often a run time has the rank, among those that are longer, that others of its group have in a simulation."""
_DAY_US = 86_400_000_000


class RunTimes:
    """Run times of jobs on their GPUs.

    `ended`: jobs that ended, each with the microseconds that it lasted. `running`: jobs that run, each with the
    microseconds that it has run.
    """

    def __init__(self, ended: Iterable[tuple[TraceJob, int]], running: Iterable[tuple[TraceJob, int]] = ()) -> None:
        self._groups: dict[object, list[tuple[int, bool]]] = {}
        known = [*((job, us, True) for job, us in ended), *((job, us, False) for job, us in running)]
        for job, lasted_us, is_over in sorted(known, key=lambda one: one[0].submit_us):
            for group in _groups(job):
                self._groups.setdefault(group, []).append((lasted_us, is_over))
        self._sorted = {group: sorted(times) for group, times in self._groups.items()}

    def draw(self, job: TraceJob, run_us: int, random: Random, periods: dict[object, float] | None = None) -> int:
        """Draw how many microseconds a job lasts that has run for `run_us`, which is less; at most its time limit.

        Where no job lasted longer, it lasts `x` times as long as it has run with probability `1 / x`.
        """
        lasted_us = max(run_us + 1, self._drawn(job, run_us, random, periods))
        if job.time_limit_us is not None:
            lasted_us = max(run_us + 1, min(lasted_us, job.time_limit_us))
        return min(LARGEST, lasted_us)

    def _drawn(self, job: TraceJob, run_us: int, random: Random, periods: dict[object, float] | None) -> int:
        times: Sequence[tuple[int, bool]] = ()
        group: object = None
        for group in _groups(job):
            times = self._sorted.get(group, ())
            longer = bisect_right(times, (run_us, True))
            # Jobs that still run count as longer ones, but only ended ones say how long: there must be enough of these.
            if sum(is_over for _, is_over in times[longer : longer + 4 * _ENOUGH]) >= _ENOUGH:
                break
        known_us = run_us
        if periods is not None and not run_us and times:
            in_order = self._groups[group]
            first = int(periods.setdefault(group, random.random()) * max(1, len(in_order) - _ENOUGH + 1))
            known_us, is_over = in_order[first + random.randrange(min(_ENOUGH, len(in_order)))]
            if is_over:
                return known_us
        # A job that still runs says only that the run time is longer than its own: another longer one is drawn.
        while (longer := bisect_right(times, (known_us, True))) < len(times):
            rank = random.random()
            if periods is not None and random.random() < _ALIKE:
                rank = periods.setdefault(("rank", group), rank)
            known_us, is_over = times[longer + int(rank * (len(times) - longer))]
            if is_over:
                return known_us
        return int(max(1, known_us) / (1.0 - random.random()))


def _groups(job: TraceJob) -> Iterator[object]:
    """Yield the groups that a job belongs to, the narrowest first."""
    if job.user is not None:
        yield job.user, job.gpus
        yield job.user
    if job.queue is not None:
        yield "queue", job.queue, job.gpus
        yield "queue", job.queue
    yield job.gpus
    yield None


def lasting(job: TraceJob, lasted_us: int) -> TraceJob:
    """Return a job with another duration."""
    own = TraceJob.lasting(job.name, job.submit_us, job.gpus, lasted_us)
    return replace(job, model=own.model, iterations=own.iterations)


def arrivals(jobs: Sequence[TraceJob], now_us: int, days: int, random: Random) -> Iterator[TraceJob]:
    """Yield jobs that arrive in the next days: each day those of a day that is drawn of the days up to now.

    Days begin at the time of day that it is now, so that arrivals follow the hours. There are none where the jobs go
    back for less than a day.
    """
    submitted = [job.submit_us for job in jobs]
    known = (now_us - submitted[0]) // _DAY_US if jobs else 0
    for day in range(days if known else 0):
        back = random.randint(1, known)
        first, end = (bisect_left(submitted, now_us - k * _DAY_US) for k in (back, back - 1))
        for k in range(first, end):
            own = {"name": f"{day}:{k}", "submit_us": submitted[k] + (back + day) * _DAY_US}
            yield replace(jobs[k], **own, after=None, array=None, array_limit=None)  # type: ignore[arg-type]
