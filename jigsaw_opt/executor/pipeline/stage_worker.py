"""The stages of one process with their optimiser and data: what trains, and what a checkpoint holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from jigsaw_opt.errors import UsageError, mismatch
from jigsaw_opt.executor.models.importing import blame_own_code, own_function
from jigsaw_opt.executor.models.model_call import arguments_of, inputs_and_targets
from jigsaw_opt.executor.models.zoo.network import moved
from jigsaw_opt.executor.pipeline.agreement import compare_modules
from jigsaw_opt.executor.pipeline.own_stages import StageModules, stage_modules
from jigsaw_opt.executor.randomness import begin_draws, draw_number, own_draws
from jigsaw_opt.executor.schedules.request import ReplaySettings
from jigsaw_opt.executor.user_code.batch_source import BatchSource
from jigsaw_opt.executor.user_code.given import given_stages
from jigsaw_opt.executor.worker import OPTIMISERS, Trainer
from jigsaw_opt.problem.rules.report import Place


class StageWorker(Trainer):
    """The part of a pipeline that one process trains.

    What it draws depends on seed, process and iteration alone, and the batch of an iteration is the same everywhere.

    `entry, place`: the `executor` entry of the job, and where it stands; its function is trusted, and is called in all
    processes from the same random numbers. `number, processes`: of how many it is which one. `own, stages`: numbers of
    the stages here, and of how many. `notes`: what is to be told of the model. `loss`: that of outputs and targets.
    """

    model: StageModules
    source: BatchSource

    def __init__(
        self,
        entry: Mapping[str, Any],
        place: Place,
        number: int,
        processes: int,
        device: torch.device,
        own: Sequence[int],
        stages: int,
        settings: ReplaySettings,
    ) -> None:
        name, given = entry["train"], {"rank": number, "world": processes, "device": device, **entry["arguments"]}
        function = own_function(name, given, place)
        with own_draws(draw_number(settings.seed, 0, 0)), blame_own_code(name):
            found = given_stages(name, function(**given))
            modules, names = stage_modules(name, found.model, entry["cuts"], stages, found.loader)
            parts = entry.get("parts")
            self.notes = compare_modules(name, modules, parts) if parts else list[str]()
            model = StageModules({stage: modules[stage].to(device) for stage in own}, names)
            self.loss = found.loss.to(device) if isinstance(found.loss, nn.Module) else found.loss
            optimiser = found.optimiser
            trained = [p for p in model.parameters() if p.requires_grad]
            if optimiser is None:
                optimiser = OPTIMISERS[settings.optimiser]([{"params": trained}], **settings.options)
            elif not isinstance(optimiser, Optimizer):
                optimiser = optimiser(trained)
            super().__init__(number, model, optimiser, device, BatchSource(found.loader, device), found.schedule)
        self._seed, self._samples = settings.seed, 0

    def begin(self, micro_batches: int, number: int | None = None) -> tuple[tuple[Any, ...], Any]:
        """Clear the gradients; return what the first stage takes, and the targets, of the next batch.

        `number`: number of the batch; None for that of the next step.
        """
        number = self.iteration if number is None else number
        self.optimiser.zero_grad()
        self.model.zero_grad()
        with own_draws(draw_number(self._seed, 0, number)):
            inputs, targets = inputs_and_targets(moved(self.source.take(), self.device), False)
        given, named = arguments_of(inputs)
        sizes = {len(target) if isinstance(target, Tensor) and target.dim() else -1 for target in (*given, targets)}
        if named or len(sizes) != 1 or sizes == {-1}:
            raise UsageError(
                "a pipeline takes batches of inputs, one tensor or several, and targets, a tensor of as many samples",
                code="wrong-type",
                path="batch",
            )
        if (size := sizes.pop()) % micro_batches:
            raise mismatch("batch", f"a batch has {size} samples, which {micro_batches} micro-batches do not divide")
        self._samples = self._samples or size
        if size != self._samples:
            raise mismatch(
                "batch",
                f"a batch has {size} samples, and the first one had {self._samples}: batches of a job in stages are of "
                "one size, so leave out a smaller last one (drop_last=True of a DataLoader)",
            )
        begin_draws(draw_number(self._seed, 1 + self.number, number))
        return given, targets

    def end(self) -> None:
        """Take the optimiser's step."""
        self.update()
        self.iteration += 1
