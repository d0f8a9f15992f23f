"""Measure a model on this machine, and what an all-reduce costs; write the model for an instance."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.common.arguments import PROGRESS, Arguments
from jigsaw_opt.cli.common.output import emit, note, require_output
from jigsaw_opt.cli.common.parser import option_of
from jigsaw_opt.cli.common.progress import logged_progress
from jigsaw_opt.errors import malformed, missing_option, not_together, out_of_range
from jigsaw_opt.text import readable

if TYPE_CHECKING:
    from jigsaw_opt.executor.profiling import ModelProfile
    from jigsaw_opt.executor.profiling.links import LinkProfile
    from jigsaw_opt.problem.model import Model

_COUNTS = ("batch", "segments", "warm_up", "repeats", "threads", "processes")
ARGUMENTS: Arguments = {
    "[model] MODEL": "mlp, vgg, resnet, bert, gpt, vgg16, resnet50, bert_large, gpt2_small, gpt2_medium, or"
    " module:function",
    "--device cpu|cuda = cpu": "where to run",
    "--batch N": "samples a worker (default: 8)",
    "--argument NAME=VALUE *": "argument of the model, as in layers=4",
    "--segments N": "most segments (default: 6)",
    "--cuts N|NAMES": "cuts of a model of your own: how many, or modules a,b (default: 4)",
    "--trust MODULE:FUNCTION *": "code to import",
    "--optimiser sgd|adam|adamw": "optimiser (default: sgd, with momentum)",
    "--gpu-type TYPE": "what the model calls the device (default: its own name)",
    "--warm-up N = 3": "rounds before measuring",
    "--repeats N = 15": "rounds measured",
    "--threads N = 1": "threads on the CPU",
    "--processes N = 1": "measure in N processes at once, a core each, as a replay runs",
    "--all-reduce N": "also measure all-reduces among 2 to N processes of this machine",
    "--to model|layers = model": "what -o writes: the model of an instance, or a layer profile for pipelines",
    "-o, --output FILE": "write the model or the layers here",
    "--json": "print everything as JSON",
    **PROGRESS,
}


def run(arguments: argparse.Namespace) -> int:
    """Measure, print, write."""
    from jigsaw_opt.cli.training.profile_report import print_report
    from jigsaw_opt.executor import require_torch

    require_output(arguments.output)
    _check(arguments)
    require_torch()
    with logged_progress(arguments, "measuring"):
        measured, model, links, device = _measured(arguments)
    if measured and model and arguments.output:
        _write(arguments, measured, model)
    print_report(device, measured, model, links, arguments.json)
    return 0


def _write(arguments: argparse.Namespace, measured: ModelProfile, model: Model) -> None:
    from jigsaw_opt.documents import encode_layers, encode_model

    if arguments.to == "model":
        emit(encode_model(model), arguments.output)
        return
    graph = measured.layers(model.gpu_types[0])
    if any(layer.output_bytes is None for layer in graph.layers[:-1]):
        note("note: what layers send is not known, for the model has tensors without a storage")
    emit(encode_layers(graph), arguments.output)


def _measured(
    arguments: argparse.Namespace,
) -> tuple[ModelProfile | None, Model | None, LinkProfile | None, str]:
    """Return the profile of the model, the model with its times, the all-reduces, and what the device is called."""
    import torch

    from jigsaw_opt.executor.devices import device_name, device_of
    from jigsaw_opt.executor.profiling.measuring import measure_all_reduces, measure_model

    torch.set_num_threads(arguments.threads)
    device = device_of(arguments.device)
    name = device_name(device)
    entry = {"zoo": arguments.model, "arguments": _given(arguments.argument)}
    measured = model = links = None
    if arguments.model:
        measured, own_entry = measure_model(
            entry,
            device,
            arguments.optimiser,
            batch_size=arguments.batch,
            segments=arguments.segments,
            processes=arguments.processes,
            warm_up=arguments.warm_up,
            repeats=arguments.repeats,
            cuts=_cuts(arguments.cuts),
            trusted=arguments.trust,
        )
        model = measured.model(arguments.gpu_type or name, own_entry)
        _tell(measured, own_entry is None and arguments.to == "model")
    if arguments.all_reduce:
        links = measure_all_reduces(arguments.all_reduce, arguments.repeats, device)
    return measured, model, links, name


def _tell(measured: ModelProfile, lacks_entry: bool) -> None:
    """Say what makes a profile less useful."""
    from jigsaw_opt.executor.profiling import told_wide

    if measured.wide_levels:
        note(f"note: {told_wide(measured)}: measure again when the machine is idle")
    if lacks_entry:
        note(
            'note: the model has no "executor" entry: the function takes no rank, world and device, or has no optimiser'
        )


def _cuts(text: str | None) -> list[str] | int | None:
    if text is None:
        return None
    return int(text) if text.isdecimal() else text.split(",")


def _check(arguments: argparse.Namespace) -> None:
    from jigsaw_opt.solvers.options import Options

    for name in _COUNTS:
        if getattr(arguments, name) is not None and getattr(arguments, name) < 1:
            raise out_of_range(option_of(name), f"{option_of(name)} is at least 1, not {getattr(arguments, name)}")
    Options(threads=arguments.threads)  # the same range everywhere
    if arguments.all_reduce is not None and arguments.all_reduce < 2:
        raise out_of_range("--all-reduce", f"--all-reduce is at least 2, not {arguments.all_reduce}")
    if arguments.processes > 1 and (arguments.device != "cpu" or arguments.threads > 1):
        raise not_together("--processes", "--processes is for the CPU, with one thread each")
    if arguments.cuts is not None and (arguments.processes > 1 or ":" not in (arguments.model or "")):
        raise not_together("--cuts", "--cuts is for a model of your own, in one process")
    if arguments.model is None and (arguments.all_reduce is None or arguments.output):
        raise missing_option(
            "model", "nothing to measure: name a model, or --all-reduce N; only a model can be written"
        )
    if arguments.to == "layers" and arguments.output is None:
        raise missing_option("-o", "--to layers is what -o writes: give -o FILE")
    gpu_type = arguments.gpu_type
    if gpu_type is not None and (not gpu_type or "/" in gpu_type or gpu_type != readable(gpu_type)):
        raise malformed("--gpu-type", "--gpu-type is a name without '/'")


def _given(pairs: list[str]) -> dict[str, Any]:
    """Return arguments as JSON values; what is no JSON is a string."""
    given: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name in given:
            raise malformed("--argument", f"--argument takes NAME=VALUE, each name once; not {pair!r}")
        try:
            given[name] = json.loads(value)
        except ValueError:
            given[name] = value
    return given
