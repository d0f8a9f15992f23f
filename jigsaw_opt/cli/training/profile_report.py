"""A measured profile as tables or as JSON."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import date
from importlib.metadata import version
from platform import python_version
from typing import TYPE_CHECKING, Any

from jigsaw_opt import __version__
from jigsaw_opt.cli.common.output import print_json, print_table

if TYPE_CHECKING:
    from jigsaw_opt.executor.devices import Spread
    from jigsaw_opt.executor.profiling import ModelProfile
    from jigsaw_opt.executor.profiling.links import AllReduceSample, LinkFit, LinkProfile
    from jigsaw_opt.problem.model import Model


def print_report(
    device: str, profile: ModelProfile | None, model: Model | None, links: LinkProfile | None, as_json: bool
) -> None:
    """Print what was measured, and the times that the model of an instance states.

    `profile, model`: A measured model and what was made of it, or None for both. `links`: measured all-reduces, or
    None.
    """
    if as_json:
        print_json(_as_json(device, profile, model, links))
        return
    if profile and model:
        _print_segments(profile, model)
        _print_levels(profile, model, device)
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
    from json import loads

    from jigsaw_opt.documents import encode_model

    versions = {"jigsaw-opt": __version__, "torch": version("torch"), "python": python_version()}
    return {
        "device": device,
        "date": date.today().isoformat(),
        "versions": versions,
        "model": loads(encode_model(model)) if model else None,
        "profile": {**_tree(profile), "wide_levels": profile.wide_levels} if profile else None,
        "all_reduce": _links_json(links) if links else None,
    }


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
