"""Costs of layers by number of GPUs, out of a layer profile of DeepPool."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod

from jigsaw_opt.documents.readers.burst_costs import BurstCosts, BurstLayer, LayerOption
from jigsaw_opt.documents.readers.deeppool import ProfiledLayer
from jigsaw_opt.errors import UsageError

__all__ = ["BurstSetting", "profiled_costs"]

_BYTES = 4
"""Of a number."""
_LATENCY_US = 40
"""Of moving anything, each way."""
_FIXED = ("ReLU1d", "ReLU2d", "flatten", "BatchNorm2d")
"""Layers that stay on the GPUs of the layer before."""
_PENALTY = 1000
"""What moving the input of one of these is multiplied by, so that no plan does it."""


@dataclass(frozen=True, slots=True)
class BurstSetting:
    """What a profile does not say.

    Parameters
    ----------
    gpus
        How many there are.
    global_batch
        Samples of an iteration, which the GPUs of a layer share evenly.
    bytes_per_us
        Rate of each GPU's network.
    released
        Costs as DeepPool's released functions have them, in place of what the profile says of each layer.
    """

    gpus: int
    global_batch: int
    bytes_per_us: float
    released: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        Raises
        ------
        UsageError
            A number is not above 0.
        """
        if self.gpus < 1 or self.global_batch < 1 or not 0 < self.bytes_per_us < inf:
            raise UsageError("GPUs, global batch and bandwidth are above 0")


def profiled_costs(runs: Mapping[int, Sequence[ProfiledLayer]], setting: BurstSetting) -> BurstCosts:
    """Costs of the chain of layers of a profile.

    A layer may run on 1, 2, 4, … GPUs, where the profile has a run of as many samples as each of them gets. Gradients
    of all weights take their bytes over the rate where the batch is split. Moving activations takes, each way, the
    bytes that the busiest GPU sends or receives over the rate, and 40 us.

    The released functions differ in three points: layers with the same parameters and input all take the time of the
    last of them; a convolution synchronises `kernel` x (`height` of its output + 1) numbers, on one GPU too; and a
    residual block synchronises nothing.

    Parameters
    ----------
    runs
        By samples a GPU, the layers of a profile.
    setting
        GPUs, batch and rate.

    Raises
    ------
    UsageError
        If the profile has no run for this batch on any number of GPUs.
    """
    counts = [1 << power for power in range(setting.gpus.bit_length())]
    batch = setting.global_batch
    counts = [count for count in counts if batch % count == 0 and batch // count in runs]
    if not counts:
        known = ", ".join(map(str, sorted(runs)))
        raise UsageError(f"no run for a global batch of {batch} on 1, 2, 4, … GPUs; the profile has batches of {known}")
    if setting.released:
        runs = {size: _shared(run) for size, run in runs.items()}
    columns = zip(*(runs[batch // count] for count in counts), strict=True)
    return BurstCosts(
        setting.gpus, tuple(_layer(setting, counts, column, at == 0) for at, column in enumerate(columns))
    )


def _shared(run: Sequence[ProfiledLayer]) -> list[ProfiledLayer]:
    """Each layer as the last that is alike."""
    last = {layer.key: layer for layer in run}
    return [last[layer.key] for layer in run]


def _layer(setting: BurstSetting, counts: Sequence[int], column: Sequence[ProfiledLayer], first: bool) -> BurstLayer:
    """A layer on each number of GPUs.

    Where one GPU has no run of the whole batch, it takes that of the fewest GPUs as often as these are many.
    """
    options = tuple(
        LayerOption(count, layer.total_us, layer.forward_us, layer.backward_us, _sync_us(setting, layer, count))
        for count, layer in zip(counts, column, strict=True)
    )
    single = options[0].gpu_us * counts[0] + _sync_us(setting, column[0], 1)
    moved = () if first else tuple(tuple(_moved_us(setting, column[0], a, b) for b in counts) for a in counts)
    return BurstLayer(column[0].kind, single, options, moved)


def _sync_us(setting: BurstSetting, layer: ProfiledLayer, count: int) -> float:
    if setting.released and layer.kind != "linear":
        numbers = _released_numbers(layer)
    else:
        numbers = layer.weights if count > 1 else 0
    return numbers * _BYTES / setting.bytes_per_us


def _released_numbers(layer: ProfiledLayer) -> int:
    """What the released functions take for the number of weights of a layer that is not linear."""
    if layer.kind != "conv2d":
        return 0
    parameters = json.loads(layer.parameters)
    kernel, stride, padding = (int(parameters[key]) for key in ("kernel_size", "stride", "padding"))
    return kernel * ((layer.shape[1] + 2 * padding - kernel) // stride + 2)


def _moved_us(setting: BurstSetting, layer: ProfiledLayer, before: int, own: int) -> float:
    """Activations to another number of GPUs and their gradients back: samples that a GPU has on one side alone."""
    if before == own:
        return 0.0
    samples = abs(setting.global_batch // before - setting.global_batch // own)
    once = samples * prod(layer.shape) * _BYTES / setting.bytes_per_us + _LATENCY_US
    return 2 * once * (_PENALTY if layer.kind in _FIXED else 1)
