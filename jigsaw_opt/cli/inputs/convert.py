"""Turn measured profiles into an instance, one job a profile, or one of them into a model or a layer profile."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.common.options import add_depth, warn_of_spb
from jigsaw_opt.cli.common.output import emit, note, require_output
from jigsaw_opt.cli.common.parser import file_or_stdout, option_of
from jigsaw_opt.errors import InvalidInputError, Problem, Problems, UsageError, malformed, missing_option, out_of_range
from jigsaw_opt.text import named

if TYPE_CHECKING:
    from jigsaw_opt.instances.gpus import GpuType
    from jigsaw_opt.problem.instance import Instance
    from jigsaw_opt.problem.measured.layers import LayerGraph
    from jigsaw_opt.problem.model import Model
    from jigsaw_opt.problem.task_graph import TaskGraph

_FORMATS = (
    "format; DAPPLE's profiles are pipedream's, kineto is a trace of the PyTorch profiler, "
    "chakra are the execution traces of a job's ranks, huggingface is a config.json, of which times are estimated; "
    "jsplib is a job shop, with options --name and -o alone"
)
_LONGEST, _LARGEST = 15, 2**53 - 1
_ESTIMATE = ("tokens", "peak_flops", "memory_bandwidth", "efficiency")
_MOST_SEGMENTS = 6
_COUNTS = ("servers", "gpus", "gpu_memory", "bandwidth", "fabric_bandwidth", "workers", "iterations")


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
        "--layers", action="append", default=[], metavar="PATTERN", help="kineto: names of its layers, as 'Linear_*'"
    )
    parser.add_argument(
        "--parameters",
        action="append",
        default=[],
        metavar="LAYER=BYTES",
        help="kineto: bytes of a layer's parameters (default: as its gradients)",
    )
    parser.add_argument(
        "--activations",
        action="append",
        default=[],
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
        choices=("instance", "layers"),
        default="instance",
        help="what to write: an instance, or the layers of one profile, for jigsaw partition (default: instance)",
    )
    parser.add_argument(
        "--state-factor",
        type=int,
        metavar="N",
        help="layers: bytes of weights, gradients and optimiser state for each byte of parameters "
        "(default: 1; of huggingface as many as Adam needs)",
    )
    parser.add_argument("--only-model", action="store_true", help="write the model of one profile, not an instance")
    parser.add_argument(
        "-o", "--output", type=file_or_stdout, metavar="FILE", help="where to write (default: standard output)"
    )
    parser.set_defaults(default_of=parser.get_default)


def _configure_cluster(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--servers", type=int, default=2, metavar="N", help="number of servers (default: 2)")
    group.add_argument("--gpus", type=int, default=4, metavar="N", help="GPUs in each server (default: 4)")
    group.add_argument(
        "--gpu-memory", type=int, default=32 * 10**9, metavar="BYTES", help="memory of a GPU (default: 32 GB)"
    )
    group.add_argument(
        "--topology", default="star", metavar="NAME", help="star, tree, line, ring or separate (default: star)"
    )
    group.add_argument(
        "--bandwidth",
        type=int,
        default=1_250_000_000,
        metavar="BYTES",
        help="bytes per second of a server's link (default: 1.25 GB, which is 10 Gb/s)",
    )
    group.add_argument(
        "--latency-us",
        type=int,
        default=0,
        metavar="US",
        help="latency of a server's link, in microseconds (default: 0)",
    )
    group.add_argument(
        "--fabric-bandwidth",
        type=int,
        default=12 * 10**9,
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
    group.add_argument("--workers", type=int, default=4, metavar="N", help="workers of each job (default: 4)")
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
        default="makespan",
        help="objective (default: makespan)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Read every profile, make the instance, write it."""
    from jigsaw_opt.documents import encode_instance, encode_layers, encode_model
    from jigsaw_opt.instances.gpus import type_name
    from jigsaw_opt.instances.measured import MeasuredSetting, instance_of, instance_of_task_graph

    require_output(arguments.output, *arguments.profiles)
    if arguments.format == "jsplib":
        emit(encode_instance(_shop(arguments)), arguments.output)
        return 0
    if arguments.gpu_type is None:
        raise missing_option("--gpu-type", "give --gpu-type: what the profile was measured on")
    arguments.gpu_type = type_name(arguments.gpu_type)
    if arguments.iterations is None:
        arguments.iterations = 1 if arguments.format == "chakra" else 3
    for name in (*_COUNTS, *(each for each in (*_ESTIMATE, "state_factor") if getattr(arguments, each) is not None)):
        if not 1 <= getattr(arguments, name) <= _LARGEST:
            raise out_of_range(
                option_of(name),
                f"{option_of(name)} is from 1 to 2^53 - 1, not {getattr(arguments, name)}",
            )
    if not 0 <= arguments.latency_us <= _LARGEST:
        raise out_of_range("--latency-us", f"--latency-us is from 0 to 2^53 - 1, not {arguments.latency_us}")
    _check_options(arguments)
    if arguments.to == "layers":
        emit(encode_layers(_layers(arguments)), arguments.output)
        return 0
    name = arguments.name or (arguments.output.stem if arguments.output else arguments.format)
    setting = MeasuredSetting(**{field: getattr(arguments, field) for field in MeasuredSetting.__dataclass_fields__})
    if arguments.format == "chakra":
        emit(encode_instance(instance_of_task_graph(name, _task_graph(arguments), setting)), arguments.output)
        return 0
    models = _models(arguments)
    document = encode_instance(instance_of(name, models, setting))
    emit(encode_model(*models.values()) if arguments.only_model else document, arguments.output)
    warn_of_spb(None if arguments.only_model else arguments.depth)
    return 0


