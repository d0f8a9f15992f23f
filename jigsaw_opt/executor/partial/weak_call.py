"""Hooks that do not keep alive what they call, and that copies leave behind."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["WeakCall"]


class WeakCall:
    """A call of a method, as long as its object lives; a copy or what is pickled of it calls nothing.

    `method`: the bound method; None for a call of nothing.
    """

    def __init__(self, method: Callable[..., None] | None = None) -> None:
        self._method = None if method is None else weakref.WeakMethod(method)

    def __call__(self, *args: Any) -> None:
        """Call the method."""
        method = None if self._method is None else self._method()
        if method is not None:
            method(*args)

    def __reduce__(self) -> tuple[type[WeakCall], tuple[()]]:
        """Leave the method behind."""
        return WeakCall, ()
