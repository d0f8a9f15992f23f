"""Wrappers that hold the same parameters, of which autograd tells all of them."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from torch import nn

__all__ = ["sharing"]

_known: WeakKeyDictionary[Any, WeakSet[Any]] = WeakKeyDictionary()


def sharing(wrapper: nn.Module) -> WeakSet[Any]:
    """Return the other wrappers for which this has been asked that hold some parameter of `wrapper`."""
    if wrapper not in _known:
        own = set(wrapper.parameters())
        _known[wrapper] = WeakSet(other for other in _known if not own.isdisjoint(other.parameters()))
        for other in _known[wrapper]:
            _known[other].add(wrapper)
    return _known[wrapper]