def _shop(arguments: argparse.Namespace) -> Instance:
    """Return the instance of a shop, which takes no option that describes GPUs or jobs."""
    from jigsaw_opt.documents.file_bytes import read_text
    from jigsaw_opt.documents.job_shops import read_jsplib

    own = {"command", "debug", "default_of", "format", "profiles", "name", "output", "run"}
    given = [name for name, value in vars(arguments).items() if name not in own and value != arguments.default_of(name)]
    options = [option_of(name) for name in given]
    wrong = [Problem(option, f"{option} does not go with jsplib", code="not-together") for option in options]
    if len(arguments.profiles) > 1:
        wrong.append(Problem("FILE", "jsplib takes one file", code="wrong-count"))
    if wrong:
        raise UsageError.of(wrong)
    path = arguments.profiles[0]
    content = read_text(path)
    return read_jsplib(content, str(path), arguments.name or None, note)


def _check_options(arguments: argparse.Namespace) -> None:
    """Refuse options that the format does not have, and formats without an option that they need."""
    owned = dict.fromkeys(("layers", "parameters", "activations"), "kineto") | dict.fromkeys(_ESTIMATE, "huggingface")
    wrong = [
        Problem(option_of(name), f"{option_of(name)} is of {of}, not of {arguments.format}", code="not-together")
        for name, of in owned.items()
        if getattr(arguments, name) and arguments.format != of
    ]
    if arguments.format == "deeppool" and arguments.batch is None:
        told = "a deeppool profile holds several batch sizes; choose one with --batch"
        wrong.append(Problem("--batch", told, code="missing-option"))
    if arguments.format == "huggingface" and (arguments.batch is None or arguments.batch < 1):
        told = "a configuration has no batch size; give one of at least 1 with --batch"
        wrong.append(Problem("--batch", told, code="missing-option"))
    if arguments.format == "chakra":
        unfit = {"--only-model": arguments.only_model, "--to layers": arguments.to == "layers"}
        unfit["--segments"] = arguments.segments is not None
        for option in (option for option, chosen in unfit.items() if chosen):
            told = f"chakra traces become the task graph of an instance; leave out {option}"
            wrong.append(Problem(option, told, code="not-together"))
    for option, chosen in (("--only-model", arguments.only_model), ("--to layers", arguments.to == "layers")):
        if chosen and len(arguments.profiles) > 1:
            wrong.append(Problem(option, f"{option} takes one profile", code="wrong-count"))
    if arguments.to == "layers" and arguments.only_model:
        wrong.append(
            Problem("--only-model", "--to layers writes no model; leave out --only-model", code="not-together")
        )
    if arguments.to == "layers" and arguments.segments is not None:
        wrong.append(Problem("--segments", "--to layers writes every layer; leave out --segments", code="not-together"))
    if arguments.to != "layers" and arguments.state_factor is not None:
        wrong.append(Problem("--state-factor", "--state-factor is of --to layers", code="missing-option"))
    if wrong:
        raise UsageError.of(wrong)


def _task_graph(arguments: argparse.Namespace) -> TaskGraph:
    """Return the task graph of the traces, each of which is one rank's."""
    from jigsaw_opt.documents.file_bytes import read_file
    from jigsaw_opt.documents.readers.chakra.reading import read_chakra

    problems, traces = Problems(), dict[str, bytes]()
    for path in arguments.profiles:
        with problems.of(str(path)):
            traces[str(path)] = read_file(path)
    problems.tell()
    return read_chakra(traces, arguments.gpu_type, arguments.workers, note)


def _models(arguments: argparse.Namespace) -> dict[str, Model]:
    """Return models of the profiles, called after their files; every file's problems are collected."""
    models: dict[str, Model] = {}
    problems: list[Problem] = []
    for path in arguments.profiles:
        name = path.name.split(".")[0]
        if name in models:
            raise UsageError(
                f"two profiles are called {name!r}; each file is one job and needs a name of its own",
                code="duplicate-name",
                path="--name",
            )
        try:
            with _reading(path, arguments.format) as data:
                models[name] = _read(data, str(path), arguments)
        except InvalidInputError as error:
            problems.extend(error.problems)
    if problems:
        raise InvalidInputError(problems)
    return models


