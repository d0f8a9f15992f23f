"""When a waiting job will start."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from jigsaw_opt.cli.clusters.simulate_setting import add_cluster, add_columns, add_speeds
from jigsaw_opt.cli.common.output import ended, note, print_json
from jigsaw_opt.system.interrupts import interrupt_flag
from jigsaw_opt.text import counted

EXAMPLE = "jigsaw when slurm:sacct.txt 4711 --cluster 16x8:a100 --policy backfill:default_limit=24"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "queue",
        metavar="[FORMAT:]QUEUE",
        help="jobs that wait, run and have ended: a workload in CSV, or a list of slurm, kubernetes, alibaba, ...",
    )
    parser.add_argument("job", metavar="JOB", help="a job that waits")
    add_columns(parser)
    add_cluster(parser)
    add_speeds(parser)
    parser.add_argument(
        "--policy",
        default="backfill",
        metavar="NAME[:OPTION=VALUE...]",
        help="who decides, as in fifo or backfill:default_limit=24 (default: backfill)",
    )
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="ask at this time: a date as 2026-01-31T08:30, or hours from the first submission"
        " (default: the last time in QUEUE)",
    )
    parser.add_argument(
        "--no-arrivals", action="store_true", help="no later jobs; else they arrive as on days before, drawn by --seed"
    )
    parser.add_argument(
        "--questions",
        type=int,
        default=30,
        metavar="N",
        help="moments of the last days at which the same is asked; how far the answers were wrong corrects the"
        " intervals (default: 30; 0: none)",
    )
    parser.add_argument("--samples", type=int, default=200, metavar="N", help="simulations of the queue (default: 200)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of draws (default: 0)")
    parser.add_argument(
        "--round",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="seconds between decisions; 0: at once (default: 60)",
    )
    parser.add_argument(
        "--restart",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="pause of a job that starts, beyond the duration that QUEUE tells (default: 0)",
    )
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Simulate the queue forward and print when the job starts; a signal meanwhile ends with what there is."""
    from dataclasses import replace

    from jigsaw_opt.cli.clusters.simulate_setting import tell_reading
    from jigsaw_opt.simulation.inputs.reading import read_setting
    from jigsaw_opt.simulation.prediction.past_questions import past_answers
    from jigsaw_opt.simulation.prediction.predicting import predict_starts
    from jigsaw_opt.simulation.prediction.trace_queue import queue_at, time_in, waiting_job

    setting = read_setting(
        arguments.queue,
        arguments.cluster,
        arguments.policy,
        columns=arguments.columns,
        performance="seconds",
        speeds=arguments.speeds,
        round_s=arguments.round,
        restart_s=arguments.restart,
        seed=arguments.seed,
        too_wide="skip",
    )
    tell_reading([setting], setting.workload.unfinished)
    at_us, arrive = time_in(setting.workload, arguments.at), not arguments.no_arrivals
    found = queue_at(setting, at_us, arrive)
    job = waiting_job(setting.workload, found.queue, arguments.job)
    if (name := found.queue.jobs[job].job.name) != arguments.job:
        note(f"{arguments.job} is an array, and {name} is the first of its tasks that waits")
    for remark in found.remarks:
        note(remark)
    with interrupt_flag() as interrupted:
        (prediction,) = predict_starts(
            setting, found.queue, [job], found.past, arguments.samples, arguments.seed, interrupted
        )
        answers, silent = past_answers(setting, at_us, arrive, arguments.questions, arguments.seed, interrupted)
        was_interrupted = interrupted()
    prediction = replace(prediction, answers=tuple(answers))
    for remark in _remarks(prediction.samples, len(answers), silent):
        note(remark)
    if arguments.json:
        waiting = sum(one.share is None for one in found.queue.jobs.values())
        counts = {"waiting": waiting, "running": len(found.queue.jobs) - waiting, "past": len(found.past.ended)}
        print_json({**prediction.plain(), "policy": arguments.policy, **counts})
    else:
        print(prediction)
    return ended(
        was_interrupted, f"{counted(prediction.samples, 'simulation')} and {counted(len(answers), 'answer')} were made"
    )


def _remarks(samples: int, answers: int, silent: int) -> Iterator[str]:
    """Yield sentences on simulations that are too few, and on questions of the past that tell nothing."""
    from jigsaw_opt.scheduling.start_prediction import FEWEST_ANSWERS, FEWEST_SAMPLES

    if samples < FEWEST_SAMPLES:
        few = counted(samples, "simulation")
        yield f"{few}, fewer than {FEWEST_SAMPLES}: an interval of 90 % is too narrow then"
    if silent:
        yield f"{counted(silent, 'moment')} of the past left aside, at which the file does not tell who ran"
    if answers < FEWEST_ANSWERS:
        few = f"{counted(answers, 'answer')} of the last days, fewer than {FEWEST_ANSWERS}"
        yield f"the intervals are as simulated: {few}"
