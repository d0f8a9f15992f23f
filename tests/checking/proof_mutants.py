"""All arguments that differ from one in a single field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_OTHER = "another"


def mutants(argument: Any, path: str = "$") -> Iterator[tuple[str, Any]]:
    """Yield where an argument was changed, and the changed one.

    Each integer is one more and one less, each list lacks one of its entries, each field is left out, one is added,
    and each string is another.
    """
    if isinstance(argument, dict):
        yield f"{path} + {_OTHER}", {**argument, _OTHER: 0}
        for key, value in argument.items():
            yield f"{path} - {key}", {k: v for k, v in argument.items() if k != key}
            for where, changed in mutants(value, f"{path}.{key}"):
                yield where, {**argument, key: changed}
    elif isinstance(argument, list | tuple):
        for k, value in enumerate(argument):
            yield f"{path} - [{k}]", [*argument[:k], *argument[k + 1 :]]
            for where, changed in mutants(value, f"{path}[{k}]"):
                yield where, [*argument[:k], changed, *argument[k + 1 :]]
    elif isinstance(argument, int):
        yield f"{path} + 1", argument + 1
        yield f"{path} - 1", argument - 1
    else:
        yield f"{path} = {_OTHER}", _OTHER
