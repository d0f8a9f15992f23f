"""A model under measurement, and real training steps of it at any level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from jigsaw_opt.errors import out_of_range, unsupported
from jigsaw_opt.executor.devices import work_us
from jigsaw_opt.executor.models.leveled_model import frozen
from jigsaw_opt.executor.partial.forward_order import first_calls
from jigsaw_opt.executor.partial.parts import ModelParts


@dataclass(frozen=True)
class Trainee:
    """A model that is measured, with all that trains it.

    `names`: names of the segments, from the input to the output. `starts`: modules at whose first calls the second
    segment, the third and so on begin. `parts`: which parameters belong to which segment; the first one is the last
    bucket. `held`: the model, and the loss if it is a module. `loss`: runs the model on a batch and returns the loss.
    `draw`: returns the batch of a round, on the device. `keeps_gradients`: whether gradients are cleared in place, or
    new ones each time. `root`: the model whose paths name its modules to the user; None where they mean nothing to him.
    """

    names: tuple[str, ...]
    starts: Sequence[nn.Module]
    parts: ModelParts
    held: nn.Module
    loss: Callable[[Any], Tensor]
    optimiser: torch.optim.Optimizer
    draw: Callable[[int], Any]
    device: torch.device
    keeps_gradients: bool = False
    root: nn.Module | None = None

    @property
    def depth(self) -> int:
        """Number of segments, and of levels."""
        return len(self.names)

    def own_parameters(self) -> list[list[nn.Parameter]]:
        """Return the trained parameters of each segment."""
        own: list[list[nn.Parameter]] = [[] for _ in self.names]
        for parameter, bucket in self.parts.buckets.items():
            if parameter.requires_grad:
                own[-bucket].append(parameter)
        return own

    def entering(self, enter: Callable[[int, Any], object]) -> AbstractContextManager[None]:
        """Call `enter` with the index and the inputs of each segment, the first one excepted, as it begins."""
        return first_calls(enumerate(self.starts, 1), enter)

    def state_bytes(self) -> int:
        """Return the bytes of weights, buffers, gradients, and the optimiser's state but for its counters."""
        gradients = [p for own in self.own_parameters() for p in own]
        kept = [t for t in tree_leaves(list(self.optimiser.state.values())) if isinstance(t, Tensor) and t.dim()]
        state = {id(tensor): tensor for tensor in kept}.values()
        return sum(t.nbytes for t in (*self.held.parameters(), *self.held.buffers(), *gradients, *state))


class Training:
    """Real steps: each block takes the step with the gradients of the block before, as a worker does.

    What a level does not reach has the gradient 0, as though others had sent it: every step is one of all parameters.
    """

    def __init__(self, trainee: Trainee) -> None:
        self.trainee, self.round = trainee, 0
        self._trained = [p for own in trainee.own_parameters() for p in own]
        self._zeros: dict[nn.Parameter, Tensor] = {}
        self._losses: list[Tensor] = []
        self._is_step_due = False

    def block(self, level: int) -> tuple[float, float]:
        """Run a block; return the microseconds of the optimiser's step, and of the rest."""
        device = self.trainee.device
        start = work_us(device)
        self.step()
        middle = work_us(device)
        self.pass_to(level, self.trainee.keeps_gradients)
        return middle - start, work_us(device) - middle

    def step(self) -> None:
        """Take the optimiser's step that is still due."""
        if self._is_step_due:
            self.trainee.optimiser.step()
            self._is_step_due = False

    def pass_to(self, level: int, keep: bool) -> None:
        """Run the forward pass, and the backward pass to a level.

        `keep`: whether gradients are set to zero in place, rather than removed, before the pass.
        """
        batch = self.trainee.draw(self.round)
        self.trainee.optimiser.zero_grad(set_to_none=not keep)
        with frozen(self.trainee.parts.beyond(level)):
            loss = self.trainee.loss(batch)
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
            elif level == self.trainee.depth:  # at others there may be nothing to train behind the cut
                message = "the loss has no gradient: no trained parameter is used, or a graph is cut off"
                raise unsupported("loss", message)
        self._losses.append(loss.detach())
        for parameter in self._trained:
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
            rates = ", ".join(
                f"{float(group['lr']):g}" for group in self.trainee.optimiser.param_groups if "lr" in group
            )
            message = f"the loss is no number any more; the optimiser's learning rate is {rates or 'not told'}"
            raise out_of_range("loss", message)
