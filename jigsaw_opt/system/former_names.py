"""Names of the release before of what modules, classes and plug-ins have; kept for one release."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar

from jigsaw_opt.errors import UsageError

__all__ = [
    "FormerNameWarning",
    "former_attribute",
    "former_keywords",
    "former_method",
    "former_names",
    "is_said",
    "under_new_name",
    "warn_caller",
]

T = TypeVar("T")


class FormerNameWarning(DeprecationWarning):
    """A name of the release before is used; the command line shows such warnings."""


def warn_caller(told: str) -> None:
    """Warn the code that has called this package, however deep within the package this is called."""
    frame, level = sys._getframe(1), 2
    while frame.f_globals["__name__"].startswith("jigsaw_opt.") and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(told, FormerNameWarning, stacklevel=level)


def former_names(module: str, now: Mapping[str, str], told: Mapping[str, str] | None = None) -> Callable[[str], object]:
    """Return what a module has as `__getattr__`, so that its former names work and warn.

    `now`: by former name, what it is called now, with its module where that is another one. `told`: by former name,
    what to write now, where that is more than another name.
    """

    def get(name: str) -> object:
        if name == "__all__":  # asked for by `import *`, of a module that has nothing else
            return [*now]
        if name not in now:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        words = (told or {}).get(name, now[name])
        warnings.warn(f"{module}.{name} is {words} now", FormerNameWarning, stacklevel=2)
        where, _, what = now[name].rpartition(".")
        return getattr(import_module(where or module), what)

    return get


def former_attribute(old: str, new: str) -> Any:
    """Return what a class has as an attribute by its former name, so that it works and warns."""

    def get(owner: object) -> object:
        warnings.warn(f"{type(owner).__name__}.{old} is {new} now", FormerNameWarning, stacklevel=2)
        return getattr(owner, new)

    return property(get, doc=f"Return `{new}`, by its name of the release before.")


def former_method(old: str, method: Callable[..., T]) -> Callable[..., T]:
    """Return what a class has as a method by its former name, so that it works and warns."""

    def call(owner: object, *arguments: Any, **named: Any) -> T:
        kind = type(owner)
        warnings.warn(f"{kind.__name__}.{old} is {method.__name__} now", FormerNameWarning, stacklevel=2)
        # A subclass that has a method by the former name comes here by `super()`, and must not be called again.
        of_subclass = getattr(getattr(kind, old), "__code__", None) is not call.__code__
        now: Callable[..., T] = method if of_subclass else getattr(kind, method.__name__)
        return now(owner, *arguments, **named)

    return call


def under_new_name(owner: T, old: str, new: str) -> T:
    """Return an object that may have a method by its former name alone, with the method under both names.

    `owner`: an object of a user's own class, which has the method of its class or of its own; or what makes one.
    """
    made = type(owner).__name__
    if isinstance(owner, type) or not callable(getattr(owner, old, None)):
        return owner
    if not callable(getattr(owner, new, lambda: None)):
        told = (
            f"the method {old} of {made} is called {new} now, and {made} has something else under that name: rename it"
        )
        raise UsageError(told, code="wrong-type", path=f"{made}.{new}")
    for home in (owner, *type(owner).__mro__):
        names = getattr(home, "__dict__", {})
        if new in names:
            break
        if old in names:
            called = home.__name__ if isinstance(home, type) else made
            warnings.warn(f"the method {old} of {called} is called {new} now", FormerNameWarning, stacklevel=2)
            if home is owner:
                names[new] = names[old]  # the object may be frozen
            else:
                setattr(home, new, names[old])
            break
    return owner


def former_keywords(now: Mapping[str, str]) -> Callable[[type[T]], type[T]]:
    """Return what lets the constructor of a data class take keywords by their former names, with a warning."""

    def decorate(kind: type[T]) -> type[T]:
        make: Callable[..., None] = kind.__init__
        every = {field.name for field in fields(kind) if field.init}  # type: ignore[arg-type]

        @wraps(make)
        def init(self: T, *arguments: Any, **named: Any) -> None:
            for old in [name for name in named if name in now]:
                new, value = now[old], named.pop(old)
                told = f"the argument {old} of {kind.__name__} is called {new} now"
                warnings.warn(told, FormerNameWarning, stacklevel=2)
                # `dataclasses.replace` gives all fields as they were, beside what is to change.
                if new in named and not every <= named.keys():
                    raise UsageError(f"{new} is given twice, once as {old}", code="not-together", path=new)
                named[new] = value
            make(self, *arguments, **named)

        kind.__init__ = init  # type: ignore[assignment]
        return kind

    return decorate


def is_said(owner: object, name: str, former: str) -> bool:
    """Return whether a plug-in says something of itself, by an attribute or by the former name of that.

    `name, former`: the attribute now and then; it is false where there is neither.
    """
    then = getattr(owner, former, None)
    if then is not None:
        kind = owner if isinstance(owner, type) else type(owner)
        told = f"the attribute {former} of {getattr(owner, 'name', kind.__name__)} is called {name} now"
        home = vars(sys.modules[kind.__module__])
        seen = home.setdefault("__warningregistry__", {})
        warnings.warn_explicit(told, FormerNameWarning, str(home.get("__file__")), 1, registry=seen)
    return bool(getattr(owner, name, then))
