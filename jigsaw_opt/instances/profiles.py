"""Model profiles ESTIMATED from layer shapes with a roofline; not measurements.

Training in mixed precision is assumed: matrix products and activations at 16 bits, parameters,
gradients and optimiser state at 32. For a layer and a batch of ``B`` samples,

    forward  = max(B * flops / (peak * efficiency),     moved / bandwidth)
    backward = max(2 * B * flops / (peak * efficiency), 2 * moved / bandwidth)
    moved    = 2 bytes * (B * (reads + writes) + parameters)

A segment's time is the sum over its layers, rounded up to a microsecond; its parameters take 4
bytes each and its activations, the outputs of its layers, ``2 * B`` bytes an element. Launch
overhead, caches, fused kernels and recomputation are left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise

from jigsaw_opt.errors import UsageError
from jigsaw_opt.instances.architectures import ARCHITECTURES
from jigsaw_opt.instances.configurations import Configuration, read_configuration
from jigsaw_opt.instances.configurations.blocks import USUAL_TOKENS
from jigsaw_opt.instances.gpus import GPU_TYPES, GpuType, data_sheet
from jigsaw_opt.instances.layers import Layer, Unit
from jigsaw_opt.problem.costs import ceil_fraction
from jigsaw_opt.problem.measured.layers import LayerGraph, MeasuredLayer, chain_edges
from jigsaw_opt.problem.model import Model, Segment
from jigsaw_opt.text import Tell, nearest, say_nothing

_COMPUTE_BYTES, _PARAMETER_BYTES = 2, 4
_ESTIMATED = "-estimate"
_STATE_BYTES = 16
"""Bytes held for a parameter: itself, its gradient, and what Adam holds at 32 bits."""


def estimate_name(network: str, batch: int) -> str:
    """Return what instances call the estimated profile of a network."""
    return f"{network}-b{batch}{_ESTIMATED}"


def is_estimate(name: str) -> bool:
    """Return whether the name of a model says that its times are estimated, not measured."""
    return name.endswith(_ESTIMATED)


def profile(name: str, batch: int, gpu_types: Sequence[str], segments: int) -> Model:
    """Return the estimated profile of a known network.

    Parameters
    ----------
    name
        ``resnet50``, ``vgg16``, ``bert_large``, ``gpt2_small`` or ``gpt2_medium``.
    batch
        Samples a worker and iteration.
    gpu_types
        Types with a data sheet, one or more.
    segments
        Number of segments, cut where the forward operations are shared most evenly.

    Raises
    ------
    UsageError
        For an unknown name, or a number out of range.
    """
    units = _units(name, batch, gpu_types, segments)
    gpus = {gpu_type: figures for gpu_type in gpu_types if (figures := data_sheet(gpu_type)) is not None}
    parts = estimate(units, batch, gpus, segments)
    return Model(parts, executor={"zoo": name, "arguments": {}, "batch_size": batch})


def estimate(
    units: Sequence[Unit],
    batch: int,
    gpus: Mapping[str, GpuType],
    segments: int,
    parameter_bytes: int = _PARAMETER_BYTES,
) -> tuple[Segment, ...]:
    """Estimate the segments of units.

    `segments`: 1 to the number of units.
    """
    bounds = even_bounds([unit.flops for unit in units], segments)
    return tuple(_segment(units[low:high], batch, gpus, parameter_bytes) for low, high in pairwise(bounds))


def estimate_layers(
    units: Sequence[Unit], batch: int, gpu_type: str, gpu: GpuType, parameter_bytes: int = _PARAMETER_BYTES
) -> tuple[MeasuredLayer, ...]:
    """Estimate layers, one a unit, as `estimate` estimates segments; a unit sends what its last layer writes.

    The gradients of weights take a forward pass's time in a dense layer or a convolution, and the whole backward pass
    in a table look-up.
    """
    found = []
    for unit in units:
        segment = _segment([unit], batch, {gpu_type: gpu}, parameter_bytes)
        weights = sum(_layer_us(layer, batch, gpu, layer.weight_passes) for layer in unit.layers)
        found.append(
            MeasuredLayer(
                unit.name,
                segment.forward_us[gpu_type],
                segment.backward_us[gpu_type],
                segment.parameter_bytes,
                segment.activation_bytes,
                ceil_fraction(Fraction(weights)),
                _COMPUTE_BYTES * batch * unit.layers[-1].writes,
            )
        )
    return tuple(found)


def _units(name: str, batch: int, gpu_types: Sequence[str], segments: int) -> tuple[Unit, ...]:
    known: Mapping[str, object]
    for path, key, known, found in (
        ("name", name, ARCHITECTURES, ARCHITECTURES.get(name)),
        *(("gpu_types", gpu_type, GPU_TYPES, data_sheet(gpu_type)) for gpu_type in gpu_types),
    ):
        if found is None:
            raise UsageError(f"no profile of {key!r}; {nearest(key, known)}", code="unknown-name", path=path)
    units = ARCHITECTURES[name]()
    if batch < 1 or not 1 <= segments <= len(units) or not gpu_types:
        raise UsageError(
            f"{name} has 1 to {len(units)} segments, a batch of at least 1 and at least one GPU type",
            code="out-of-range" if gpu_types else "empty",
            path="gpu_types" if not gpu_types else "batch" if batch < 1 else "segments",
        )
    return units


def _assumed(gpus: Mapping[str, GpuType], tokens: int | None) -> str:
    """Return what the figures assume that the configuration does not say."""
    long = f"{USUAL_TOKENS} tokens, or as many as there are positions" if tokens is None else f"{tokens} tokens"
    shares = ", ".join(sorted({f"{gpu.efficiency} %" for gpu in gpus.values()}))
    return f"assumed: sequences of words have {long}, {shares} of the peak is reached, {_STATE_BYTES} bytes a parameter"


def read_model(
    data: bytes | str,
    gpus: Mapping[str, GpuType],
    batch: int,
    *,
    tokens: int | None = None,
    segments: int = 6,
    source: str = "config.json",
    tell: Tell = say_nothing,
) -> Model:
    """Estimate the model of a configuration, as `profile` estimates; 16 bytes a parameter are held, as Adam needs.

    `batch`: sequences a worker and iteration, at least 1.
    """
    read = _told(read_configuration(data, tokens, source), gpus, tokens, source, tell)
    parts = estimate(read.units, batch, gpus, min(segments, len(read.units)), read.parameter_bytes)
    return Model(parts, state_factor=_STATE_BYTES // read.parameter_bytes)


def read_estimated_layers(
    data: bytes | str,
    gpu_type: str,
    gpu: GpuType,
    batch: int,
    *,
    tokens: int | None = None,
    source: str = "config.json",
    tell: Tell = say_nothing,
) -> LayerGraph:
    """Estimate the layers of a configuration, one a unit.

    Each reads the one before it, and all layers of a decoder read what comes out of the encoder.

    `batch`: sequences of a micro-batch, at least 1.
    """
    read = _told(read_configuration(data, tokens, source), {gpu_type: gpu}, tokens, source, tell)
    layers = estimate_layers(read.units, batch, gpu_type, gpu, read.parameter_bytes)
    encoder = [at for at, layer in enumerate(layers) if layer.name.startswith("encoder.")]
    decoder = [at for at, layer in enumerate(layers) if layer.name.startswith("decoder.layer")]
    edges = {*chain_edges(len(layers)), *((encoder[-1], at) for at in decoder)}
    return LayerGraph(layers, tuple(sorted(edges)), batch, _STATE_BYTES // read.parameter_bytes, gpu_type)


def _told(
    read: Configuration,
    gpus: Mapping[str, GpuType],
    tokens: int | None,
    source: str,
    tell: Tell,
) -> Configuration:
    """Return a configuration when it has been told what is counted and assumed."""
    tell(f"{source}: counted as {read.name}, {read.parameters} parameters")
    for note in (*read.notes, _assumed(gpus, tokens)):
        tell(f"{source}: {note}")
    return read


def even_bounds(work: Sequence[int], parts: int) -> tuple[int, ...]:
    """Return indices that divide `work` into `parts` runs, none empty, each ending at its even share."""
    done = list(accumulate(work))
    bounds = [0]
    for part in range(1, parts):
        even = bisect_left(done, Fraction(part * done[-1], parts)) + 1
        bounds.append(min(max(even, bounds[-1] + 1), len(work) - parts + part))
    return (*bounds, len(work))


def _segment(units: Sequence[Unit], batch: int, gpus: Mapping[str, GpuType], parameter_bytes: int) -> Segment:
    layers = [layer for unit in units for layer in unit.layers]
    forward = {t: sum(_layer_us(layer, batch, gpu, 1) for layer in layers) for t, gpu in gpus.items()}
    backward = {t: sum(_layer_us(layer, batch, gpu, 2) for layer in layers) for t, gpu in gpus.items()}
    return Segment(
        name=units[0].name if len(units) == 1 else f"{units[0].name}-{units[-1].name}",
        forward_us={t: ceil_fraction(Fraction(us)) for t, us in forward.items()},
        backward_us={t: ceil_fraction(Fraction(us)) for t, us in backward.items()},
        parameter_bytes=parameter_bytes * sum(unit.parameters for unit in units),
        activation_bytes=_COMPUTE_BYTES * batch * sum(layer.writes for layer in layers),
    )


def _layer_us(layer: Layer, batch: int, gpu: GpuType, passes: int) -> Fraction:
    moved = _COMPUTE_BYTES * (batch * (layer.reads + layer.writes) + layer.parameters)
    return gpu.layer_us(passes * batch * layer.flops, passes * moved)
