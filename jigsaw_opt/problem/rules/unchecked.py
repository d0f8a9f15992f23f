"""Looks at a tree whose structure may be broken: each takes only values of the right type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from jigsaw_opt.problem.rules.keyed import Keyed
from jigsaw_opt.problem.rules.report import Place, Report, quoted

__all__ = ["Names", "all_names", "check_unique", "dict_at", "list_at", "names_of"]

Names = dict[str, None]
"""Names in the order of the document."""


def list_at(holder: Any, key: str) -> list[Any]:
    """Return the list under a key, or an empty one; parts in it as documents have them."""
    found = holder.get(key) if isinstance(holder, dict) else None
    if isinstance(found, tuple):  # as objects have them
        return [_seen(item) for item in found]
    return found if isinstance(found, list) else []


def dict_at(holder: Any, key: str) -> dict[str, Any]:
    """Return the object under a key, or an empty one; a part as documents have it."""
    found = _seen(holder.get(key)) if isinstance(holder, dict) else None
    return found if isinstance(found, dict) else {}


def _seen(value: Any) -> Any:
    return value.keyed() if isinstance(value, Keyed) else value


def names_of(items: list[Any], place: Place) -> Iterator[tuple[Place, str]]:
    """Yield every `name` among some objects, with its place."""
    for index, item in enumerate(items):
        name = item.get("name") if isinstance(item, dict) else None
        if isinstance(name, str):
            yield ((place, index), "name"), name


def all_names(items: list[Any]) -> Names | None:
    """Return the names of some objects; None where one is not readable, for an unknown name may well mean it."""
    names = [name for _, name in names_of(items, "")]
    return dict.fromkeys(names) if items and len(names) == len(items) else None


def check_unique(named: Iterable[tuple[Place, str]], report: Report) -> None:
    """Report every name that stands there a second time."""
    seen: set[str] = set()
    for place, name in named:
        if name in seen:
            report.add(place, f"duplicate name {quoted(name)}", code="duplicate-name")
        seen.add(name)
