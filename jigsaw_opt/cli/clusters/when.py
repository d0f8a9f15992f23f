"""When a waiting job will start."""

from __future__ import annotations

import argparse
from threading import Event

from jigsaw_opt.cli.clusters.simulate_setting import given_parts, setting_arguments
from jigsaw_opt.cli.common.arguments import Arguments
from jigsaw_opt.cli.common.output import ended, note, print_json
from jigsaw_opt.text import counted

EXAMPLE = "jigsaw when slurm:sacct.txt 4711 --cluster 16x8:a100 --policy backfill:default_limit=24"
ARGUMENTS: Arguments = {
    "queue [FORMAT:]QUEUE": "jobs that wait, run and have ended: a workload in CSV, or a list of slurm, kubernetes,"
    " alibaba, ...",
    "job JOB": "a job that waits",
    **setting_arguments("columns", "cluster", "speeds", "round"),
    "--policy NAME[:OPTION=VALUE...] = backfill": "who decides, as in fifo or backfill:default_limit=24",
    "--at TIME": "ask at this time: a date as 2026-01-31T08:30, or hours from the first submission (default: the last"
    " time in QUEUE)",
    "--no-arrivals": "no later jobs; else they arrive as on days before, drawn by --seed",
    "--questions N = 30": "moments of the last days at which the same is asked; how far the answers were wrong"
    " corrects the intervals (default: 30; 0: none)",
    "--samples N = 200": "simulations of the queue",
    "--seed N = 0": "seed of draws",
    "--json": "print all figures as JSON",
}


def run(arguments: argparse.Namespace) -> int:
    """Simulate the queue forward and print when the job starts; a signal meanwhile ends with what there is."""
    from jigsaw_opt.simulation.prediction.when import when

    cancel, names = Event(), ("job", "policy", "at", "samples", "questions", "seed")
    own = {name: getattr(arguments, name) for name in names}
    own |= {"arrivals": not arguments.no_arrivals, "cancel": cancel}
    found = when(arguments.queue, **own, **given_parts(arguments))
    for remark in found.remarks:
        note(remark)
    if arguments.json:
        print_json(found.plain())
    else:
        print(found)
    samples, answers = found.prediction.samples, len(found.prediction.answers)
    return ended(cancel.is_set(), f"{counted(samples, 'simulation')} and {counted(answers, 'answer')} were made")
