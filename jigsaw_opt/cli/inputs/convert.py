"""Turn measured profiles into an instance, one job a profile, or one of them into a model or a layer profile."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from jigsaw_opt.cli.common.arguments import Arguments
from jigsaw_opt.cli.common.options import warn_of_spb
from jigsaw_opt.cli.common.output import emit, note, require_output
from jigsaw_opt.cli.common.parser import file_or_stdout, option_of
from jigsaw_opt.errors import malformed

_LONGEST = 15
_SIZES = ("parameter_bytes", "activation_bytes")
_OWN = ("command", "debug", "format", "profiles", "to", "name", "output", "run")
EXAMPLE = "jigsaw convert pipedream vgg16.graph.txt --gpu-type v100 -o instance.json"
ARGUMENTS: Arguments = {
    "format pipedream|deeppool|kineto|chakra|huggingface|jsplib": "format; DAPPLE's profiles are pipedream's, kineto"
    " is a trace of the PyTorch profiler, chakra are the execution traces of a job's ranks, huggingface is a"
    " config.json, of which times are estimated; jsplib is a job shop, with options --name and -o alone",
    "profiles FILE ...": "one measured profile a job; chakra: one job",
    "--gpu-type TYPE": "what they were measured on, as in v100",
    "--batch N": "deeppool: the batch size to take; huggingface: sequences of a worker's batch",
    "--layers PATTERN *": {"help": "kineto: names of its layers, as 'Linear_*'", "default": None},
    "--parameter-bytes LAYER=BYTES *": {
        "help": "kineto: bytes of a layer's parameters (default: as its gradients)",
        "default": None,
    },
    "--activation-bytes LAYER=BYTES *": {
        "help": "kineto: bytes of a layer's activations (default: estimated from shapes)",
        "default": None,
    },
    "--segments N": "most segments of a model (default: 6)",
    "estimates of huggingface:": {
        "--tokens N": "tokens of a sequence (default: 512, or as many as there are positions)",
        "--peak-flops N": "floating-point operations a second at 16 bits (default: the data sheet's)",
        "--memory-bandwidth BYTES": "bytes per second of a GPU's memory (default: the data sheet's)",
        "--efficiency PERCENT": "share of the peak that is reached (default: 40)",
    },
    "cluster:": {
        "--servers N": "number of servers (default: 2)",
        "--gpus N": "GPUs in each server (default: 4)",
        "--gpu-memory BYTES": "memory of a GPU (default: 32 GB)",
        "--topology NAME": "star, tree, line, ring or separate (default: star)",
        "--bandwidth BYTES": "bytes per second of a server's link (default: 1.25 GB, which is 10 Gb/s)",
        "--latency-us US": "latency of a server's link, in microseconds (default: 0)",
        "--fabric-bandwidth BYTES": "bytes per second inside a server (default: 12 GB)",
    },
    "jobs:": {
        "--workers N": "workers of each job (default: 4)",
        "--iterations N": "iterations of each job (default: 3; of chakra 1, all that the traces hold)",
        "--depth RULE": "full, staircase, rotation, free or goodput (default: full)",
        "--objective makespan|weighted_completion|period": "objective (default: makespan)",
    },
    "--name NAME": "name of the instance (default: the file's)",
    "--to instance|model|layers = instance": "what to write: an instance, or of one profile its model, or its layers,"
    " for jigsaw partition",
    "--state-factor N": "layers: bytes of weights, gradients and optimiser state for each byte of parameters"
    " (default: 1; of huggingface as many as Adam needs)",
    "-o, --output FILE": {"help": "where to write (default: standard output)", "type": file_or_stdout},
}


def run(arguments: argparse.Namespace) -> int:
    """Read every profile, make the instance, the model or the layers, write it."""
    from jigsaw_opt.documents import encode_instance, encode_layers, encode_model
    from jigsaw_opt.instances.conversion import convert
    from jigsaw_opt.problem.instance import Instance
    from jigsaw_opt.problem.model import Model

    form, output = arguments.format, arguments.output
    require_output(output, *arguments.profiles)
    option: dict[str, Any] = {
        name: _sizes(name, value) if name in _SIZES else value
        for name, value in vars(arguments).items()
        if name not in _OWN and value is not None
    }
    # A shop has a name of its own.
    name = arguments.name or ("" if output is None or form == "jsplib" else output.stem)
    made = convert(form, arguments.profiles, arguments.to, name=name, tell=note, **option)
    if isinstance(made, Instance):
        emit(encode_instance(made), output)
        warn_of_spb(arguments.depth if made.models else None, made)
    else:
        emit(encode_model(made) if isinstance(made, Model) else encode_layers(made), output)
    return 0


def _sizes(option: str, words: Sequence[str]) -> dict[str, int]:
    """Return the bytes by layer that an option states."""
    stated: dict[str, int] = {}
    for word in words:
        name, _, size = word.rpartition("=")
        if not name or name in stated or not size.isascii() or not size.isdecimal() or len(size) > _LONGEST:
            raise malformed(option_of(option), f"{option_of(option)} takes LAYER=BYTES, each layer once; not {word!r}")
        stated[name] = int(size)
    return stated
