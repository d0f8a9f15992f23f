"""Native code of functions on flat numbers: numba makes it, as bytes that another process can take over."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

__all__ = ["RECIPES", "Recipe", "code_of", "loaded"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a function is compiled; parameters as those of `compilable`."""

    function: Callable[..., int]
    signature: Callable[[Any], Any]
    parts: tuple[Callable[..., Any], ...] = ()
    inline: bool = False

    @property
    def name(self) -> str:
        """Where to import it from, as in ``package.module:function``."""
        return f"{self.function.__module__}:{self.function.__name__}"

    def sources(self) -> list[Path]:
        """Files of this package that the native code may depend on."""
        own = __name__.partition(".")[0]
        modules = {self.function.__module__, __name__}
        for one in (self.function, *self.parts):
            modules |= {getattr(value, "__module__", None) or "" for value in one.__globals__.values()}
        packaged = {module for module in modules if module.partition(".")[0] == own} | {self.function.__module__}
        return sorted(Path(file) for file in (sys.modules[module].__file__ for module in packaged) if file)


RECIPES: dict[Callable[..., int], Recipe] = {}
"""Functions that are to be compiled."""


def code_of(recipe: Recipe) -> bytes:
    """Compile a function: some seconds.

    Raises
    ------
    ImportError
        numba is not installed.
    """
    import numba
    from numba.core.serialize import dumps

    dispatcher = numba.njit(recipe.signature(numba), nogil=True)(_with_parts(numba, recipe))
    (result,) = dispatcher.overloads.values()
    return bytes(dumps(result._reduce()))


def loaded(recipe: Recipe, code: bytes) -> Callable[..., int]:
    """The function from its native code: some milliseconds, once numba is imported.

    Parameters
    ----------
    recipe
        The function.
    code
        From `code_of` for the same recipe, numba and processor. It is run, so it comes from nobody else.
    """
    import numba
    from numba.core.compiler import CompileResult
    from numba.core.compiler_lock import global_compiler_lock

    dispatcher = numba.njit(nogil=True)(recipe.function)
    with global_compiler_lock:
        dispatcher.targetctx.refresh()
        dispatcher.add_overload(CompileResult._rebuild(dispatcher.targetctx, *pickle.loads(code)))
    dispatcher.disable_compile()
    function: Callable[..., int] = dispatcher
    return function


def _with_parts(numba: Any, recipe: Recipe) -> Callable[..., int]:
    """The function as one that calls its parts compiled."""
    function, parts = recipe.function, recipe.parts
    partly = numba.njit(nogil=True, inline="always" if recipe.inline else "never")
    names = {id(one.__globals__): dict(one.__globals__) for one in (function, *parts)}
    for part in parts:
        fast = partly(FunctionType(part.__code__, names[id(part.__globals__)], part.__name__))
        for known in names.values():
            known.update({name: fast for name, value in known.items() if value is part})
    return FunctionType(function.__code__, names[id(function.__globals__)], function.__name__)
