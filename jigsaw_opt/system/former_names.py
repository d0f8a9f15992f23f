"""Names of modules by which they were called in the release before; kept for one release."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["former_names"]


def former_names(module: str, now: Mapping[str, str], told: Mapping[str, str] | None = None) -> Callable[[str], object]:
    """Return what a module has as `__getattr__`, so that its former names work and warn.

    Parameters
    ----------
    module
        Its name.
    now
        By former name, what it is called now, with its module where that is another one.
    told
        By former name, what to write now, where that is more than another name.
    """

    def get(name: str) -> object:
        if name not in now:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        words = (told or {}).get(name, now[name])
        warnings.warn(f"{module}.{name} is {words} now", DeprecationWarning, stacklevel=2)
        where, _, what = now[name].rpartition(".")
        return getattr(import_module(where or module), what)

    return get
