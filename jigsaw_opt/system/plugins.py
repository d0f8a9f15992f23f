"""Find and load what installed packages register by entry point; nothing is looked up before it is asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from jigsaw_opt.errors import JigsawError, PluginError, UsageError
from jigsaw_opt.text import nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_LOGGER = logging.getLogger(__name__)
Found = TypeVar("Found")


def registered(group: str, own: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the names of all entry points of a group and of what needs none, sorted; none of them is loaded."""
    from importlib.metadata import entry_points

    return tuple(sorted({*own, *(point.name for point in entry_points(group=group))}))


def load(group: str, kind: str, name: str, own: Mapping[str, str] = MappingProxyType({}), argument: str = "") -> Any:
    """Return what is registered under a name in a group of entry points.

    `own`: by name, where the package itself has one, as in ``module:object``. `argument`: the argument that names it;
    empty where that is called as the kind is.
    """
    from importlib.metadata import entry_points

    if name in own:
        return resolve_name(own[name])
    points = [point for point in entry_points(group=group) if point.name == name]
    if len({point.value for point in points}) > 1:
        raise UsageError(
            f"{kind} {name!r} is registered twice: {', '.join(point.value for point in points)}",
            code="duplicate-name",
            path=argument or kind,
        )
    if not points:
        told = f"no {kind} {name!r}; {nearest(name, registered(group, own))}"
        raise UsageError(told, code="unknown-name", path=argument or kind)
    return _loaded(kind, points[0])


def _loaded(kind: str, point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:
        package = f" of package {point.dist.name}" if point.dist else ""
        told = f"{kind} {point.name!r}{package} does not load: {type(error).__name__}: {error}"
        raise PluginError(told) from error


def require_members(kind: str, name: str, found: object, members: Iterable[str], argument: str = "") -> None:
    """Refuse what is no object of its kind.

    `argument`: the argument that names it; empty where that is called as the kind is.
    """
    if isinstance(found, type):
        told = f"{kind} {name!r} is the class {found.__name__}; an object of it is wanted"
        raise UsageError(told, code="wrong-type", path=argument or kind)
    lacking = [member for member in members if not hasattr(found, member)]
    if lacking:
        told = f"{kind} {name!r} is no {kind}: it has no {', '.join(lacking)}"
        raise UsageError(told, code="wrong-type", path=argument or kind)


@contextmanager
def blamed(kind: str, name: str, code: object) -> Iterator[None]:
    """Let an exception of the block name whose code it was, as a PluginError; those of our own code stay as they are.

    `code`: what is called, an object, a function or a class.
    """
    try:
        yield
    except (JigsawError, MemoryError):
        raise
    except Exception as error:
        module = code.__module__ if callable(code) else type(code).__module__
        if module.startswith("jigsaw_opt."):
            raise
        raise PluginError(f"the {kind} {name!r} raised {type(error).__name__}: {error}") from error


def loadable(find: Callable[[str], Found], names: Iterable[str]) -> Iterator[Found]:
    """Yield what `find` gives for each name; a warning is logged of one that does not load, once in a process."""
    for name in names:
        try:
            found = find(name)
        except (PluginError, UsageError) as error:
            _warn(str(error))
        else:
            yield found


@cache
def _warn(told: str) -> None:
    _LOGGER.warning("%s", told)
