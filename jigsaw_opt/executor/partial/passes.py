"""The passes of a wrapped module: a forward pass, and a backward pass under way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from jigsaw_opt.errors import wrong_order
from jigsaw_opt.executor.partial.averaging import GradientAverage


@dataclass(frozen=True, eq=False)
class ForwardPass:
    """A forward pass, with what it has fixed for the backward pass that follows.

    `iteration`: the iteration to which it belongs. `beyond`: trained parameters that this worker's level does not
    reach. `unreached`: those of them that no worker's level reaches. `synchronise`: whether gradients are averaged
    after it.
    """

    iteration: int
    levels: tuple[int, ...]
    beyond: list[nn.Parameter]
    unreached: list[nn.Parameter]
    synchronise: bool


def of_unseen_outputs(pending: Sequence[ForwardPass]) -> ForwardPass | None:
    """Return the latest of the passes that wait for a backward pass, or None: that of outputs in unknown objects."""
    if len({forward.synchronise for forward in pending}) > 1:
        raise wrong_order(
            "outputs",
            "a backward pass begins from an output that is in no tuple, list, dictionary or dataclass, after "
            "forward passes with and without no_sync(): do the backward pass of each before the next one",
        )
    return pending[-1] if pending else None


class UpdateWatch:
    """A guard against updates of parameters within a backward pass, when gradients are not averaged yet."""

    def __init__(self, trained: Sequence[nn.Parameter]) -> None:
        self._trained, self._set = trained, frozenset(trained)
        self._versions = self._count()
        self.remove = register_optimizer_step_pre_hook(self._refuse_step).remove

    def _count(self) -> int:
        return sum(p._version for p in self._trained)

    def _refuse_step(self, optimiser: torch.optim.Optimizer, *_: object) -> None:
        if any(p in self._set for group in optimiser.param_groups for p in group["params"]):
            message = "an optimiser stepped before gradients were averaged: optimisers step after backward()"
            raise wrong_order("optimiser", message)

    def require_unchanged(self) -> None:
        """Raise `UsageError` if a parameter has been changed in place; changes of its `data` are not seen."""
        if self._count() != self._versions:
            message = "a hook changed parameters before gradients were averaged: do that after backward()"
            raise wrong_order("parameters", message)


@dataclass
class BackwardPass:
    """A backward pass under way.

    `average`: its exchange; None before the first gradient, and where there is none. `frozen`: what is frozen until it
    ends. `earlier`: gradients of earlier backward passes, of parameters that no worker reaches; they are put back when
    it ends. `watch`: what sees that nothing updates the parameters meanwhile. `end`: called when it has ended, well or
    not.
    """

    forward: ForwardPass
    average: GradientAverage | None = None
    reached: bool = False
    frozen: list[nn.Parameter] = field(default_factory=list)
    earlier: dict[nn.Parameter, Tensor] = field(default_factory=dict)
    watch: UpdateWatch | None = None
    end: Callable[[], object] = field(default=lambda: None)

    def begin(self, watched: Sequence[nn.Parameter]) -> None:
        """Freeze what the forward pass froze, for checkpointing runs parts of it again; refuse updates of `watched`."""
        if watched:
            self.watch = UpdateWatch(watched)
        self._set_earlier_aside()
        self.frozen = [p for p in self.forward.beyond if p.requires_grad]
        for parameter in self.frozen:
            parameter.requires_grad_(False)

    def restore(self) -> None:
        """Set free what was frozen, whether the backward pass has ended well or not."""
        for parameter in self.frozen:
            parameter.requires_grad_(True)
        for parameter in self.forward.unreached:  # what no worker reaches has no other gradient
            parameter.grad = self.earlier.get(parameter)
        if self.watch is not None:
            self.watch.remove()

    def _set_earlier_aside(self) -> None:
        """Take away the gradients of parameters that no worker reaches; zeros, as `zero_grad` may leave them, for good.

        As in `DistributedDataParallel`, gradients add up until someone clears them.
        """
        held = {p: p.grad for p in self.forward.unreached if p.grad is not None}
        if held:
            is_there = torch.stack([grad.any().cpu() for grad in held.values()]).tolist()
            self.earlier = {p: grad for (p, grad), is_any in zip(held.items(), is_there, strict=True) if is_any}
        for parameter in held:
            parameter.grad = None
