"""Names of modules by which they were called in the release before; kept for one release."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["former_attribute", "former_names", "is_said"]


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


def former_attribute(old: str, new: str) -> Any:
    """Return what a class has as an attribute by its former name, so that it works and warns.

    Parameters
    ----------
    old, new
        The name of the attribute then and now.
    """

    def get(owner: object) -> object:
        warnings.warn(f"{type(owner).__name__}.{old} is {new} now", DeprecationWarning, stacklevel=2)
        return getattr(owner, new)

    return property(get, doc=f"Return `{new}`, by its name of the release before.")


def is_said(owner: object, name: str, former: str) -> bool:
    """Return whether a plug-in says something of itself, by an attribute or by the former name of that.

    Parameters
    ----------
    owner
        The plug-in.
    name, former
        The attribute now and then; it is false where there is neither.
    """
    then = getattr(owner, former, None)
    if then is not None:
        told = f"the attribute {former} of {getattr(owner, 'name', owner)} is called {name} now"
        warnings.warn(told, DeprecationWarning, stacklevel=2)
    return bool(getattr(owner, name, then))
