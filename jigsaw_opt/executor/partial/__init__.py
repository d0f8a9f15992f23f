"""Partial backpropagation for any module, in a training loop of the user's own (extra ``torch``)."""

from jigsaw_opt.executor import require_torch

require_torch()

from jigsaw_opt.executor.partial.wrapper import PartialBackprop  # noqa: E402 - says first what to install

__all__ = ["PartialBackprop"]
