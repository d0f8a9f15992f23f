"""Tensors in the outputs of a module: nested tuples, lists, dictionaries and dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor


def tensors(outputs: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested outputs."""
    yield from (value for _, value in placed(outputs))


def placed(outputs: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Tensor]]:
    """Yield the tensors in nested outputs, each with its place: the keys that lead to it."""
    if isinstance(outputs, Tensor):
        yield place, outputs
    else:
        for key, value in _items(outputs):
            yield from placed(value, (*place, key))


def mapped(outputs: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return nested outputs with each tensor changed; what holds no tensor that changes is the same object."""
    if isinstance(outputs, Tensor):
        return change(outputs)
    changed = {key: now for key, value in _items(outputs) if (now := mapped(value, change)) is not value}
    if not changed:
        return outputs
    if isinstance(outputs, tuple):
        values = [changed.get(at, value) for at, value in enumerate(outputs)]
        return outputs._make(values) if hasattr(outputs, "_make") else type(outputs)(values)
    again = copy(outputs)
    for key, value in changed.items():
        if isinstance(again, Mapping | list):
            again[key] = value  # type: ignore[index]
        else:
            object.__setattr__(again, key, value)  # it may be frozen
    return again


def _items(outputs: Any) -> list[tuple[Any, Any]]:
    if isinstance(outputs, Mapping):
        return list(outputs.items())
    if isinstance(outputs, list | tuple):
        return list(enumerate(outputs))
    if is_dataclass(outputs) and not isinstance(outputs, type):
        return [(field.name, getattr(outputs, field.name)) for field in fields(outputs) if hasattr(outputs, field.name)]
    return []
