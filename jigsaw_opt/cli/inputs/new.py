"""Make an instance of your own jobs from a few words; what nobody said is assumed, and told."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jigsaw_opt.cli.common.arguments import Arguments
from jigsaw_opt.cli.common.options import warn_of_spb
from jigsaw_opt.cli.common.output import answer, emit, note, print_json, require_output
from jigsaw_opt.cli.common.parser import file_or_stdout
from jigsaw_opt.errors import missing_option

if TYPE_CHECKING:
    from jigsaw_opt.simulation.inputs.own_jobs import Assumption

_CLUSTER = "2x4:v100"
_MODEL = "resnet50"
_STATED = ("columns", "too_wide", "model", "link", "bandwidth", "segments", "depth", "objective")
"""Options that the library takes by these names."""
ARGUMENTS: Arguments = {
    "--cluster SERVERSxGPUS:TYPE": "as in 4x8:v100 or 2x4:v100+1x8:a100 (default: 2x4:v100)",
    "--job NAME:MODEL:WORKERS:ITERATIONS *": "a job, as in a:resnet50:4:100, a:resnet50@128:4:100 (batch) or"
    " a:gpt2_small:4:30s; several times",
    "--deadline [JOB=]TIME *": "when a job has to have ended, or all jobs have, as in a=2h, 3d or 90min; several times",
    "--jobs FILE": {"help": "a workload in CSV, as of jigsaw simulate; also day, week", "type": None},
    "--columns OURS=THEIRS,...": {"help": "what the CSV calls its columns", "default": ""},
    "--too-wide refuse|skip = refuse": "what becomes of a workload with a job of more GPUs than the cluster has:"
    " refuse it, or skip the job",
    "--model MODEL = resnet50": "model of jobs in CSV that state a duration",
    "--profile NAME=FILE *": "a model of jigsaw profile or convert",
    "one of:": {
        "--bandwidth BYTES": "bytes per second of a server's link",
        "--link FILE": {
            "help": "bandwidth and latency as measured: of jigsaw profile --all-reduce N --json",
            "type": None,
        },
    },
    "--segments N = 6": "most segments of an estimated model",
    "--depth RULE = full": "full, staircase, rotation, free or goodput",
    "--objective NAME = makespan": "makespan, weighted_completion or period",
    "-o, --output FILE": {"help": "where to write (default: standard output)", "type": file_or_stdout},
    "--json": "print what was assumed as JSON; takes -o",
}


def run(arguments: argparse.Namespace) -> int:
    """Read the words, or ask for them; make the instance; write it and tell what was assumed."""
    from jigsaw_opt.documents import encode_instance
    from jigsaw_opt.simulation.inputs.own_jobs import own_instance
    from jigsaw_opt.simulation.inputs.own_words import request_of_words

    if arguments.json and arguments.output is None:
        raise missing_option("--json", "--json prints what was assumed, so the instance goes to a file: -o")
    files = [word.partition("=")[2] for word in arguments.profile]
    require_output(arguments.output, arguments.jobs, arguments.link, *files)
    _ask(arguments)
    request = request_of_words(
        arguments.output.stem if arguments.output else "own",
        arguments.cluster or _CLUSTER,
        arguments.job,
        table=arguments.jobs,
        deadlines=arguments.deadline,
        profiles=arguments.profile,
        tell=note,
        **{name: getattr(arguments, name) for name in _STATED},
    )
    instance, assumed = own_instance(request)
    emit(encode_instance(instance), arguments.output)
    _tell(assumed, arguments.json)
    warn_of_spb(arguments.depth, instance)
    return 0


def _tell(assumed: Sequence[Assumption], as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        print_json({"assumed": [asdict(one) for one in assumed]})
        return
    for one in assumed:
        note(f"assumed: {one.what}: {one.value}")


def _ask(arguments: argparse.Namespace) -> None:
    """Ask at a terminal for what was not given, where no job was."""
    from jigsaw_opt.instances.architectures import ARCHITECTURES

    if arguments.job or arguments.jobs:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise missing_option("--job", "no jobs: give --job NAME:MODEL:WORKERS:ITERATIONS, or --jobs FILE")
    if arguments.cluster is None:
        arguments.cluster = answer(f"cluster, SERVERSxGPUS:TYPE [{_CLUSTER}]: ") or None
    known = ", ".join((*ARCHITECTURES, *(word.partition("=")[0] for word in arguments.profile)))
    while job := answer(f"job, NAME:MODEL:WORKERS:ITERATIONS, of {known} (nothing: done): "):
        arguments.job.append(job)
