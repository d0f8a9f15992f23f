"""Generate an instance of a family; the same family, seed and sizes always give the same instance."""

from __future__ import annotations

import argparse

from jigsaw_opt.cli.common.output import emit, require_output
from jigsaw_opt.cli.common.parser import file_or_stdout

EXAMPLE = "jigsaw generate rack --seed 7 --load 90 -o instance.json"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("family", metavar="FAMILY", help="tiny, server, rack, pod, cluster or crowded")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed (default: 0); also takes the recipe")
    parser.add_argument("--servers", type=int, metavar="N", help="number of servers")
    parser.add_argument("--gpus", type=int, metavar="N", help="GPUs in each server")
    parser.add_argument("--load", type=int, metavar="PERCENT", help="workers of all jobs per 100 GPUs")
    parser.add_argument("--bandwidth", type=int, metavar="BYTES", help="bytes per second of a server's link")
    parser.add_argument("--objective", choices=("makespan", "weighted_completion", "period"), help="objective")
    parser.add_argument(
        "-o", "--output", type=file_or_stdout, metavar="FILE", help="where to write (default: standard output)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Generate and write."""
    from jigsaw_opt.documents import encode_instance
    from jigsaw_opt.instances.sources import SIZES, generated

    require_output(arguments.output)
    changes = {name: getattr(arguments, name) for name in (*SIZES, "objective")}
    given = {name: value for name, value in changes.items() if value is not None}
    emit(encode_instance(generated(arguments.family, arguments.seed, given)), arguments.output)
    return 0
