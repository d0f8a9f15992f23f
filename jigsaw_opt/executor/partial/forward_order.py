"""The order in which a forward pass calls modules and uses parameters, and when a backward pass has their gradients.

Parameters are seen where operations get them, not where modules hold them: a table that a function reads directly, or
that two modules share, has the place of its first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, chain, count
from traceback import walk_stack
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.checkpoint import CheckpointFunction

from jigsaw_opt.executor.devices import wall_us
from jigsaw_opt.executor.models.leveled_model import first_calls, frozen
from jigsaw_opt.executor.partial.outputs import tensors
from jigsaw_opt.executor.randomness import own_draws

TIMED = 3
"""Backward passes that are timed, after one that is not."""


@dataclass
class ForwardOrder:
    """The record of a forward pass, and of the backward passes that were timed.

    `calls`: moment of the first call of each module that was called, by name; ascending. `uses`: moment of the first
    use of each parameter that was used; ascending. Moments of calls and uses are distinct. `gradients_us`: microseconds
    from the begin of a backward pass to the gradient of each trained parameter; ascending. `end_us`: microseconds from
    the begin of that pass to its end; 0 where there is none to time, for no output has a graph. `is_reentrant`: whether
    parameters were used in activation checkpointing with ``use_reentrant=True``. `raising`: modules that made an output
    require a gradient of their own accord, where no parameter did.
    """

    calls: dict[str, int] = field(default_factory=dict)
    uses: dict[nn.Parameter, int] = field(default_factory=dict)
    gradients_us: dict[nn.Parameter, float] = field(default_factory=dict)
    end_us: float = 0.0
    is_reentrant: bool = False
    raising: list[nn.Module] = field(default_factory=list)


class _FirstUses(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes in `order` the moment when an operation first gets each of `parameters`."""

    def __init__(self, parameters: Iterator[nn.Parameter], clock: Iterator[int], order: ForwardOrder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._unused, self._clock, self._order = set(parameters), clock, order

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for value in tree_leaves((args, kwargs)):
            if isinstance(value, nn.Parameter) and value in self._unused:
                self._unused.remove(value)
                self._order.uses[value] = next(self._clock)
                self._order.is_reentrant |= not torch.is_grad_enabled() and _is_in_reentrant_checkpoint()
        return func(*args, **(kwargs or {}))


def eager(model: nn.Module) -> nn.Module:
    """Return the module that `torch.compile` was given, or `model` itself."""
    return getattr(model, "_orig_mod", model)


def observe(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], is_timed: bool = True) -> ForwardOrder:
    """Run a forward pass to see the order, and some more with backward passes to time these.

    Parameters, buffers, generators and gradients stay as they were.

    Modules and parameters in the order of their first use, and times of the backward pass in microseconds.
    """
    model, order = eager(model), ForwardOrder()
    clock = count()
    copies = _copied((args, kwargs))
    with undisturbed(model), torch.compiler.set_stance("force_eager"):
        with (
            frozen([p for p in model.parameters() if p.requires_grad]),
            first_calls(model.named_modules(), lambda name, _: order.calls.setdefault(name, next(clock))),
            _FirstUses(model.parameters(), clock, order),
            _raised(model, copies, order.raising),
        ):
            model(*copies[0], **copies[1])
        if is_timed and not order.is_reentrant:  # such a checkpoint gives no gradients but to backward()
            passes = [_backward_moments(model, *_copied((args, kwargs))) for _ in range(1 + TIMED)]
            order.gradients_us, order.end_us = _undelayed(passes[1:])
            torch.clear_autocast_cache()
    return order


