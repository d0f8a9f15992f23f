"""Profiles of networks of the zoo, and of the user's own in units."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor, nn

from jigsaw_opt.executor.devices import device_name
from jigsaw_opt.executor.models.building import Replica
from jigsaw_opt.executor.models.zoo.network import Batch, moved
from jigsaw_opt.executor.partial.parts import ModelParts
from jigsaw_opt.executor.profiling.restoring import restored
from jigsaw_opt.executor.profiling.results import ModelProfile
from jigsaw_opt.executor.profiling.rounds import LONGEST, flushed_denormals, measure, warm
from jigsaw_opt.executor.profiling.trainee import Trainee
from jigsaw_opt.executor.worker import OPTIMISERS, TrainingRecipe


def profile_replica(
    replica: Replica,
    recipe: TrainingRecipe,
    device: torch.device,
    warm_up: int,
    repeats: int,
    *,
    number: int = 0,
    most: int | None = None,
) -> ModelProfile:
    """Measure a replica as a worker trains it, with the drawing of the batch.

    Times in microseconds and bytes of each segment and each level.

    `warm_up, repeats`: rounds before measuring, and rounds measured; both at least 1. `most`: rounds measured at most,
    where times differ much; None for three times `repeats`.
    """
    model = replica.model.to(device)
    places = _told_apart(model.segments)

    def loss(batch: Batch) -> Tensor:
        values, targets = batch
        for place in places:
            values = place(values)
        return model.scalar_loss(values, targets)

    buckets = {p: bucket for bucket, own in enumerate(model.bucket_parameters(), 1) for p in own}
    trainee = Trainee(
        names=model.names,
        starts=places[1:],
        parts=ModelParts(model.names[1:], buckets, ()),
        held=nn.ModuleList([model]),
        loss=loss,
        optimiser=OPTIMISERS[recipe.optimiser](model.parameters(), **recipe.options),
        draw=lambda turn: moved(replica.batch(recipe.seed, number, turn), device),
        device=device,
        keeps_gradients=True,
    )
    with flushed_denormals(), restored(trainee.held, trainee.optimiser) as reset:
        warm(trainee, reset)
        measured = measure(trainee, warm_up, repeats, most or LONGEST * repeats, device_name(device))
    return replace(measured, batch=replica.batch_size)


def _told_apart(segments: Iterable[nn.Module]) -> list[nn.Module]:
    """Return the segments, in a wrapper each that is called before already, so that its first call here is seen."""
    places: list[nn.Module] = []
    called: set[nn.Module] = set()
    for segment in segments:
        places.append(nn.Sequential(segment) if segment in called else segment)
        called.update(segment.modules())
    return places
