"""Measure a model on this machine, and what an all-reduce costs; write the model for an instance."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, fields, is_dataclass, replace
from datetime import date
from importlib.metadata import version
from math import isfinite
from platform import python_version
from typing import TYPE_CHECKING, Any

from jigsaw_opt import __version__
from jigsaw_opt.cli.common.arguments import PROGRESS, Arguments
from jigsaw_opt.cli.common.output import emit, note, print_json, print_table, require_output
from jigsaw_opt.cli.common.parser import option_of
from jigsaw_opt.cli.common.progress import logged_progress
from jigsaw_opt.errors import malformed, missing_option, not_together, out_of_range
from jigsaw_opt.text import readable

if TYPE_CHECKING:
    from jigsaw_opt.executor.devices import Spread
    from jigsaw_opt.executor.profiling import ModelProfile
    from jigsaw_opt.executor.profiling.links import AllReduceSample, LinkFit, LinkProfile
    from jigsaw_opt.problem.model import Model

_COUNTS = ("batch", "segments", "warm_up", "repeats", "threads", "efficiency")
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
    "--efficiency N": "also measure what iterations at lower levels are worth, in N iterations",
    "--workers N = 4": "workers of the job whose iterations --efficiency measures",
    "--all-reduce N": "also measure all-reduces among 2 to N processes of this machine",
    "--to model|layers = model": "what -o writes: the model of an instance, or a layer profile for pipelines",
    "-o, --output FILE": "write the model or the layers here",
    "--json": "print everything as JSON",
    **PROGRESS,
}


def run(arguments: argparse.Namespace) -> int:
    """Measure, print, write."""
    from jigsaw_opt.executor import require_torch

    require_output(arguments.output)
    _check(arguments)
    require_torch()
    with logged_progress(arguments, "measuring"):
        measured, model, links, device = _measured(arguments)
    if measured and model and arguments.output:
        _write(arguments, measured, model)
    _print(device, measured, model, links, arguments.json, arguments.workers)
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


def _measured(arguments: argparse.Namespace) -> tuple[ModelProfile | None, Model | None, LinkProfile | None, str]:
    """Return the profile of the model, the model with its times, the all-reduces, and what the device is called."""
    import torch

    from jigsaw_opt.executor.devices import device_name, device_of
    from jigsaw_opt.executor.profiling.efficiency import NoiseRun
    from jigsaw_opt.executor.profiling.links import measure_all_reduces
    from jigsaw_opt.executor.profiling.measuring import measure_model

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
            warm_up=arguments.warm_up,
            repeats=arguments.repeats,
            cuts=_cuts(arguments.cuts),
            trusted=arguments.trust,
            noise_run=NoiseRun(arguments.efficiency, arguments.workers) if arguments.efficiency else None,
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
    if measured.noise is not None and not measured.noise.is_known:
        note("note: gradients are not above their noise: give --efficiency more iterations")
    if lacks_entry:
        note(
            'note: the model has no "executor" entry: the function takes no rank, world and device, or has no optimiser'
        )


def _cuts(text: str | None) -> list[str] | int | None:
    return None if text is None else int(text) if text.isdecimal() else text.split(",")


def _check(arguments: argparse.Namespace) -> None:
    from jigsaw_opt.solvers.options import Options

    for name in _COUNTS:
        if getattr(arguments, name) is not None and getattr(arguments, name) < 1:
            raise out_of_range(option_of(name), f"{option_of(name)} is at least 1, not {getattr(arguments, name)}")
    Options(threads=arguments.threads)  # the same range everywhere
    if arguments.trust and ":" not in (arguments.model or ""):
        raise not_together("--trust", "only a function of your own is imported; leave out --trust")
    if arguments.all_reduce is not None and arguments.all_reduce < 2:
        raise out_of_range("--all-reduce", f"--all-reduce is at least 2, not {arguments.all_reduce}")
    if arguments.workers < 2:
        raise out_of_range("--workers", f"--workers is at least 2, not {arguments.workers}")
    if arguments.efficiency and arguments.model is None:
        raise not_together("--efficiency", "--efficiency is for a model")
    if arguments.cuts is not None and ":" not in (arguments.model or ""):
        raise not_together("--cuts", "--cuts is for a model of your own")
    if arguments.model is None and (arguments.all_reduce is None or arguments.output):
        told = "nothing to measure: name a model, or --all-reduce N; only a model can be written"
        raise missing_option("model", told)
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


def _print(
    device: str,
    profile: ModelProfile | None,
    model: Model | None,
    links: LinkProfile | None,
    as_json: bool,
    workers: int,
) -> None:
    """Print what was measured, and the times that the model of an instance states.

    `profile, model`: A measured model and what was made of it, or None for both. `links`: measured all-reduces, or
    None. `workers`: those of the job whose gradient noise was measured.
    """
    if as_json:
        print_json(_as_json(device, profile, model, links))
        return
    if profile and model:
        _print_segments(profile, model)
        _print_levels(profile, model, device)
        if profile.noise is not None:
            print(f"\n{replace(profile.noise, times=model.block_us(model.gpu_types[0]), workers=workers)}")
    if links:
        _print_links(links)


def _print_segments(profile: ModelProfile, model: Model) -> None:
    times = ("forward us", "iqr", "backward us", "iqr", "inputs us", "weights us", "step us")
    headers = ("segment", *times, "parameters", "activations", "model")
    rows = [
        (
            s.name,
            *_shown(s.forward),
            *_shown(s.backward),
            f"{s.input_gradients.median:.0f}",
            f"{s.weight_gradients.median:.0f}",
            f"{s.step_us:.0f}",
            s.parameter_bytes,
            s.activation_bytes,
            " + ".join(str(us) for table in (m.forward_us, m.backward_us) for us in table.values()),
        )
        for s, m in zip(profile.segments, model.segments, strict=True)
    ]
    print_table(headers, rows, headers[1:])
    print(f"\nstate: {profile.state_bytes} bytes, state_factor {model.state_factor}\n")


def _print_levels(profile: ModelProfile, model: Model, device: str) -> None:
    memory = "saved bytes" if device == "cpu" else "peak bytes"
    headers = ("level", "block us", "iqr", "model us", "parts us", memory, "model bytes")
    blocks, activations = model.block_us(model.gpu_types[0]), model.activation_bytes()
    rows = [
        (level.level, *_shown(level.block), us, f"{parts:.0f}", level.memory_bytes, size)
        for level, us, parts, size in zip(profile.levels, blocks, profile.parts_us, activations, strict=True)
    ]
    print_table(headers, rows, headers)


def _print_links(links: LinkProfile) -> None:
    headers = ("workers", "bytes", "all-reduce us", "iqr", "fit us", "residual", "two at once us", "iqr", "ratio")
    rows = [
        (
            one.workers,
            one.size,
            *_shown(one.time),
            f"{links.fit.time_us(one):.0f}",
            f"{100 * links.fit.residual(one):+.0f} %",
            *_shown(two.time),
            f"{two.time.median / one.time.median:.2f}",
        )
        for one, two in zip(links.samples, links.shared, strict=True)
    ]
    print()
    print_table(headers, rows, headers)
    print(f"\nfit: latency {links.fit.latency_us:.1f} us a step, bandwidth {links.fit.bandwidth} bytes/s")


def _shown(spread: Spread) -> tuple[str, str]:
    return f"{spread.median:.0f}", f"{spread.iqr:.0f}"


def _as_json(
    device: str, profile: ModelProfile | None, model: Model | None, links: LinkProfile | None
) -> dict[str, Any]:
    from jigsaw_opt.documents import encode_model

    versions = {"jigsaw-opt": __version__, "torch": version("torch"), "python": python_version()}
    return {
        "device": device,
        "date": date.today().isoformat(),
        "versions": versions,
        "model": json.loads(encode_model(model)) if model else None,
        "profile": _profile_json(profile) if profile else None,
        "all_reduce": _links_json(links) if links else None,
    }


def _profile_json(profile: ModelProfile) -> dict[str, Any]:
    noise = profile.noise
    rows = None if noise is None else [asdict(own) for own in noise.buckets]
    finite = rows and [{name: value if isfinite(value) else None for name, value in row.items()} for row in rows]
    told: dict[str, Any] = {"wide_levels": profile.wide_levels, "noise": finite}
    if noise is not None:
        told["fixed_share"] = None if noise.fixed_share is None else round(noise.fixed_share, 3)
    return {**_tree(replace(profile, noise=None)), **told}


def _tree(value: Any) -> Any:
    """Return measurements as what JSON is made of: by field, spreads as their quartiles in microseconds."""
    if isinstance(value, tuple):
        return [_tree(each) for each in value]
    if hasattr(value, "iqr"):
        return _quartiles(value)
    if is_dataclass(value):
        parts = ((field.name, getattr(value, field.name)) for field in fields(value))
        return {f"{name}_us" if hasattr(part, "iqr") else name: _tree(part) for name, part in parts}
    return round(value, 1) if isinstance(value, float) else value


def _links_json(links: LinkProfile) -> dict[str, Any]:
    return {
        "latency_us": round(links.fit.latency_us, 2),
        "bandwidth": links.fit.bandwidth,
        "alone": [_sample_json(sample, links.fit) for sample in links.samples],
        "two_at_once": [_sample_json(sample) for sample in links.shared],
    }


def _sample_json(sample: AllReduceSample, fit: LinkFit | None = None) -> dict[str, Any]:
    row = {"workers": sample.workers, "bytes": sample.size, "time_us": _quartiles(sample.time)}
    return row | ({"residual": round(fit.residual(sample), 4)} if fit else {})


def _quartiles(spread: Spread) -> dict[str, float]:
    return {"median": round(spread.median, 1), "q1": round(spread.low, 1), "q3": round(spread.high, 1)}