def undisturbed_outputs(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the outputs of one more forward pass, which leaves everything as it was, as `observe` does."""
    model = eager(model)
    copies = _copied((args, kwargs))
    with undisturbed(model), torch.compiler.set_stance("force_eager"):
        return model(*copies[0], **copies[1])


def _backward_moments(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[dict[nn.Parameter, float], float]:
    """Return when a backward pass has the gradient of each trained parameter, and when it ends; it changes none."""
    trained = [p for p in model.parameters() if p.requires_grad]
    # Autocast keeps weights in their other type, with the graph of the pass that made them, as long as its block lasts:
    # the next pass would get all their gradients last.
    torch.clear_autocast_cache()
    with own_draws(0):
        outputs = [value for value in tensors(model(*args, **kwargs)) if value.grad_fn is not None]
    if not outputs or not trained:
        return {}, 0.0
    moments: dict[nn.Parameter, float] = {}
    device = trained[0].device
    with ExitStack() as stack:
        for parameter in trained:

            def note(_: Tensor, parameter: nn.Parameter = parameter) -> None:
                moments[parameter] = wall_us(device) - begin_us

            stack.callback(parameter.register_hook(note).remove)  # type: ignore[no-untyped-call]
        begin_us = wall_us(device)
        torch.autograd.grad(outputs, trained, [torch.ones_like(value) for value in outputs], allow_unused=True)
        end_us = wall_us(device) - begin_us
    return moments, end_us


def _undelayed(passes: Sequence[tuple[dict[nn.Parameter, float], float]]) -> tuple[dict[nn.Parameter, float], float]:
    """Return the moments of a pass none of whose steps is delayed: each takes as little as in any of `passes`."""
    first = min(passes, key=lambda found: found[1])[0]
    known = [p for p in first if all(p in moments for moments, _ in passes)]
    rows = [[0.0, *(moments[p] for p in known), end_us] for moments, end_us in passes]
    steps = [min(max(0.0, there[at + 1] - there[at]) for there in rows) for at in range(len(known) + 1)]
    *moments_us, end_us = accumulate(steps)
    return dict(zip(known, moments_us, strict=True)), end_us


def _is_in_reentrant_checkpoint() -> bool:
    frames = (frame for frame, _ in walk_stack(None))
    return any(frame.f_code is CheckpointFunction.forward.__code__ for frame in frames)


@contextmanager
def _raised(model: nn.Module, inputs: Any, raising: list[nn.Module]) -> Iterator[None]:
    """Add to `raising` the modules that give leaves which require a gradient and are none of the inputs."""
    given = list(tensors(inputs))

    def hook(module: nn.Module, _: object, outputs: Any) -> None:
        if module not in raising and any(is_raised(value, given) for value in tensors(outputs)):
            raising.append(module)

    with ExitStack() as stack:
        for module in model.modules():
            stack.callback(module.register_forward_hook(hook).remove)
        yield


def is_raised(value: Tensor, inputs: list[Tensor]) -> bool:
    """Return whether a tensor was made to require a gradient within a model that has these inputs."""
    is_made_here = not isinstance(value, nn.Parameter) and all(value is not given for given in inputs)
    return value.requires_grad and value.is_leaf and is_made_here


@contextmanager
def undisturbed(
    model: nn.Module, others: Iterable[Tensor] = (), place: torch.device | None = None
) -> Iterator[Callable[[], None]]:
    """Put parameters, buffers, other tensors and random generators back; yield what puts back all but the generators.

    `place`: where copies are held; None for where each tensor is.
    """
    holders: Iterator[dict[str, Any]] = chain.from_iterable((m._parameters, m._buffers) for m in model.modules())
    held = [(own, dict(own)) for own in holders]
    own = dict.fromkeys(tensor for _, kept in held for tensor in kept.values() if tensor is not None)
    copies = {t: t.detach().to(place or t.device, copy=True) for t in own | dict.fromkeys(others)}
    devices = sorted({tensor.device.index for tensor in copies if tensor.device.type == "cuda"})

    def put_back() -> None:
        for now, kept in held:
            now.update(kept)
        for tensor, value in copies.items():
            tensor.data.copy_(value)

    with torch.random.fork_rng(devices=devices), own_draws(0):
        try:
            yield put_back
        finally:
            put_back()


def _copied(inputs: Any) -> Any:
    """Copy the tensors in nested inputs, for a model may change its inputs in place."""

    def copy(value: Any) -> Any:
        return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value

    return tree_map(copy, inputs)
