"""Costs of layers by number of GPUs, out of profiles that measured them on several batch sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod

from jigsaw_opt.documents.readers.profiles.burst_costs import BurstCosts, BurstLayer, LayerOption
from jigsaw_opt.documents.readers.profiles.deeppool import ProfiledLayer
from jigsaw_opt.errors import Problem, UsageError, out_of_range
from jigsaw_opt.problem.measured.layers import LayerGraph

_BYTES = 4
"""Bytes of a number in DeepPool's profiles."""
_LATENCY_US = 40
"""Microseconds of latency of moving anything, each way."""
_FIXED = ("ReLU1d", "ReLU2d", "flatten", "BatchNorm2d")
"""Layers that stay on the GPUs of the layer before."""
_PENALTY = 1000
"""Factor on the time of moving the input of one of these layers, so large that no plan does it."""


@dataclass(frozen=True, slots=True)
class BurstSetting:
    """The setting of a burst: what a profile does not say.

    `global_batch`: samples of an iteration, which the GPUs of a layer share evenly.
    """

    gpus: int
    global_batch: int
    bytes_per_us: float

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if self.gpus < 1 or self.global_batch < 1 or not 0 < self.bytes_per_us < inf:
            raise out_of_range("gpus", "GPUs, global batch and bandwidth are above 0")


@dataclass(frozen=True, slots=True)
class _LayerRun:
    """A layer as measured on so many samples.

    `gpu_us, forward_us, backward_us`: microseconds of both passes, and of each. `parameter_bytes`: bytes of gradients,
    which GPUs exchange where they share the batch. `input_bytes`: what it reads of a sample. `stays`: whether it is on
    the GPUs of the layer before.
    """

    name: str
    gpu_us: float
    forward_us: float
    backward_us: float
    parameter_bytes: float
    input_bytes: float
    stays: bool = False


def profiled_costs(runs: Mapping[int, Sequence[ProfiledLayer]], setting: BurstSetting) -> BurstCosts:
    """Return costs of the chain of layers of a profile of DeepPool.

    A layer may run on 1, 2, 4, … GPUs, where the profile has a run of as many samples as each of them gets. Gradients
    of all weights take their bytes over the rate where the batch is split. Moving activations takes, each way, the
    bytes that the busiest GPU sends or receives over the rate, and 40 us.
    """
    return _costs({size: list(map(_deeppool_run, run)) for size, run in runs.items()}, setting)


def measured_costs(graphs: Sequence[LayerGraph], setting: BurstSetting) -> BurstCosts:
    """Return the costs of a chain of layers from layer profiles of several batch sizes; the rest as `profiled_costs`.

    `graphs`: the same layers, measured on different numbers of samples by the same type of GPU.
    """
    first, wrong = graphs[0], []
    if any(graph.batch is None for graph in graphs):
        told = "a layer profile does not say of how many samples its times are (batch)"
        wrong.append(Problem("batch", told, code="missing-field"))
    batches = [graph.batch for graph in graphs if graph.batch is not None]
    if len(set(batches)) < len(batches):
        told = f"several layer profiles are of the same batch: {', '.join(map(str, batches))}"
        wrong.append(Problem("batch", told, code="duplicate-name"))
    names = [layer.name for layer in first.layers]
    if any([layer.name for layer in graph.layers] != names for graph in graphs):
        wrong.append(Problem("layers", "the layer profiles have different layers", code="mismatch"))
    if len(types := sorted({graph.gpu_type for graph in graphs if graph.gpu_type is not None})) > 1:
        wrong.append(
            Problem("gpu_type", f"the layer profiles are of different GPUs: {', '.join(types)}", code="mismatch")
        )
    if not all(graph.is_chain for graph in graphs):
        wrong.append(Problem("edges", "layers that branch have no costs of a burst", code="unsupported"))
    if wrong:
        raise UsageError.of(wrong)
    return _costs({batch: _runs(graph, batch) for batch, graph in zip(batches, graphs, strict=True)}, setting)


def _runs(graph: LayerGraph, batch: int) -> list[_LayerRun]:
    inputs = [0.0, *(layer.sent_bytes / batch for layer in graph.layers)]
    return [
        _LayerRun(layer.name, layer.time_us, layer.forward_us, layer.backward_us, layer.parameter_bytes, read)
        for layer, read in zip(graph.layers, inputs, strict=False)
    ]


def _deeppool_run(layer: ProfiledLayer) -> _LayerRun:
    times = layer.total_us, layer.forward_us, layer.backward_us
    return _LayerRun(layer.kind, *times, layer.weights * _BYTES, prod(layer.shape) * _BYTES, layer.kind in _FIXED)


def _costs(runs: Mapping[int, Sequence[_LayerRun]], setting: BurstSetting) -> BurstCosts:
    counts = [1 << power for power in range(setting.gpus.bit_length())]
    batch = setting.global_batch
    counts = [count for count in counts if batch % count == 0 and batch // count in runs]
    if not counts:
        known = ", ".join(map(str, sorted(runs)))
        raise UsageError(
            f"no run for a global batch of {batch} on 1, 2, 4, … GPUs; the profile has batches of {known}",
            code="unknown-value",
            path="batch",
        )
    columns = zip(*(runs[batch // count] for count in counts), strict=True)
    return BurstCosts(
        setting.gpus, tuple(_layer(setting, counts, column, at == 0) for at, column in enumerate(columns))
    )


def _layer(setting: BurstSetting, counts: Sequence[int], column: Sequence[_LayerRun], first: bool) -> BurstLayer:
    """Return a layer on each number of GPUs.

    Where one GPU has no run of the whole batch, it takes that of the fewest GPUs as often as these are many.
    """
    options = tuple(
        LayerOption(count, layer.gpu_us, layer.forward_us, layer.backward_us, _sync_us(setting, layer, count))
        for count, layer in zip(counts, column, strict=True)
    )
    single = options[0].gpu_us * counts[0] + _sync_us(setting, column[0], 1)
    moved = () if first else tuple(tuple(_moved_us(setting, column[0], a, b) for b in counts) for a in counts)
    return BurstLayer(column[0].name, single, options, moved)


def _sync_us(setting: BurstSetting, layer: _LayerRun, count: int) -> float:
    return layer.parameter_bytes / setting.bytes_per_us if count > 1 else 0.0


def _moved_us(setting: BurstSetting, layer: _LayerRun, before: int, own: int) -> float:
    """Return the time of moving activations to another number of GPUs and their gradients back."""
    if before == own:
        return 0.0
    samples = abs(setting.global_batch // before - setting.global_batch // own)
    once = samples * layer.input_bytes / setting.bytes_per_us + _LATENCY_US
    return 2 * once * (_PENALTY if layer.stays else 1)
