"""Names of modules by which they were called in the release before; kept for one release."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["former_names"]


def former_names(module: str, now: Mapping[str, str]) -> Callable[[str], object]:
    """Return what a module has as `__getattr__`, so that its former names work and warn.

    Parameters
    ----------
    module
        Its name.
    now
        By former name, what it is called now in the same module.
    """

    def get(name: str) -> object:
        if name not in now:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is {now[name]} now", DeprecationWarning, stacklevel=2)
        return getattr(import_module(module), now[name])

    return get
