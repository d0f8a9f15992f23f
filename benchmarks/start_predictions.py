"""How often jobs start within the intervals that `jigsaw when` foretells, on weeks that it has not seen.

Run it as ``python benchmarks/start_predictions.py [--trace FORMAT:FILE...] [--cluster WORDS] [--questions N]
[--samples N] [--seed N] [POLICY...]``. The weeks of a trace (``JIGSAW_SHARED``; by default two of Philly, one
after the other) are simulated under a policy. Then questions are put at random moments after the first week: when will
a random one of the jobs start that wait? What happened before the moment is all that is known. The table counts how
often the true start lies in the intervals.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from random import Random

from common import outcome_of, print_table, shared

from jigsaw_opt.documents.readers.traces import read_trace
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.performance.seconds import Seconds
from jigsaw_opt.scheduling.start_prediction import StartPrediction
from jigsaw_opt.simulation.clusters import grid
from jigsaw_opt.simulation.engine import Simulation
from jigsaw_opt.simulation.predicting import predict_starts
from jigsaw_opt.simulation.setting import Setting
from jigsaw_opt.simulation.trace_queue import queue_at

WEEK_US = 7 * 86_400_000_000
PHILLY = tuple(f"philly:cluster/philly/philly_jobs_2017w{week}.csv" for week in (46, 48))
POLICIES = ("fifo", "backfill:default_limit=168")
HEADS = ("policy", "questions", "50 %", "90 %", "median wait h", "median width of 90 % h", "before", "after")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policies", nargs="*", default=list(POLICIES))
    parser.add_argument("--trace", nargs="+", default=list(PHILLY), help="FORMAT:FILE of each week")
    parser.add_argument("--cluster", default="48x8:v100")
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--samples", type=int, default=19)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    cluster = grid(arguments.cluster)
    assert cluster is not None
    jobs = weeks(arguments.trace, cluster.gpu_count)
    setting = Setting(cluster, Workload("weeks", jobs), Seconds(), restart_us=0)
    print_table(HEADS, (row(setting, policy, arguments) for policy in arguments.policies))


def weeks(traces: list[str], most_gpus: int) -> tuple[TraceJob, ...]:
    """Return the jobs of the first week of each trace, one after the other."""
    jobs: list[TraceJob] = []
    for number, words in enumerate(traces):
        name, _, file = words.partition(":")
        path = shared(file)
        for job in read_trace(name, path.read_bytes(), file).jobs:
            if job.submit_us < WEEK_US and job.gpus <= most_gpus:
                submit_us = job.submit_us + number * WEEK_US
                jobs.append(replace(job, name=f"{number}/{job.name}", submit_us=submit_us, start_us=None, end_us=None))
    return tuple(jobs)


def row(setting: Setting, policy: str, arguments: argparse.Namespace) -> tuple[str, ...]:
    setting = setting.under(policy)
    records = outcome_of(Simulation(setting)).jobs
    jobs = tuple(
        replace(setting.workload.jobs[record.index], start_us=record.start_us, end_us=record.finish_us)
        for record in records
    )
    setting = replace(setting, workload=Workload("weeks", jobs))
    draw, asked = Random(arguments.seed), list[tuple[StartPrediction, int]]()
    last_us = max(job.submit_us for job in jobs)
    while len(asked) < arguments.questions:
        at_us = draw.randrange(WEEK_US, last_us)
        waiting = [job for job in jobs if job.start_us is not None and job.submit_us <= at_us < job.start_us]
        if waiting:
            job = draw.choice(waiting)
            found = queue_at(setting, at_us)
            number = next(k for k, one in found.queue.jobs.items() if one.job.name == job.name)
            assert job.start_us is not None
            (one,) = predict_starts(setting, found.queue, [number], found.past, arguments.samples)
            asked.append((one, job.start_us))
    return policy, f"{len(asked)}", *figures(asked)


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
