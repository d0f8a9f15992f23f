"""Parameters of an engine by its own names, as a caller hands them through to it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import TypeAlias

from jigsaw_opt.errors import Problem, UsageError
from jigsaw_opt.text import suggestion

Parameter: TypeAlias = bool | int | float | str
_OWN = ("cpsat", "highs")
"""The engines of this package; the module of each says what is wrong with parameters."""


def require_parameters(engine: str, parameters: Mapping[str, Parameter]) -> None:
    """Refuse parameters that an engine does not have, or that its proofs rest on.

    `engine`: name of the engine; parameters of one that is not of this package are taken as they are.
    """
    if parameters and engine in _OWN:
        module = import_module(f"jigsaw_opt.solvers.engines.{engine}")
        find: Callable[[Mapping[str, Parameter]], Iterator[Problem]] = module.parameter_problems
        problems = tuple(find(parameters))
        if problems:
            raise UsageError.of(replace(it, path=f"engine_parameters.{it.path}") for it in problems)


def check_names(
    engine: str, parameters: Mapping[str, Parameter], known: Collection[str], kept: Collection[str]
) -> Iterator[Problem]:
    """Yield names that cannot be set, each with what is wrong with it."""
    for name in parameters:
        if name in kept:
            told = f"parameter {name!r} of {engine} is kept as it is: what the solver proves rests on it"
            yield Problem(name, told, code="not-allowed")
        elif name not in known:
            told = "; ".join(filter(None, (f"{engine} has no parameter {name!r}", suggestion(name, known))))
            yield Problem(name, told, code="unknown-option")
