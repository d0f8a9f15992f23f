"""What this machine takes for a model, and for all-reduces, as asked for in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from jigsaw_opt.errors import RunFailedError, UsageError
from jigsaw_opt.executor.building import build_network, even_segments, replica
from jigsaw_opt.executor.links import LinkProfile, link_profile
from jigsaw_opt.executor.own_code import blame_own_code
from jigsaw_opt.executor.profiling import ModelProfile, profile_replica
from jigsaw_opt.executor.side_by_side import profiles_side_by_side
from jigsaw_opt.executor.worker import TrainingRecipe

__all__ = ["measure_all_reduces", "measure_model"]

_SIZES = tuple(2**k for k in range(12, 25, 2))
_RATE = 1e-6
"""Steps so small that the loss stays finite, whatever the model; their time is that of any other."""


def measure_model(
    entry: Mapping[str, Any],
    device: torch.device,
    optimiser: Literal["sgd", "adam", "adamw"],
    *,
    segments: int,
    processes: int,
    seed: int,
    warm_up: int,
    repeats: int,
    trusted: Sequence[str] = (),
) -> ModelProfile:
    """Profile a model, in one process or in several at once.

    Parameters
    ----------
    entry
        The model's `executor` entry.
    device
        Where to run; several processes run on the CPU.
    optimiser
        Its name.
    segments
        Most segments.
    processes
        How many measure at once.
    seed
        Of parameters and data.
    warm_up, repeats
        Rounds before measuring, and rounds measured.
    trusted
        ``module:function`` that may be imported.

    Raises
    ------
    UsageError
        The batch does not fit the device's memory.
    RunFailedError
        The network raises an error of torch.
    PluginError
        Code of the user's own raised; the message has its line.
    """
    momentum = {"momentum": 0.9} if optimiser == "sgd" else {}
    recipe = TrainingRecipe(optimiser, {"lr": _RATE, **momentum}, seed)
    if processes > 1:
        return profiles_side_by_side([entry], segments, processes, recipe, warm_up, repeats, trusted)[0]
    network = build_network(entry["zoo"], entry["arguments"], trusted, seed)
    try:
        with blame_own_code(entry["zoo"]):
            built = replica(network, even_segments(network, segments), entry["batch_size"])
            return profile_replica(built, recipe, device, warm_up, repeats)
    except torch.OutOfMemoryError as error:
        raise UsageError(f"a batch of {entry['batch_size']} does not fit the device's memory") from error
    except RuntimeError as error:  # what torch says of shapes and types
        raise RunFailedError(f"{entry['zoo']}: {str(error).partition(chr(10))[0]}") from error


def measure_all_reduces(workers: int, repeats: int, device: torch.device) -> LinkProfile:
    """Measure all-reduces among 2 to `workers` processes; by NCCL where each has a GPU, else by Gloo."""
    nccl = device.type == "cuda" and torch.cuda.device_count() >= workers
    return link_profile(workers, _SIZES, repeats, "nccl" if nccl else "gloo")
