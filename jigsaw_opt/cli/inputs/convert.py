"""Turn measured profiles into an instance, one job a profile, or one of them into a model or a layer profile."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jigsaw_opt.cli.common.options import add_depth, warn_of_spb
from jigsaw_opt.cli.common.output import emit, note, require_output
from jigsaw_opt.cli.common.parser import file_or_stdout, option_of
from jigsaw_opt.errors import malformed

_FORMATS = (
    "format; DAPPLE's profiles are pipedream's, kineto is a trace of the PyTorch profiler, "
    "chakra are the execution traces of a job's ranks, huggingface is a config.json, of which times are estimated; "
    "jsplib is a job shop, with options --name and -o alone"
)
_LONGEST = 15
_SIZES = ("parameter_bytes", "activation_bytes")
_OWN = ("command", "debug", "format", "profiles", "to", "name", "output", "run")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "format", choices=("pipedream", "deeppool", "kineto", "chakra", "huggingface", "jsplib"), help=_FORMATS
    )
    parser.add_argument(
        "profiles", nargs="+", type=Path, metavar="FILE", help="one measured profile a job; chakra: one job"
    )
    parser.add_argument("--gpu-type", metavar="TYPE", help="what they were measured on, as in v100")
    parser.add_argument(
        "--batch",
        type=int,
        metavar="N",
        help="deeppool: the batch size to take; huggingface: sequences of a worker's batch",
    )
    parser.add_argument(
        "--layers", action="append", metavar="PATTERN", help="kineto: names of its layers, as 'Linear_*'"
    )
    parser.add_argument(
        "--parameter-bytes",
        action="append",
        metavar="LAYER=BYTES",
        help="kineto: bytes of a layer's parameters (default: as its gradients)",
    )
    parser.add_argument(
        "--activation-bytes",
        action="append",
        metavar="LAYER=BYTES",
        help="kineto: bytes of a layer's activations (default: estimated from shapes)",
    )
    parser.add_argument("--segments", type=int, metavar="N", help="most segments of a model (default: 6)")
    _configure_estimate(parser.add_argument_group("estimates of huggingface"))
    _configure_cluster(parser.add_argument_group("cluster"))
    _configure_jobs(parser.add_argument_group("jobs"))
    parser.add_argument("--name", help="name of the instance (default: the file's)")
    parser.add_argument(
        "--to",
        choices=("instance", "model", "layers"),
        default="instance",
        help="what to write: an instance, or of one profile its model, or its layers, for jigsaw partition "
        "(default: instance)",
    )
    parser.add_argument(
        "--state-factor",
        type=int,
        metavar="N",
        help="layers: bytes of weights, gradients and optimiser state for each byte of parameters "
        "(default: 1; of huggingface as many as Adam needs)",
    )
    parser.add_argument(
        "-o", "--output", type=file_or_stdout, metavar="FILE", help="where to write (default: standard output)"
    )
    # The library has the defaults, so that what was given is told from what was not.
    parser.set_defaults(depth=None)


def _configure_cluster(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--servers", type=int, metavar="N", help="number of servers (default: 2)")
    group.add_argument("--gpus", type=int, metavar="N", help="GPUs in each server (default: 4)")
    group.add_argument("--gpu-memory", type=int, metavar="BYTES", help="memory of a GPU (default: 32 GB)")
    group.add_argument("--topology", metavar="NAME", help="star, tree, line, ring or separate (default: star)")
    group.add_argument(
        "--bandwidth",
        type=int,
        metavar="BYTES",
        help="bytes per second of a server's link (default: 1.25 GB, which is 10 Gb/s)",
    )
    group.add_argument(
        "--latency-us",
        type=int,
        metavar="US",
        help="latency of a server's link, in microseconds (default: 0)",
    )
    group.add_argument(
        "--fabric-bandwidth",
        type=int,
        metavar="BYTES",
        help="bytes per second inside a server (default: 12 GB)",
    )


def _configure_estimate(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--tokens", type=int, metavar="N", help="tokens of a sequence (default: 512, or as many as there are positions)"
    )
    group.add_argument(
        "--peak-flops",
        type=int,
        metavar="N",
        help="floating-point operations a second at 16 bits (default: the data sheet's)",
    )
    group.add_argument(
        "--memory-bandwidth",
        type=int,
        metavar="BYTES",
        help="bytes per second of a GPU's memory (default: the data sheet's)",
    )
    group.add_argument(
        "--efficiency", type=int, metavar="PERCENT", help="share of the peak that is reached (default: 40)"
    )


def _configure_jobs(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--workers", type=int, metavar="N", help="workers of each job (default: 4)")
    group.add_argument(
        "--iterations",
        type=int,
        metavar="N",
        help="iterations of each job (default: 3; of chakra 1, all that the traces hold)",
    )
    add_depth(group, "staircase")
    group.add_argument(
        "--objective",
        choices=("makespan", "weighted_completion", "period"),
        help="objective (default: makespan)",
    )


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
        warn_of_spb((arguments.depth or "staircase") if made.models else None)
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
