"""What a smaller batch saves, and gradient noise in a training of several workers that one process carries out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from jigsaw_opt.executor.devices import spread
from jigsaw_opt.executor.models.building import Replica
from jigsaw_opt.executor.models.leveled_model import LeveledModel
from jigsaw_opt.executor.models.zoo.network import moved
from jigsaw_opt.executor.partial.noise import GradientNoise, NoiseEstimate, squared_length
from jigsaw_opt.executor.profiling.restoring import restored
from jigsaw_opt.executor.profiling.trainee import Trainee
from jigsaw_opt.executor.worker import TrainingRecipe


@dataclass(frozen=True, slots=True)
class NoiseRun:
    """A training at full depth that is measured.

    `workers`: at least 2, each with batches of its own. `rate`: learning rate; None for the optimiser's own.
    """

    iterations: int
    workers: int
    rate: float | None = None

    def measure(
        self, model: LeveledModel, optimiser: torch.optim.Optimizer, draw: Callable[[int, int], Any]
    ) -> NoiseEstimate:
        """Train, and return the gradient noise, to which all iterations contribute alike.

        `draw`: returns the batch of a worker in an iteration, both from 0, on the device.
        """
        if self.rate is not None:
            for group in optimiser.param_groups:
                group["lr"] = self.rate
        noise = GradientNoise(model.depth, keep=1)
        for iteration in range(self.iterations):
            average_gradients(model, [draw(worker, iteration) for worker in range(self.workers)], noise)
            optimiser.step()
        return noise.estimate()

    def of_replica(self, replica: Replica, recipe: TrainingRecipe, device: torch.device) -> NoiseEstimate:
        """Return the gradient noise of a network in units, which is afterwards as it was."""
        model = replica.model.to(device)
        optimiser = recipe.optimiser_of(model)
        with restored(model, optimiser):
            return self.measure(
                model, optimiser, lambda worker, turn: moved(replica.batch(recipe.seed, worker, turn), device)
            )


def fixed_share(
    trainee: Trainee, draw_half: Callable[[int], Any], samples: int | None, warm_up: int, repeats: int
) -> float | None:
    """Return the share of a block's time at full depth that does not fall with the batch, from 0 to 1.

    It is where a line through the median times of blocks with the whole batch and with half of it, by turns, comes to
    no samples. None where the model takes no half, or the batch has none.

    `draw_half`: returns half of the batch of a round, rounded down, on the device. `samples`: those of the whole batch,
    None where they are not known. `warm_up, repeats`: rounds before measuring, at least 1, and rounds measured.
    """
    if samples is None or samples < 2:
        return None
    draw_whole, times = trainee.draw, list[list[float]]()
    try:
        for turn in range(warm_up + repeats):
            trainee.round, row = turn, []
            for draw in (draw_whole, draw_half):
                trainee.draw = draw
                row.append(sum(trainee.block(trainee.model.depth)))
            times.append(row)
    except Exception:  # noqa: BLE001 # models may raise anything at a size that they are not made for
        return None
    finally:
        trainee.draw = draw_whole
    whole, half = (spread(own).median for own in zip(*times[warm_up:], strict=True))
    return min(1.0, max(0.0, 1 - (1 - half / whole) * samples / (samples - samples // 2)))


def average_gradients(model: LeveledModel, batches: Sequence[Any], noise: GradientNoise) -> None:
    """Write the mean of the workers' gradients at full depth, one batch each, and tell of their noise."""
    sums = [[torch.zeros_like(p, requires_grad=False) for p in own] for own in model.buckets]
    squares = [0.0] * model.depth
    for batch in batches:
        for parameter in model.beyond(0):
            parameter.grad = None
        model.backpropagate(batch, model.depth)
        for at, (own, totals) in enumerate(zip(model.buckets, sums, strict=True)):
            for parameter, total in zip(own, totals, strict=True):
                if parameter.grad is not None:
                    squares[at] += squared_length(parameter.grad)
                    total += parameter.grad
    for bucket, (own, totals, square) in enumerate(zip(model.buckets, sums, squares, strict=True), 1):
        for parameter, total in zip(own, totals, strict=True):
            parameter.grad = total.div_(len(batches))
        noise.observe(bucket, len(batches), square / len(batches), totals)
