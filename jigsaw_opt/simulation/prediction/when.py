"""When a waiting job will start, by the file of its queue: one call.

The same is asked at moments of the past whose answers a trace tells: when would a job start that waited then? Each is
answered from what was known at its time, so that the errors of the answers tell how far the intervals of today are to
be corrected (`jigsaw_opt/scheduling/live/start_prediction.py`).
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random
from typing import Any

from jigsaw_opt.arguments import typed
from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.scheduling.live.start_prediction import FEWEST_ANSWERS, FEWEST_SAMPLES, PastAnswer, StartPrediction
from jigsaw_opt.scheduling.policy import Policy
from jigsaw_opt.simulation.engine.setting import Setting, reading_told
from jigsaw_opt.simulation.inputs.request import GivenWorkload, SimulationRequest, read_setting
from jigsaw_opt.simulation.prediction.predicting import predict_starts
from jigsaw_opt.simulation.prediction.trace_queue import queue_at, time_in, waiting_job
from jigsaw_opt.system.interrupts import on_interrupt
from jigsaw_opt.text import counted

PAST_DAYS = 5
"""Errors of so many days are looked at: a queue goes through good and bad weeks."""
_AT_ONCE = 3
"""Jobs that are asked about at one moment, as simulations of the same queue tell of all of them."""
_SAMPLES = 19
"""Simulations of a moment: so many that one in twenty starts lies before the first of them, and one behind the last."""


@dataclass(frozen=True, slots=True)
class PredictedStart:
    """When a waiting job will start.

    `prediction`: its starts in the simulations, which give intervals. `policy`: who decides. `waiting, running, past`:
    numbers of jobs that wait and run at that time, and that have ended before. `remarks`: what was left aside or is not
    to be trusted, in a sentence each.
    """

    prediction: StartPrediction
    policy: object
    waiting: int
    running: int
    past: int
    remarks: tuple[str, ...]

    def __str__(self) -> str:
        return str(self.prediction)

    def plain(self) -> dict[str, Any]:
        """Return all figures as values of JSON."""
        counts = {name: getattr(self, name) for name in ("policy", "waiting", "running", "past")}
        return {**self.prediction.plain(), **counts}


@typed
def when(
    workload: GivenWorkload,
    cluster: str | Cluster | Instance,
    job: str,
    policy: str | Policy = "backfill",
    *,
    at: str | float | None = None,
    arrivals: bool = True,
    samples: int = 200,
    questions: int = 30,
    round_s: float = 60.0,
    seed: int = 0,
    columns: str = "",
    speeds: str = "",
    cancel: threading.Event | None = None,
) -> PredictedStart:
    """Return when a waiting job will start, by simulations of its queue.

    Parameters
    ----------
    workload
        Jobs that wait, run and have ended, as in `SimulationRequest`.
    cluster
        The servers, an instance that has them, or text as in ``16x4:v100``.
    job
        Name of the job; that of an array is for the first of its tasks that waits.
    policy
        Who decides, or ``NAME:OPTION=VALUE...``.
    at
        Time at which is asked: a date, or hours from the first submission; None for the last that the workload tells.
    arrivals
        Whether later jobs arrive as on days before.
    samples
        Number of simulations of the queue.
    questions
        Moments of the last days at which the same is asked; how far the answers were wrong corrects the intervals.
    round_s, seed, columns, speeds
        As in `SimulationRequest`.
    cancel
        Set by another thread, it ends the simulations, and what there is counts; so does a first Ctrl-C or SIGTERM in
        the main thread.

    Returns
    -------
    PredictedStart
        Intervals, and what was left aside.

    Raises
    ------
    UsageError, InvalidInputError
        Parts are wrong, the job does not wait, or the workload does not tell who waited then.
    """
    own: dict[str, Any] = {"round_s": round_s, "seed": seed, "columns": columns, "speeds": speeds}
    # Durations in the file have what a start costs.
    own |= {"performance": "seconds", "restart_s": 0.0, "too_wide": "skip"}
    setting = read_setting(SimulationRequest(workload, cluster, policy, **own))
    at_us, cancel = time_in(setting.workload, None if at is None else str(at)), cancel or threading.Event()
    found = queue_at(setting, at_us, arrivals)
    number = waiting_job(setting.workload, found.queue, job)
    with on_interrupt(cancel.set):
        asked = setting, found.queue, [number], found.past
        (prediction,) = predict_starts(*asked, samples, seed, cancel.is_set)
        answers, silent = past_answers(setting, at_us, arrivals, questions, seed, cancel.is_set)
    waiting = sum(one.share is None for one in found.queue.jobs.values())
    remarks = [*reading_told([setting], setting.workload.unfinished), *found.remarks]
    if (name := found.queue.jobs[number].job.name) != job:
        remarks.append(f"{job} is an array, and {name} is the first of its tasks that waits")
    remarks += _doubts(prediction.samples, len(answers), silent)
    counts = waiting, len(found.queue.jobs) - waiting, len(found.past.ended)
    found_start = replace(prediction, answers=tuple(answers))
    return PredictedStart(found_start, setting.words["policy"], *counts, tuple(remarks))


def _doubts(samples: int, answers: int, silent: int) -> Iterator[str]:
    """Yield sentences on simulations that are too few, and on questions of the past that tell nothing."""
    if samples < FEWEST_SAMPLES:
        few = counted(samples, "simulation")
        yield f"{few}, fewer than {FEWEST_SAMPLES}: an interval of 90 % is too narrow then"
    if silent:
        yield f"{counted(silent, 'moment')} of the past left aside, at which the file does not tell who ran"
    if answers < FEWEST_ANSWERS:
        few = f"{counted(answers, 'answer')} of the last days, fewer than {FEWEST_ANSWERS}"
        yield f"the intervals are as simulated: {few}"


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
    spans = _unions((max(submit_us, first_us), start_us) for submit_us, start_us in waits)
    ends = list(accumulate(end_us - start_us for start_us, end_us in spans))
    found = []
    for _ in range(count if ends else 0):
        within_us = random.randrange(ends[-1])
        k = bisect_right(ends, within_us)
        found.append(spans[k][1] - (ends[k] - within_us))
    return sorted(found)


def _unions(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the times that any of some spans covers, in order."""
    found: list[tuple[int, int]] = []
    for start_us, end_us in sorted(span for span in spans if span[0] < span[1]):
        if found and start_us <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end_us)
        else:
            found.append((start_us, end_us))
    return found
