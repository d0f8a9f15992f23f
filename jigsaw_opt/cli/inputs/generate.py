"""Generate an instance of a family; the same family, seed and sizes always give the same instance."""

from __future__ import annotations

import argparse

from jigsaw_opt.cli.common.arguments import Arguments
from jigsaw_opt.cli.common.output import emit, require_output
from jigsaw_opt.cli.common.parser import file_or_stdout

EXAMPLE = "jigsaw generate rack --seed 7 --load 90 -o instance.json"
ARGUMENTS: Arguments = {
    "family FAMILY": "tiny, server, rack, pod, cluster or crowded",
    "--seed N = 0": "seed (default: 0); also takes the recipe",
    "--servers N": "number of servers",
    "--gpus N": "GPUs in each server",
    "--load PERCENT": "workers of all jobs per 100 GPUs",
    "--bandwidth BYTES": "bytes per second of a server's link",
    "--objective makespan|weighted_completion|period": "objective",
    "-o, --output FILE": {"help": "where to write (default: standard output)", "type": file_or_stdout},
}


def run(arguments: argparse.Namespace) -> int:
    """Generate and write."""
    from jigsaw_opt.documents import encode_instance
    from jigsaw_opt.instances.sources import SIZES, generated

    require_output(arguments.output)
    changes = {name: getattr(arguments, name) for name in (*SIZES, "objective")}
    given = {name: value for name, value in changes.items() if value is not None}
    emit(encode_instance(generated(arguments.family, arguments.seed, given)), arguments.output)
    return 0
