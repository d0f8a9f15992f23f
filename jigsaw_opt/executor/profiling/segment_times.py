"""Times of segments one by one, with a pause at every boundary: forward pass, and both halves of the backward pass.

A boundary is the first call of the module at which a segment begins. In the backward pass a segment begins when the
gradients of all that has entered that module are complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils._pytree import tree_leaves

from jigsaw_opt.errors import UsageError
from jigsaw_opt.executor.devices import work_us
from jigsaw_opt.executor.profiling.trainee import Trainee


def segment_times(trainee: Trainee, turn: int) -> list[float]:
    """Return microseconds by segment, one list after the other.

    These are forward passes without a graph, backward passes with what the graph adds to the forward pass, and their
    shares of inputs' and of weights' gradients. Gradients stay as they were; buffers move on.
    """
    parameters = [p for p in trainee.model.parameters() if p.requires_grad]
    kept = [p.grad for p in parameters]
    try:
        with torch.compiler.set_stance("force_eager"):
            plain = _plain_forward(trainee, turn)
            _clear(parameters, trainee.keeps_gradients)
            forward, whole = _with_graph(trainee, turn, weights=True)
            _clear(parameters, trainee.keeps_gradients)
            _, inputs = _with_graph(trainee, turn, weights=False)
    finally:
        for parameter, gradient in zip(parameters, kept, strict=True):
            parameter.grad = gradient
    backward = [max(0.0, f + b - p) for p, f, b in zip(plain, forward, whole, strict=True)]
    of_weights = [
        min(both, max(0.0, b - i)) if own else 0.0
        for both, b, i, own in zip(backward, whole, inputs, reversed(trainee.model.buckets), strict=True)
    ]
    of_inputs = [both - own for both, own in zip(backward, of_weights, strict=True)]
    return [*plain, *backward, *of_inputs, *of_weights]


def _clear(parameters: list[nn.Parameter], keep: bool) -> None:
    """Have the next pass make new gradients, or add to zeros where a block does."""
    for parameter in parameters:
        # Zeros that are written: memory that is only asked for takes time at its first use.
        parameter.grad = torch.empty_like(parameter, requires_grad=False).zero_() if keep else None


def _plain_forward(trainee: Trainee, turn: int) -> list[float]:
    begins: dict[int, float] = {}
    batch = trainee.draw(turn)
    with torch.no_grad(), trainee.model.entering(lambda index, _: begins.setdefault(index, work_us(trainee.device))):
        begin = work_us(trainee.device)
        trainee.model.loss_of(batch)
        end = work_us(trainee.device)
    return _durations(begin, [begins.get(index) for index in range(1, trainee.model.depth)], end)


def _durations(begin: float, bounds: list[float | None], end: float) -> list[float]:
    """Return the times between `bounds`; one that is missing or comes late counts as the next one."""
    late = accumulate(reversed(bounds), lambda after, bound: after if bound is None else min(after, bound), initial=end)
    return [max(0.0, high - low) for low, high in pairwise([begin, *reversed(list(late))])]


def _with_graph(trainee: Trainee, turn: int, weights: bool) -> tuple[list[float], list[float]]:
    """Return the times of the forward passes with a graph, and of backward passes with the weights' gradients or not.

    In each segment the parameters of segments before it are frozen, as at the level that begins there: a shared one
    has its gradient from the first segment that uses it.
    """
    device, own = trainee.device, trainee.model.buckets[::-1]
    begins: dict[int, float] = {}
    ends: dict[int, float] = {}
    edges: list[GradientEdge] = []

    def enter(index: int, inputs: Any) -> None:
        begins[index] = work_us(device)
        for parameter in (p for before in own[:index] for p in before):
            parameter.requires_grad_(False)
        for tensor in tree_leaves(inputs):
            if isinstance(tensor, Tensor) and tensor.grad_fn is not None:
                tensor.register_hook(partial(leave, index))  # type: ignore[no-untyped-call]
                edges.append(get_gradient_edge(tensor))

    def leave(index: int, _: Tensor) -> None:
        ends[index] = work_us(device)
        for parameter in own[index - 1]:
            parameter.requires_grad_(True)

    batch = trainee.draw(turn)
    with ExitStack() as stack:
        stack.callback(lambda: [p.requires_grad_(True) for parameters in own for p in parameters])
        with trainee.model.entering(enter), nullcontext() if weights else _first_outputs(trainee.model, edges):
            begin = work_us(device)
            loss = trainee.model.loss_of(batch)
            middle = work_us(device)
        start = work_us(device)
        if loss.requires_grad and weights:
            loss.backward()  # type: ignore[no-untyped-call]
        elif loss.requires_grad and edges:
            _pass_to(edges, loss)
        end = work_us(device)
    forward = _durations(begin, [begins.get(index) for index in range(1, trainee.model.depth)], middle)
    backward = _durations(start, [ends.get(index) for index in reversed(range(1, trainee.model.depth))], end)
    return forward, backward[::-1]


@contextmanager
def _first_outputs(held: nn.Module, edges: list[GradientEdge]) -> Iterator[None]:
    """Have `edges` receive what comes out of modules with which the graph begins.

    The gradients of these need those of all other activations, and none of a parameter.
    """

    def note(_: nn.Module, args: Any, kwargs: Mapping[str, Any], outputs: Any) -> None:
        if not any(isinstance(t, Tensor) and t.requires_grad for t in tree_leaves((args, dict(kwargs)))):
            found = (t for t in tree_leaves(outputs) if isinstance(t, Tensor) and t.grad_fn is not None)
            edges.extend(map(get_gradient_edge, found))

    with ExitStack() as stack:
        for module in held.modules():
            if any(p is not None and p.requires_grad for p in module._parameters.values()):
                stack.callback(module.register_forward_hook(note, with_kwargs=True).remove)
        yield


def _pass_to(edges: list[GradientEdge], loss: Tensor) -> None:
    """Run the backward pass to `edges`, which asks for no gradient of a parameter."""
    try:
        torch.autograd.grad(loss, edges, allow_unused=True)
    except RuntimeError as error:
        if "use_reentrant" not in str(error):
            raise
        message = "activation checkpointing with use_reentrant=True cannot be profiled; use_reentrant=False can"
        raise UsageError(message, code="unsupported") from error
