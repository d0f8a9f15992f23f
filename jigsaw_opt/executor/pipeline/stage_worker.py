"""The stages of one process with their optimiser and data: what trains, and what a checkpoint holds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from jigsaw_opt.errors import UsageError
from jigsaw_opt.executor.models.model_call import arguments_of, inputs_and_targets
from jigsaw_opt.executor.models.zoo.network import moved
from jigsaw_opt.executor.pipeline.own_stages import OwnStages, StageModules
from jigsaw_opt.executor.randomness import begin_draws, draw_number, own_draws
from jigsaw_opt.executor.worker import Trainer, parameters_sha256


class StageWorker(Trainer):
    """The part of a pipeline that one process trains.

    What it draws depends on seed, process and iteration alone, and the batch of an iteration is the same everywhere.
    """

    model: StageModules

    def __init__(self, number: int, own: OwnStages, seed: int, device: torch.device) -> None:
        super().__init__(number, own.model, own.optimiser, device, own.source, own.schedule)
        self.loss, self._batches, self._seed, self._samples = own.loss, own.source, seed, 0

    def begin(self, micro_batches: int, number: int | None = None) -> tuple[tuple[Any, ...], Any]:
        """Clear the gradients; return what the first stage takes, and the targets, of the next batch.

        `number`: number of the batch; None for that of the next step.
        """
        number = self.iteration if number is None else number
        self.optimiser.zero_grad()
        self.model.zero_grad()
        with own_draws(draw_number(self._seed, 0, number)):
            inputs, targets = inputs_and_targets(moved(self._batches.take(), self.device), False)
        given, named = arguments_of(inputs)
        sizes = {len(target) if isinstance(target, Tensor) and target.dim() else -1 for target in (*given, targets)}
        if named or len(sizes) != 1 or sizes == {-1}:
            raise UsageError(
                "a pipeline takes batches of inputs, one tensor or several, and targets, a tensor of as many samples",
                code="wrong-type",
                path="batch",
            )
        if (size := sizes.pop()) % micro_batches:
            message = f"a batch has {size} samples, which {micro_batches} micro-batches do not divide"
            raise UsageError(message, code="mismatch", path="batch")
        self._samples = self._samples or size
        if size != self._samples:
            raise UsageError(
                f"a batch has {size} samples, and the first one had {self._samples}: batches of a job in stages are of "
                "one size, so leave out a smaller last one (drop_last=True of a DataLoader)",
                code="mismatch",
                path="batch",
            )
        begin_draws(draw_number(self._seed, 1 + self.number, number))
        return given, targets

    def end(self) -> None:
        """Take the optimiser's step."""
        self.update()
        self.iteration += 1

    def digests(self) -> dict[int, str]:
        """Return for each stage the digest of its trained parameters."""
        return {stage: parameters_sha256(module) for stage, module in self.model.own.items()}
