"""A stage that keeps the weights of each minibatch in flight, as PipeDream does (Narayanan et al., SOSP'19, 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from jigsaw_opt.errors import UsageError

__all__ = ["StashedStage"]


@dataclass(frozen=True, slots=True)
class _InFlight:
    """A minibatch between its passes: the version of the weights, these, what came in, and what went out."""

    version: int
    weights: dict[str, Tensor]
    inputs: tuple[Tensor, ...]
    output: Tensor


class StashedStage:
    """A stage whose backward pass sees the weights that its forward pass saw, whatever was updated meanwhile.

    `module`: the stage; its parameters are the latest weights. `update`: takes the step with the gradients of the
    module's parameters. `is_first`: whether nobody wants the gradient of its input. `most_versions`: the most versions
    of the weights that were kept at once.
    """

    def __init__(self, module: nn.Module, update: Callable[[], None], is_first: bool) -> None:
        self._module, self._update, self._is_first = module, update, is_first
        self.version = self.most_versions = 0
        self._flying: dict[int, _InFlight] = {}

    def forward(self, number: int, inputs: tuple[Any, ...], loss: Callable[[Tensor], Tensor] | None) -> Tensor:
        """Run the forward pass of a minibatch with the latest weights, and keep them.

        The output of the stage; at the last stage the loss.

        `loss`: loss of its output, at the last stage; None elsewhere.
        """
        weights = next((flight.weights for flight in self._flying.values() if flight.version == self.version), None)
        if weights is None:
            named = self._module.named_parameters()
            weights = {name: p.detach().clone().requires_grad_(p.requires_grad) for name, p in named}
        if not self._is_first:
            inputs = tuple(input_.detach().requires_grad_(input_.is_floating_point()) for input_ in inputs)
        output = functional_call(self._module, weights, inputs)
        if not isinstance(output, Tensor):
            raise UsageError(
                f"a stage hands on a tensor, not an object of type {type(output).__name__}", code="wrong-type"
            )
        output = output if loss is None else loss(output)
        self._flying[number] = _InFlight(self.version, weights, inputs, output)
        self.most_versions = max(self.most_versions, len({flight.version for flight in self._flying.values()}))
        return output

    def backward(self, number: int, gradient: Tensor | None) -> tuple[int, Tensor | None]:
        """Run the backward pass of a minibatch with the weights that were kept for it, and update the latest ones.

        How many updates the weights had that it was run with; The gradient of the stage's input; None at the first
        stage.

        `gradient`: gradient of the stage's output; None at the last stage.
        """
        kept = self._flying.pop(number)
        trained = [name for name, weight in kept.weights.items() if weight.requires_grad]
        wanted = [] if self._is_first else [kept.inputs[0]]
        found = torch.autograd.grad(
            kept.output, [*wanted, *(kept.weights[name] for name in trained)], gradient, allow_unused=True
        )
        parameters = dict(self._module.named_parameters())
        for name, own in zip(trained, found[len(wanted) :], strict=True):
            parameters[name].grad = own
        self._update()
        self.version += 1
        return kept.version, found[0] if wanted else None
