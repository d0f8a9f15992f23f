"""A model under measurement, and real training steps of it at any level."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from jigsaw_opt.errors import out_of_range
from jigsaw_opt.executor.devices import work_us
from jigsaw_opt.executor.models.leveled_model import LeveledModel


@dataclass
class Trainee:
    """A model that is measured, with real steps: each block takes that with the gradients of the block before.

    What a level does not reach has the gradient 0, as though others had sent it: every step is one of all parameters.

    `draw`: returns the batch of a round, on the device. `keeps_gradients`: whether gradients are cleared in place, or
    new ones each time. `root`: the model whose paths name its modules to the user; None where they mean nothing to him.
    """

    model: LeveledModel
    optimiser: torch.optim.Optimizer
    draw: Callable[[int], Any]
    device: torch.device
    keeps_gradients: bool = False
    root: nn.Module | None = None
    round: int = 0
    _zeros: dict[nn.Parameter, Tensor] = field(default_factory=dict)
    _losses: list[Tensor] = field(default_factory=list)
    _is_step_due: bool = False

    def state_bytes(self) -> int:
        """Return the bytes of weights, buffers, gradients, and the optimiser's state but for its counters."""
        gradients = self.model.beyond(0)
        kept = [t for t in tree_leaves(list(self.optimiser.state.values())) if isinstance(t, Tensor) and t.dim()]
        state = {id(tensor): tensor for tensor in kept}.values()
        return sum(t.nbytes for t in (*self.model.parameters(), *self.model.buffers(), *gradients, *state))

    def block(self, level: int) -> tuple[float, float]:
        """Run a block; return the microseconds of the optimiser's step, and of the rest."""
        start = work_us(self.device)
        self.step()
        middle = work_us(self.device)
        self.pass_to(level, self.keeps_gradients)
        return middle - start, work_us(self.device) - middle

    def step(self) -> None:
        """Take the optimiser's step that is still due."""
        if self._is_step_due:
            self.optimiser.step()
            self._is_step_due = False

    def pass_to(self, level: int, keep: bool) -> None:
        """Run the forward pass, and the backward pass to a level.

        `keep`: whether gradients are set to zero in place, rather than removed, before the pass.
        """
        batch = self.draw(self.round)
        self.optimiser.zero_grad(set_to_none=not keep)
        self._losses.append(self.model.backpropagate(batch, level))
        for parameter in self.model.beyond(0):
            if parameter.grad is None:
                parameter.grad = self._zeros.get(parameter)
            elif parameter not in self._zeros and not keep:
                self._zeros[parameter] = torch.zeros_like(parameter.grad)
        self._is_step_due = True

    def losses(self) -> list[float]:
        """Return the losses since the last call."""
        found = [float(loss) for loss in self._losses]
        self._losses.clear()
        return found

    def require_numbers(self) -> None:
        """Raise `UsageError` if a loss since the last call is no number."""
        if not all(map(isfinite, self.losses())):
            rates = ", ".join(f"{float(group['lr']):g}" for group in self.optimiser.param_groups if "lr" in group)
            message = f"the loss is no number any more; the optimiser's learning rate is {rates or 'not told'}"
            raise out_of_range("loss", message)
