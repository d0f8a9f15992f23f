"""The stages of one process with their optimiser and data: what trains, and what a checkpoint holds."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from jigsaw_opt.errors import UsageError
from jigsaw_opt.executor.models.model_call import arguments_of, inputs_and_targets
from jigsaw_opt.executor.models.zoo.network import moved
from jigsaw_opt.executor.pipeline.own_stages import OwnStages
from jigsaw_opt.executor.randomness import begin_draws, draw_number, own_draws
from jigsaw_opt.executor.user_code.likeness import ANYTHING
from jigsaw_opt.executor.worker import copied, parameters_sha256


class StageWorker:
    """The part of a pipeline that one process trains.

    What it draws depends on seed, process and iteration alone, and the batch of an iteration is the same everywhere.
    """

    def __init__(self, number: int, own: OwnStages, seed: int, device: torch.device) -> None:
        self.number, self.own, self.iteration = number, own, 0
        self._seed, self._device, self._samples = seed, device, 0

    def begin(self, micro_batches: int, number: int | None = None) -> tuple[tuple[Any, ...], Any]:
        """Clear the gradients; return what the first stage takes, and the targets, of the next batch.

        `number`: number of the batch; None for that of the next step.
        """
        number = self.iteration if number is None else number
        self.own.optimiser.zero_grad()
        for module in self.own.modules.values():
            module.zero_grad()
        with own_draws(draw_number(self._seed, 0, number)):
            inputs, targets = inputs_and_targets(moved(self.own.source.take(), self._device), False)
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
        self.own.optimiser.step()
        if self.own.schedule is not None:
            self.own.schedule.step()
        self.iteration += 1

    def state(self) -> dict[str, Any]:
        """Return all that training depends on, copied to the CPU: parameters and buffers under the model's names."""
        optimiser, schedule = self.own.optimiser.state_dict(), self.own.schedule
        whole = {"iteration": self.iteration, "model": self._model(), "optimiser": optimiser}
        whole |= {"loader": self.own.source.state()}
        whole |= {} if schedule is None else {"schedule": schedule.state_dict()}
        copies: dict[tuple[object, ...], Tensor] = {}
        return {name: copied(part, copies) for name, part in whole.items()}

    def trained_state(self, iteration: int) -> dict[str, Any]:
        """Return what `state` gives after so many iterations, but for the values of the tensors."""
        schedule = {} if self.own.schedule is None else {"schedule": ANYTHING}
        optimiser = dict.fromkeys(self.own.optimiser.state_dict(), ANYTHING)
        loader = self.own.source.likeness()
        return {"iteration": iteration, "model": self._model(), "optimiser": optimiser, "loader": loader, **schedule}

    def load(self, state: Mapping[str, Any]) -> None:
        """Return to a `state`."""
        for stage, module in self.own.modules.items():
            module.load_state_dict({key: state["model"][self.own.names[stage] + key] for key in module.state_dict()})
        self.own.optimiser.load_state_dict(deepcopy(state["optimiser"]))
        self.own.source.load(state["loader"])
        if self.own.schedule is not None:
            self.own.schedule.load_state_dict(deepcopy(state["schedule"]))
        self.iteration = state["iteration"]

    def held_bytes(self) -> int:
        """Return bytes of parameters, buffers, gradients, and of what the optimiser keeps, as they are now."""
        tensors: list[Tensor] = []
        for module in self.own.modules.values():
            for parameter in module.parameters():
                kept = self.own.optimiser.state.get(parameter, {}).values()
                tensors += [parameter, *(value for value in kept if isinstance(value, Tensor) and value.dim())]
                tensors += [parameter.grad] if parameter.grad is not None else []
            tensors += module.buffers()
        return sum(tensor.nbytes for tensor in tensors)

    def digests(self) -> dict[int, str]:
        """Return for each stage the digest of its trained parameters."""
        return {stage: parameters_sha256(module) for stage, module in self.own.modules.items()}

    def _model(self) -> dict[str, Any]:
        named = ((self.own.names[stage], module) for stage, module in self.own.modules.items())
        return {before + key: value for before, module in named for key, value in module.state_dict().items()}
