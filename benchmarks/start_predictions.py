"""How often jobs start within the intervals that `jigsaw when` foretells, on weeks that it has not seen.

Run it as ``python benchmarks/start_predictions.py [--trace FORMAT:FILE...] [--weeks A B] [--queue NAME] [--from WEEK]
[--cluster WORDS] [--questions N] [--samples N] [--seed N] [POLICY...]``. The weeks of a trace (``JIGSAW_SHARED``; by
default two of Philly, one after the other) are simulated under a policy. Then questions are put at random moments: when
will a random one of the jobs start that wait? What happened before the moment is all that is known, answers of earlier
questions included, which correct the intervals. Questions before the week ``--from`` are asked for their answers alone.
The table counts how often the true start lies in the intervals, as simulated and as corrected.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from common import outcome_of, print_table, shared

from jigsaw_opt.documents.readers.traces import read_trace
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.performance.seconds import Seconds
from jigsaw_opt.scheduling.start_prediction import PastAnswer, StartPrediction
from jigsaw_opt.simulation.clusters import grid
from jigsaw_opt.simulation.engine import Simulation
from jigsaw_opt.simulation.past_questions import PAST_DAYS
from jigsaw_opt.simulation.predicting import predict_starts
from jigsaw_opt.simulation.setting import Setting
from jigsaw_opt.simulation.trace_queue import queue_at

WEEK_US = 7 * 86_400_000_000
PHILLY = tuple(f"philly:cluster/philly/philly_jobs_2017w{week}.csv" for week in (46, 48))
POLICIES = ("fifo", "backfill:default_limit=168")
HEADS = ("policy", "questions", "50 %", "90 %", "median wait h", "median width of 90 % h", "before", "after")
"""Each row says whether intervals are as simulated or corrected."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policies", nargs="*", default=list(POLICIES))
    parser.add_argument("--trace", nargs="+", default=list(PHILLY), help="FORMAT:FILE of each week")
    parser.add_argument("--weeks", type=int, nargs=2, default=[0, 1], help="from which to which week of each file")
    parser.add_argument("--queue", help="jobs of this queue alone")
    parser.add_argument("--from", type=int, default=1, dest="first", help="week of the first question that is counted")
    parser.add_argument("--cluster", default="48x8:v100")
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--samples", type=int, default=19)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    cluster = grid(arguments.cluster)
    assert cluster is not None
    jobs = weeks(arguments.trace, cluster.gpu_count, arguments.weeks, arguments.queue)
    setting = Setting(cluster, Workload("weeks", jobs), Seconds(), restart_us=0)
    print_table(HEADS, (row for policy in arguments.policies for row in rows(setting, policy, arguments)))


def weeks(traces: list[str], most_gpus: int, taken: list[int], queue: str | None) -> tuple[TraceJob, ...]:
    """Return the jobs of some weeks of each trace, one trace after the other, from time 0."""
    jobs: list[TraceJob] = []
    first_us, end_us = (week * WEEK_US for week in taken)
    for number, words in enumerate(traces):
        name, _, file = words.partition(":")
        path = shared(file)
        for job in read_trace(name, path.read_bytes(), file).jobs:
            if first_us <= job.submit_us < end_us and job.gpus <= most_gpus and queue in (None, job.queue):
                submit_us = job.submit_us - first_us + number * (end_us - first_us)
                jobs.append(replace(job, name=f"{number}/{job.name}", submit_us=submit_us, start_us=None, end_us=None))
    return tuple(jobs)


def rows(setting: Setting, policy: str, arguments: argparse.Namespace) -> Iterator[tuple[str, ...]]:
    setting = setting.under(policy)
    records = outcome_of(Simulation(setting)).jobs
    jobs = tuple(
        replace(setting.workload.jobs[record.index], start_us=record.start_us, end_us=record.finish_us)
        for record in records
    )
    setting = replace(setting, workload=Workload("weeks", jobs))
    asked: list[tuple[StartPrediction, int]] = []
    for at_us, job in questions(jobs, arguments.questions, Random(arguments.seed)):
        found = queue_at(setting, at_us)
        number = next(k for k, one in found.queue.jobs.items() if one.job.name == job.name)
        (one,) = predict_starts(setting, found.queue, [number], found.past, arguments.samples)
        assert job.start_us is not None
        asked.append((replace(one, answers=known(asked, one)), job.start_us))
    counted = [(one, start_us) for one, start_us in asked if one.now_us >= arguments.first * WEEK_US]
    yield f"{policy}, simulated", f"{len(counted)}", *figures([(replace(one, answers=()), at) for one, at in counted])
    yield f"{policy}, corrected", f"{len(counted)}", *figures(counted)


def questions(jobs: tuple[TraceJob, ...], count: int, draw: Random) -> list[tuple[int, TraceJob]]:
    """Draw moments at which jobs wait, from the first half week on, and one of these jobs for each."""
    found, last_us = list[tuple[int, TraceJob]](), max(job.submit_us for job in jobs)
    while len(found) < count:
        at_us = draw.randrange(WEEK_US // 2, last_us)
        waiting = [job for job in jobs if job.start_us is not None and job.submit_us <= at_us < job.start_us]
        if waiting:
            found.append((at_us, draw.choice(waiting)))
    return sorted(found, key=lambda question: question[0])


def known(asked: list[tuple[StartPrediction, int]], now: StartPrediction) -> tuple[PastAnswer, ...]:
    """Return the answers of the last days that are known by now, of each job one, as `past_answers` does."""
    first_us = now.now_us - PAST_DAYS * WEEK_US // 7
    found = {
        one.job: PastAnswer(replace(one, answers=()), start_us - one.now_us)
        for one, start_us in asked
        if one.now_us >= first_us and start_us <= now.now_us
    }
    return tuple(found.values())


def figures(asked: list[tuple[StartPrediction, int]]) -> list[str]:
    covered = {share: sum(is_within(one, start_us, share) for one, start_us in asked) for share in (0.5, 0.9)}
    waits = sorted(start_us - one.now_us for one, start_us in asked)
    bounds = [one.interval_us(0.9) for one, _ in asked]
    widths = sorted(high - low if low is not None and high is not None else 10**18 for low, high in bounds)
    early = sum(low is None or start_us < low for (low, _), (_, start_us) in zip(bounds, asked, strict=True))
    shares = [f"{100 * count / len(asked):.0f} %" for count in covered.values()]
    middle = [f"{times[len(times) // 2] / 3.6e9:.2f}" for times in (waits, widths)]
    late = len(asked) - covered[0.9] - early
    return [*shares, *middle, f"{100 * early / len(asked):.0f} %", f"{100 * late / len(asked):.0f} %"]


def is_within(one: StartPrediction, start_us: int, share: float) -> bool:
    low, high = one.interval_us(share)
    return low is not None and low <= start_us and (high is None or start_us <= high)


if __name__ == "__main__":
    main()
