"""Which outputs of a module require a gradient in a forward pass in which no parameter is frozen."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from jigsaw_opt.executor.partial.forward_order import undisturbed_outputs
from jigsaw_opt.executor.partial.outputs import mapped, placed

__all__ = ["GradientNeeds"]

_Places = frozenset[tuple[Any, ...]]


class GradientNeeds:
    """What is known of the outputs of one module; metrics and detached features require no gradient in any pass.

    Outputs at the same places, of inputs that require gradients alike, are taken to be alike.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, _Places] = {}

    def learn(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        """Note which outputs of a whole forward pass require a gradient."""
        self._known[_kind(module, inputs, outputs)] = frozenset(at for at, out in placed(outputs) if out.requires_grad)

    def anchored(
        self,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        outputs: Any,
        hook: Callable[[Tensor], None],
    ) -> Any:
        """Return outputs from which a backward pass can start wherever it can at full depth.

        What requires a gradient in a whole pass alone gets an anchor: a leaf of its own that changes no bit of it.
        """
        lacking = {place: value for place, value in placed(outputs) if _can_lack_a_graph(value)}
        if not lacking:
            return outputs
        places = self._places(module, args, kwargs, outputs)
        needing = {id(value) for place, value in lacking.items() if place in places}

        def anchored(value: Tensor) -> Tensor:
            if id(value) not in needing:
                return value
            anchor = torch.full((), -0.0, dtype=value.dtype, device=value.device, requires_grad=True)
            anchor.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
            return value + anchor  # minus zero changes no bit of it

        return mapped(outputs, anchored)

    def _places(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], outputs: Any) -> _Places:
        """Return the places of outputs that require a gradient in a whole forward pass; run it if none was."""
        kind = _kind(module, (args, kwargs), outputs)
        if kind not in self._known:
            self.learn(module, (args, kwargs), undisturbed_outputs(module, args, kwargs))
            # A pass that gives other outputs says nothing of these: all of them may require a gradient.
            self._known.setdefault(kind, frozenset(at for at, _ in placed(outputs)))
        return self._known[kind]


def _can_lack_a_graph(value: Tensor) -> bool:
    return not value.requires_grad and (value.is_floating_point() or value.is_complex())


def _kind(module: nn.Module, inputs: Any, outputs: Any) -> Hashable:
    return (
        module.training,
        tuple(value.requires_grad for _, value in placed(inputs)),
        tuple(at for at, _ in placed(outputs)),
    )
