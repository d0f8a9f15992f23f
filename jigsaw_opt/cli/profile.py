"""Measure a model on this machine, and what an all-reduce costs; write the model for an instance."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from jigsaw_opt.executor.links import LinkProfile
    from jigsaw_opt.executor.profiling import Profile

HELP = "measure a model for an instance"
_COUNTS = ("batch", "segments", "warm_up", "repeats", "threads", "processes")
_SIZES = tuple(2**k for k in range(12, 25, 2))


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="mlp, vgg, resnet, bert, gpt, vgg16, resnet50, bert_large, gpt2_small, gpt2_medium, or module:function",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to run (default: cpu)")
    parser.add_argument("--batch", type=int, default=8, metavar="N", help="samples a worker (default: 8)")
    parser.add_argument(
        "--argument", action="append", default=[], metavar="NAME=VALUE", help="argument of the model, as in layers=4"
    )
    parser.add_argument("--segments", type=int, default=6, metavar="N", help="most segments (default: 6)")
    parser.add_argument("--trust", action="append", default=[], metavar="MODULE:FUNCTION", help="code to import")
    parser.add_argument("--optimiser", choices=("sgd", "adam", "adamw"), default="sgd", help="default: sgd, momentum")
    parser.add_argument("--gpu-type", metavar="TYPE", help="what the model calls the device (default: its own name)")
    parser.add_argument("--warm-up", type=int, default=3, metavar="N", help="rounds before measuring (default: 3)")
    parser.add_argument("--repeats", type=int, default=15, metavar="N", help="rounds measured (default: 15)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads on the CPU (default: 1)")
    parser.add_argument(
        "--processes", type=int, default=1, metavar="N", help="measure in N at once, a core each, as a replay runs (1)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of parameters and data (default: 0)")
    parser.add_argument(
        "--all-reduce", type=int, metavar="N", help="also measure all-reduces among 2 to N processes of this machine"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the model of an instance here")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Measure, print, write."""
    from jigsaw_opt.cli.output import require_output
    from jigsaw_opt.cli.profile_report import print_report
    from jigsaw_opt.executor import require_torch

    require_output(arguments.output)
    _check(arguments)
    require_torch()
    device = _device(arguments)
    entry = {"zoo": arguments.model, "arguments": _given(arguments.argument), "batch_size": arguments.batch}
    measured = _profile(arguments, entry, device) if arguments.model else None
    links = _links(arguments) if arguments.all_reduce else None
    model = measured.model(arguments.gpu_type or _device_name(device), entry) if measured else None
    if model and arguments.output:
        from jigsaw_opt.cli.output import emit
        from jigsaw_opt.documents import encode_model

        emit(encode_model(model), arguments.output)
    print_report(_device_name(device), measured, model, links, arguments.json)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    from jigsaw_opt.errors import UsageError
    from jigsaw_opt.solvers.options import Options
    from jigsaw_opt.text import readable

    for name in _COUNTS:
        if getattr(arguments, name) < 1:
            raise UsageError(f"--{name.replace('_', '-')} is at least 1, not {getattr(arguments, name)}")
    Options(workers=arguments.threads, seed=arguments.seed)  # the same ranges everywhere
    if arguments.all_reduce is not None and arguments.all_reduce < 2:
        raise UsageError(f"--all-reduce is at least 2, not {arguments.all_reduce}")
    if arguments.processes > 1 and (arguments.device != "cpu" or arguments.threads > 1):
        raise UsageError("--processes is for the CPU, with one thread each")
    if arguments.model is None and (arguments.all_reduce is None or arguments.output):
        raise UsageError("nothing to measure: name a model, or --all-reduce N; only a model can be written")
    gpu_type = arguments.gpu_type
    if gpu_type is not None and (not gpu_type or "/" in gpu_type or gpu_type != readable(gpu_type)):
        raise UsageError("--gpu-type is a name without '/'")


def _given(pairs: list[str]) -> dict[str, Any]:
    """Arguments as JSON values; what is no JSON is a string."""
    from jigsaw_opt.errors import UsageError

    given: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name in given:
            raise UsageError(f"--argument takes NAME=VALUE, each name once; not {pair!r}")
        try:
            given[name] = json.loads(value)
        except ValueError:
            given[name] = value
    return given


def _device(arguments: argparse.Namespace) -> torch.device:
    import torch

    from jigsaw_opt.errors import UsageError

    torch.set_num_threads(arguments.threads)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("this PyTorch finds no CUDA device; --device cpu measures on the CPU")
    return torch.device("cuda", 0) if arguments.device == "cuda" else torch.device("cpu")


def _device_name(device: torch.device) -> str:
    import torch

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return name.lower().replace(" ", "-").replace("/", "-")


def _profile(arguments: argparse.Namespace, entry: dict[str, Any], device: torch.device) -> Profile:
    import torch

    from jigsaw_opt.errors import UsageError
    from jigsaw_opt.executor.building import build_network, even_segments, replica
    from jigsaw_opt.executor.profiling import profile
    from jigsaw_opt.executor.side_by_side import profiles_side_by_side
    from jigsaw_opt.executor.worker import Recipe, Worker

    rounds = arguments.warm_up, arguments.repeats
    momentum = {"momentum": 0.9} if arguments.optimiser == "sgd" else {}
    # Steps so small that the loss stays finite, whatever the model; their time is that of any other.
    recipe = Recipe(arguments.optimiser, {"lr": 1e-6, **momentum}, arguments.seed)
    if arguments.processes > 1:
        segments, count = arguments.segments, arguments.processes
        return profiles_side_by_side([entry], segments, count, recipe, *rounds, arguments.trust)[0]
    network = build_network(entry["zoo"], entry["arguments"], arguments.trust, arguments.seed)
    try:
        built = replica(network, even_segments(network, arguments.segments), arguments.batch)
        return profile(Worker(0, built, recipe, device), *rounds)
    except torch.OutOfMemoryError as error:
        raise UsageError(f"a batch of {arguments.batch} does not fit the device's memory") from error


def _links(arguments: argparse.Namespace) -> LinkProfile:
    import torch

    from jigsaw_opt.executor.links import link_profile

    # NCCL needs a GPU for each process; Gloo runs everywhere.
    nccl = arguments.device == "cuda" and torch.cuda.device_count() >= arguments.all_reduce
    return link_profile(arguments.all_reduce, _SIZES, arguments.repeats, "nccl" if nccl else "gloo")
