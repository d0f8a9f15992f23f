"""What installed packages register by entry point; nothing is looked up before it is asked for."""

from __future__ import annotations

from typing import Any

from jigsaw_opt.errors import UsageError
from jigsaw_opt.text import nearest

__all__ = ["load", "registered"]


def registered(group: str) -> tuple[str, ...]:
    """Names of all entry points of a group, sorted; none of them is loaded."""
    from importlib.metadata import entry_points

    return tuple(sorted({point.name for point in entry_points(group=group)}))


def load(group: str, kind: str, name: str) -> Any:
    """What is registered as `name` in a group of entry points, whose members errors call by their `kind`.

    Raises
    ------
    UsageError
        Nothing, or more than one thing, has that name.
    """
    from importlib.metadata import entry_points

    points = [point for point in entry_points(group=group) if point.name == name]
    if len({point.value for point in points}) > 1:
        raise UsageError(f"{kind} {name!r} is registered twice: {', '.join(point.value for point in points)}")
    if not points:
        raise UsageError(f"no {kind} {name!r}; {nearest(name, registered(group))}")
    return points[0].load()
