"""What this machine takes for a model, as asked for in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import torch
from torch.utils._pytree import tree_leaves

from jigsaw_opt.errors import RunFailedError, UsageError, not_together, unsupported
from jigsaw_opt.executor.models.building import build_network, even_segments, own_network, replica
from jigsaw_opt.executor.models.importing import blame_own_code
from jigsaw_opt.executor.profiling import ModelProfile, measure_any, profile_replica
from jigsaw_opt.executor.profiling.efficiency import NoiseRun
from jigsaw_opt.executor.user_code.given import Given, call_own, given_subject
from jigsaw_opt.executor.worker import OPTIMISERS, TrainingRecipe

_RATE = 1e-6
"""Steps so small that the loss stays finite, whatever the model; their time is that of any other."""


def measure_model(
    entry: Mapping[str, Any],
    device: torch.device,
    optimiser: Literal["sgd", "adam", "adamw"] | None,
    *,
    batch_size: int | None,
    segments: int | None,
    warm_up: int,
    repeats: int,
    cuts: Sequence[str] | int | None = None,
    trusted: Sequence[str] = (),
    noise_run: NoiseRun | None = None,
) -> tuple[ModelProfile, Mapping[str, Any] | None]:
    """Profile a model.

    The `executor` entry of what was measured; None where the executor cannot train it.

    `entry`: the model's `executor` entry, without `batch_size`. `optimiser`: its name; None for SGD with momentum, or
    that of the user's own function. `batch_size, segments`: samples of a batch, and most segments, of a network in
    units; None for 8 and for 6, and for all other models. `cuts`: cuts of a model of the user's own that is not in
    units; None for 4, and for all others. `noise_run`: how gradient noise is measured, too; None for not at all.
    """
    momentum = {} if optimiser in ("adam", "adamw") else {"momentum": 0.9}
    recipe = TrainingRecipe(optimiser or "sgd", {"lr": _RATE, **momentum})
    rate = 0.01 if momentum else 0.001
    name, arguments = entry["zoo"], entry["arguments"]
    in_units, most = {**entry, "batch_size": batch_size or 8}, segments or 6
    with _told_shapes(name):
        if ":" in name:
            made, is_of_worker = call_own(name, arguments, device, trusted, 0)
            given = given_subject(name, made, is_of_worker)
            if given is not None:
                subject, is_training = given
                own = {"--batch": batch_size, "--segments": segments}
                _require_none(own | {"--optimiser": optimiser if subject.optimiser else None})
                if is_training:
                    _require_no_fractions(arguments)
                with blame_own_code(name):
                    if noise_run is not None and subject.optimiser is None:
                        noise_run = replace(noise_run, rate=rate)
                    subject, cuts = _on(device, subject, recipe), 4 if cuts is None else cuts
                    measured = measure_any(subject, cuts, None, device, warm_up, repeats, noise_run)
                own_entry = {"train": name, "arguments": arguments, "cuts": [s.name for s in measured.segments[1:]]}
                return measured, own_entry if is_training else None
        if cuts is not None:
            message = "--cuts is for a model of your own that is not in units; --segments cuts one in units"
            raise not_together("cuts", message)
    with _told_shapes(name):
        network = own_network(made) if ":" in name else build_network(name, arguments, seed=0)
        with blame_own_code(name):
            built = replica(network, even_segments(network, most), in_units["batch_size"])
            noise_run = noise_run and replace(noise_run, rate=rate)
            return profile_replica(built, recipe, device, warm_up, repeats, noise_run=noise_run), in_units


def _on(device: torch.device, subject: Given, recipe: TrainingRecipe) -> Given:
    """Move what was given to a device; return it, with the optimiser of a recipe other than SGD if it has none."""
    model = subject.model
    for part in (model, subject.loss):
        if isinstance(part, torch.nn.Module):
            part.to(device)
    if subject.optimiser is None and isinstance(model, torch.nn.Module) and recipe.optimiser != "sgd":
        trained = [p for p in model.parameters() if p.requires_grad]
        made = OPTIMISERS[recipe.optimiser](trained, **recipe.options) if trained else None
        return replace(subject, optimiser=made)
    return subject


def _require_none(given: Mapping[str, object]) -> None:
    """Raise `UsageError` where options are given that a model of the user's own does not heed."""
    if unheeded := [option for option, value in given.items() if value is not None]:
        message = f"{', '.join(unheeded)}: not for a model with a batch or an optimiser of its own; see --cuts"
        raise unsupported(", ".join(unheeded), message)


def _require_no_fractions(arguments: Mapping[str, Any]) -> None:
    """Raise `UsageError` where the `executor` entry, which has no fractions, could not hold the arguments."""
    names = [name for name, value in arguments.items() if any(isinstance(leaf, float) for leaf in tree_leaves(value))]
    if names:
        raise unsupported(
            "argument",
            f"a document has no fractions, so it cannot hold {', '.join(names)} of a training: "
            f"""give a string, as in --argument '{names[0]}="0.1"', or write it into the code""",
        )


@contextmanager
def _told_shapes(name: str) -> Iterator[None]:
    """Tell what torch raises of memory, shapes and types."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UsageError("the batch does not fit the device's memory", code="does-not-fit", path="batch") from error
    except RuntimeError as error:
        raise RunFailedError(f"{name}: {str(error).partition(chr(10))[0]}") from error
