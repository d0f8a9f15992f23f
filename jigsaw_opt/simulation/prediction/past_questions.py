"""Questions of the past whose answers a trace tells: when would a job start that waited then?

Each is answered from what was known at its time, as the question of today is, so that the errors of the answers tell
how far the intervals of today are to be corrected (`jigsaw_opt/scheduling/live/start_prediction.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from random import Random

from jigsaw_opt.errors import UsageError
from jigsaw_opt.scheduling.live.start_prediction import PastAnswer
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.prediction.predicting import predict_starts
from jigsaw_opt.simulation.prediction.trace_queue import queue_at

PAST_DAYS = 5
"""Errors of so many days are looked at: a queue goes through good and bad weeks."""
_AT_ONCE = 3
"""Jobs that are asked about at one moment, as simulations of the same queue tell of all of them."""
_SAMPLES = 19
"""Simulations of a moment: so many that one in twenty starts lies before the first of them, and one behind the last."""


def past_answers(
    setting: Setting,
    at_us: int,
    arrive: bool = True,
    moments: int = 30,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[list[PastAnswer], int]:
    """Ask at moments of the past when jobs will start; return the answers and at how many moments there was none.

    Each job is asked about once. Of those that still wait there is no answer yet.

    `setting`: the cluster, who decides, and the workload whose jobs tell when they started and ended. `moments`: at how
    many moments, all at which jobs waited, of the last `PAST_DAYS` days. `stop`: is asked after each simulation whether
    to be content with the answers that there are.
    """
    starts = {
        job.name: (job.submit_us, job.start_us)
        for job in (*setting.workload.jobs, *setting.workload.unfinished)
        if job.start_us is not None and job.start_us <= at_us and job.held_by is None
    }
    random, answers, silent = Random(f"{seed}/past"), list[PastAnswer](), 0
    for moment_us in _moments(list(starts.values()), at_us, moments, random):
        try:
            found = queue_at(setting, moment_us, arrive)
            numbers = [k for k, one in found.queue.jobs.items() if one.share is None and one.job.name in starts]
            asked = random.sample(numbers, min(_AT_ONCE, len(numbers)))
            predictions = predict_starts(setting, found.queue, asked, found.past, _SAMPLES, seed, stop)
        except UsageError:
            silent += 1
            continue
        if stop():
            break
        for one in predictions:
            answers.append(PastAnswer(one, starts.pop(one.job)[1] - moment_us))
    return answers, silent


def _moments(waits: Iterable[tuple[int, int]], at_us: int, count: int, random: Random) -> list[int]:
    """Draw moments at which jobs waited, all alike, and return them in order."""
    first_us = at_us - PAST_DAYS * 86_400_000_000
    spans = list(_unions((max(submit_us, first_us), start_us) for submit_us, start_us in waits))
    ends = list(accumulate(end_us - start_us for start_us, end_us in spans))
    found = []
    for _ in range(count if ends else 0):
        within_us = random.randrange(ends[-1])
        k = bisect_right(ends, within_us)
        found.append(spans[k][1] - (ends[k] - within_us))
    return sorted(found)


def _unions(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the times that any of some spans covers, in order."""
    begun: tuple[int, int] | None = None
    for start_us, end_us in sorted(span for span in spans if span[0] < span[1]):
        if begun is not None and start_us <= begun[1]:
            begun = begun[0], max(begun[1], end_us)
        else:
            if begun is not None:
                yield begun
            begun = start_us, end_us
    if begun is not None:
        yield begun