@contextmanager
def _reading(path: Path, form: str) -> Iterator[bytes]:
    """Yield the bytes of a file, and say what it is where they are not read because they are something else."""
    from jigsaw_opt.documents.file_bytes import read_text
    from jigsaw_opt.documents.recognising import expecting

    data = read_text(path)
    with expecting(data, str(path), form):
        yield data


def _layers(arguments: argparse.Namespace) -> LayerGraph:
    """Return the layers of the only profile."""
    from dataclasses import replace

    from jigsaw_opt.documents.readers import read_deeppool_layers, read_kineto_layers, read_layer_graph
    from jigsaw_opt.instances.configurations import read_estimated_layers
    from jigsaw_opt.problem.measured.layers import LayerGraph, chain_edges

    path, gpu_type = arguments.profiles[0], arguments.gpu_type
    with _reading(path, arguments.format) as data:
        if arguments.format == "huggingface":
            graph = read_estimated_layers(
                data, gpu_type, _gpu(arguments), arguments.batch, tokens=arguments.tokens, source=str(path), tell=note
            )
        elif arguments.format == "pipedream":
            graph = replace(read_layer_graph(data, source=str(path)), gpu_type=gpu_type)
        else:
            if arguments.format == "deeppool":
                layers = read_deeppool_layers(data, arguments.batch, source=str(path))
            else:
                layers = read_kineto_layers(data, of_a_pass=True, source=str(path), tell=note, **_stated(arguments))
            graph = LayerGraph(layers, chain_edges(len(layers)), arguments.batch, gpu_type=gpu_type)
    factor = graph.state_factor if arguments.state_factor is None else arguments.state_factor
    _tell_unknown(graph, str(path))
    return replace(graph, state_factor=factor)


def _tell_unknown(graph: LayerGraph, source: str) -> None:
    """Say what the profile has not been told of its layers."""
    if any(layer.weight_us is None for layer in graph.layers):
        note(f"{source}: it is not known how much of the backward passes goes into the gradients of weights")
    if unknown := [layer.name for layer in graph.layers[:-1] if layer.output_bytes is None]:
        note(f"{source}: it is not known what is sent behind {named(unknown)}: bytes of activations count")
    if not graph.knows_input:
        note(f"{source}: it is not known how many bytes of input the model reads")


def _stated(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what the options say of the layers of a trace."""
    return {
        "layers": arguments.layers,
        "parameter_bytes": _sizes("parameters", arguments.parameters),
        "activation_bytes": _sizes("activations", arguments.activations),
    }


def _read(data: bytes, source: str, arguments: argparse.Namespace) -> Model:
    from jigsaw_opt.documents.readers import read_deeppool, read_kineto, read_pipedream
    from jigsaw_opt.instances.configurations import read_model

    gpu_type = arguments.gpu_type
    segments = _MOST_SEGMENTS if arguments.segments is None else arguments.segments
    common: dict[str, Any] = {"segments": segments, "source": source}
    if arguments.format == "deeppool":
        return read_deeppool(data, gpu_type, arguments.batch, **common)
    if arguments.format == "kineto":
        return read_kineto(data, gpu_type, tell=note, **_stated(arguments), **common)
    if arguments.format == "huggingface":
        if segments < 1:
            raise out_of_range("--segments", f"a model needs at least 1 segment, not {segments}")
        return read_model(
            data, {gpu_type: _gpu(arguments)}, arguments.batch, tokens=arguments.tokens, tell=note, **common
        )
    return read_pipedream(data, gpu_type, **common)


def _gpu(arguments: argparse.Namespace) -> GpuType:
    """Return figures of the GPU: those given, and for others those of its data sheet."""
    from dataclasses import replace

    from jigsaw_opt.instances.gpus import GPU_TYPES, GpuType, data_sheet

    peak, bandwidth = arguments.peak_flops, arguments.memory_bandwidth
    gpu = data_sheet(arguments.gpu_type)
    if gpu is None and (peak is None or bandwidth is None):
        known = ", ".join(GPU_TYPES)
        raise UsageError(
            f"no data sheet of {arguments.gpu_type!r}, but of {known}: give --peak-flops, --memory-bandwidth",
            code="unknown-name",
            path="--gpu-type",
        )
    gpu = gpu or GpuType(peak, bandwidth, arguments.gpu_memory, arguments.fabric_bandwidth)
    given = {"peak_flops": peak, "memory_bandwidth": bandwidth, "efficiency": arguments.efficiency}
    return replace(gpu, **{name: value for name, value in given.items() if value is not None})


def _sizes(option: str, words: Sequence[str]) -> dict[str, int]:
    """Return the bytes by layer that an option states."""
    stated: dict[str, int] = {}
    for word in words:
        name, _, size = word.rpartition("=")
        if not name or name in stated or not size.isascii() or not size.isdecimal() or len(size) > _LONGEST:
            raise malformed(f"--{option}", f"--{option} takes LAYER=BYTES, each layer once; not {word!r}")
        stated[name] = int(size)
    return stated
