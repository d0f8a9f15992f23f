"""When a waiting job will start."""

from __future__ import annotations

import argparse
from threading import Event

from jigsaw_opt.cli.clusters.simulate_setting import configure_setting, given_parts
from jigsaw_opt.cli.common.output import ended, note, print_json
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
    configure_setting(parser, ("columns", "cluster", "speeds", "round"))
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
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")


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
