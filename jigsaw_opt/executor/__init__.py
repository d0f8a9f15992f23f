"""PyTorch: a zoo of models in segments, partial backpropagation, gradient exchange, the profiler (extra ``torch``).

Modules of this room import torch at their head, so nothing outside it imports them before they are used;
`require_torch` says what to install where torch is missing.
"""

from __future__ import annotations

from importlib.util import find_spec

from jigsaw_opt.errors import MissingEngineError

__all__ = ["require_torch"]


def require_torch() -> None:
    """Do nothing where PyTorch is installed; looks it up without importing it."""
    if find_spec("torch") is None:
        raise MissingEngineError("PyTorch", "jigsaw-opt[torch]")
