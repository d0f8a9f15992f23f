"""Arguments of solving by the names that they had before there was one call for it; kept for one release."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec, TypeVar

from jigsaw_opt.errors import UsageError
from jigsaw_opt.solvers.options import FORMER_OPTIONS
from jigsaw_opt.system.former_names import FormerNameWarning

__all__ = ["takes_former_arguments"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_FORMER = {"solver": "method", "report": "on_event", **FORMER_OPTIONS}
"""Arguments of `solve`, by their names then."""


def takes_former_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let `solve` and its like take arguments by their former names, and the receiver of events in fourth place."""
    kinds = [parameter.kind for parameter in signature(function).parameters.values()]
    most = kinds.index(Parameter.KEYWORD_ONLY)

    @wraps(function)
    def call(*arguments: _P.args, **more: _P.kwargs) -> _R:
        named: dict[str, Any] = dict(more)
        given = {old: named.pop(old) for old in _FORMER if old in named}
        if len(arguments) > most:
            given["report"] = arguments[most]
        for old, value in given.items():
            warnings.warn(f"the argument {old} is called {_FORMER[old]} now", FormerNameWarning, stacklevel=2)
            if named.setdefault(_FORMER[old], value) is not value:
                raise UsageError(f"{_FORMER[old]} is given twice, once as {old}", code="not-together")
        return function(*arguments[:most], **named)  # type: ignore[arg-type]

    return call
