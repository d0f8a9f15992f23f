"""How any model is called with a batch, and what its loss is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from jigsaw_opt.errors import UsageError, missing_option


def inputs_and_targets(batch: Any, is_whole: bool) -> tuple[Any, Any]:
    """Return inputs and targets of a batch as a loader gives it.

    `is_whole`: whether the model takes all of it by name and its outputs have the loss; targets are then None.
    """
    if is_whole:
        if isinstance(batch, Mapping):
            return batch, None
        message = f"without a loss, a batch is a dictionary of what the model takes by name, not {_kind(batch)}"
        raise UsageError(message, code="wrong-type", path="batch")
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        return batch[0], batch[1]
    raise UsageError(f"a batch is a pair (inputs, targets), not {_kind(batch)}", code="wrong-type", path="batch")


def _kind(batch: Any) -> str:
    length = f" of length {len(batch)}" if isinstance(batch, (tuple, list)) else ""
    return f"a {type(batch).__name__}{length}"


def arguments_of(inputs: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Return what a model takes by position, the items of a tuple or list, and by name, those of a dictionary."""
    if isinstance(inputs, Mapping):
        return (), inputs
    return (tuple(inputs), {}) if isinstance(inputs, (tuple, list)) else ((inputs,), {})


def loss_of(model: nn.Module, inputs: Any, targets: Any, loss: Callable[[Any, Any], Any] | None) -> Tensor:
    """Run a forward pass and return its mean loss over a batch.

    `loss`: loss of the outputs and the targets; None where the outputs have their own, as those of `transformers`.
    """
    args, kwargs = arguments_of(inputs)
    outputs = model(*args, **kwargs)
    if loss is not None:
        return require_scalar(loss(outputs, targets))
    found = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    if found is None:
        message = "the outputs have no loss: give a loss, or the model what it makes one of (labels)"
        raise missing_option("loss", message)
    return require_scalar(found)


def require_scalar(loss: Any) -> Tensor:
    """Return a loss, or raise `UsageError` where it is no tensor of one number."""
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        shown = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise UsageError(f"a loss is one number, the mean over the batch, not {shown}", code="wrong-type", path="loss")
    return loss
