"""Turn measured profiles into an instance: one job a profile, on a cluster of servers with equal GPUs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jigsaw_opt.problem.model import Model

HELP = "make an instance from measured profiles"
_FORMATS = "format; DAPPLE's profiles are pipedream's, and kineto is a trace of the PyTorch profiler"
_LONGEST = 15
_COUNTS = ("servers", "gpus", "gpu_memory", "bandwidth", "fabric_bandwidth", "workers", "iterations")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("format", choices=("pipedream", "deeppool", "kineto"), help=_FORMATS)
    parser.add_argument("profiles", nargs="+", type=Path, metavar="FILE", help="one measured profile a job")
    parser.add_argument("--gpu-type", required=True, metavar="TYPE", help="what they were measured on, as in v100")
    parser.add_argument("--batch", type=int, metavar="N", help="which batch size of a deeppool profile")
    parser.add_argument("--layers", metavar="PATTERN", help="names of the layers of kineto, as 'Linear_*'")
    parser.add_argument(
        "--parameters", action="append", default=[], metavar="LAYER=BYTES", help="of kineto, not those of gradients"
    )
    parser.add_argument("--segments", type=int, default=6, metavar="N", help="most segments of a model (default: 6)")
    _configure_cluster(parser.add_argument_group("cluster"))
    _configure_jobs(parser.add_argument_group("jobs"))
    parser.add_argument("--name", help="name of the instance (default: the file's)")
    parser.add_argument("--only-model", action="store_true", help="write the model of one profile, not an instance")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write (default: standard output)")


def _configure_cluster(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--servers", type=int, default=2, metavar="N", help="number of servers (default: 2)")
    group.add_argument("--gpus", type=int, default=4, metavar="N", help="GPUs in each (default: 4)")
    group.add_argument("--gpu-memory", type=int, default=32 * 10**9, metavar="BYTES", help="of a GPU (default: 32 GB)")
    group.add_argument("--topology", default="star", metavar="NAME", help="star, tree, line, ring or separate")
    group.add_argument(
        "--bandwidth", type=int, default=1_250_000_000, metavar="BYTES", help="of a server's link (default: 10 Gb/s)"
    )
    group.add_argument("--latency-us", type=int, default=0, metavar="US", help="of a server's link (default: 0)")
    group.add_argument(
        "--fabric-bandwidth", type=int, default=12 * 10**9, metavar="BYTES", help="inside a server (default: 12 GB/s)"
    )


def _configure_jobs(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--workers", type=int, default=4, metavar="N", help="workers of each job (default: 4)")
    group.add_argument("--iterations", type=int, default=3, metavar="N", help="iterations of each job (default: 3)")
    group.add_argument("--depth", default="staircase", metavar="RULE", help="full, staircase or free")
    group.add_argument("--objective", choices=("makespan", "weighted_completion", "period"), default="makespan")


def run(arguments: argparse.Namespace) -> int:
    """Read every profile, make the instance, write it."""
    from jigsaw_opt.cli.output import emit, require_output
    from jigsaw_opt.documents import decode_instance, encode_instance, encode_model
    from jigsaw_opt.errors import UsageError
    from jigsaw_opt.instances.measured import MeasuredSetting, instance_of

    require_output(arguments.output, *arguments.profiles)
    for name in _COUNTS:
        if getattr(arguments, name) < 1:
            raise UsageError(f"--{name.replace('_', '-')} is at least 1, not {getattr(arguments, name)}")
    if arguments.latency_us < 0:
        raise UsageError(f"--latency-us is at least 0, not {arguments.latency_us}")
    _check_options(arguments)
    name = arguments.name or (arguments.output.stem if arguments.output else arguments.format)
    setting = MeasuredSetting(**{field: getattr(arguments, field) for field in MeasuredSetting.__dataclass_fields__})
    models = _models(arguments)
    document = encode_instance(instance_of(name, models, setting))
    decode_instance(document)  # what is written is valid, whatever the names on the command line
    emit(encode_model(*models.values()) if arguments.only_model else document, arguments.output)
    return 0


def _check_options(arguments: argparse.Namespace) -> None:
    """Refuse options that the format does not have, and formats without an option that they need."""
    from jigsaw_opt.errors import UsageError

    wrong = [
        f"--{option} is of {of}, not of {arguments.format}"
        for option, of in (("layers", "kineto"), ("parameters", "kineto"))
        if getattr(arguments, option) and arguments.format != of
    ]
    if arguments.format == "deeppool" and arguments.batch is None:
        wrong.append("a deeppool profile holds several batch sizes; choose one with --batch")
    if arguments.only_model and len(arguments.profiles) > 1:
        wrong.append("--only-model takes one profile")
    if wrong:
        raise UsageError(*wrong)


def _models(arguments: argparse.Namespace) -> dict[str, Model]:
    """Models of the profiles, called after their files; every file's problems are collected."""
    from jigsaw_opt.errors import InvalidInputError, Problem, UsageError

    models: dict[str, Model] = {}
    problems: list[Problem] = []
    for path in arguments.profiles:
        name = path.name.split(".")[0]
        if name in models:
            raise UsageError(f"two profiles are called {name!r}; each file is one job and needs a name of its own")
        try:
            models[name] = _read(path, arguments)
        except InvalidInputError as error:
            problems.extend(error.problems)
    if problems:
        raise InvalidInputError(problems)
    return models


def _read(path: Path, arguments: argparse.Namespace) -> Model:
    from jigsaw_opt.documents.readers import read_deeppool, read_kineto, read_pipedream
    from jigsaw_opt.documents.reading import read_file

    data, gpu_type = read_file(path), arguments.gpu_type
    common: dict[str, Any] = {"segments": arguments.segments, "source": str(path)}
    if arguments.format == "deeppool":
        return read_deeppool(data, gpu_type, arguments.batch, **common)
    if arguments.format == "kineto":
        stated = _parameters(arguments.parameters)
        return read_kineto(data, gpu_type, layers=arguments.layers, parameter_bytes=stated, **common)
    return read_pipedream(data, gpu_type, **common)


def _parameters(words: Sequence[str]) -> dict[str, int]:
    """Bytes of parameters by layer."""
    from jigsaw_opt.errors import UsageError

    stated: dict[str, int] = {}
    for word in words:
        name, _, size = word.rpartition("=")
        if not name or name in stated or not size.isascii() or not size.isdecimal() or len(size) > _LONGEST:
            raise UsageError(f"--parameters takes LAYER=BYTES, each layer once; not {word!r}")
        stated[name] = int(size)
    return stated
