"""Native code of functions on flat numbers: numba makes it, as bytes that another process can take over."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

__all__ = ["RECIPES", "CompilationRecipe", "code_of", "loaded"]


@dataclass(frozen=True, slots=True)
class CompilationRecipe:
    """Recipe by which a function is compiled.

    Parameters
    ----------
    function
        The function.
    signature
        Takes the module ``numba``; returns the types of the result and of the arguments.
    parts
        Functions that it calls, or that one behind them calls; they are compiled along with it.
    lists
        Whether it makes lists itself, which its parts never do. References to arrays and lists are counted then; else
        nothing is counted, and calls cost next to nothing.
    """

    function: Callable[..., int]
    signature: Callable[[Any], Any]
    parts: tuple[Callable[..., Any], ...] = ()
    lists: bool = False

    @property
    def name(self) -> str:
        """Return where to import the function from, as in ``package.module:function``."""
        return f"{self.function.__module__}:{self.function.__name__}"

    def sources(self) -> list[Path]:
        """Return the files of this package that the native code may depend on."""
        own = __name__.partition(".")[0]
        modules = {self.function.__module__, __name__}
        for one in (self.function, *self.parts):
            modules |= {getattr(value, "__module__", None) or "" for value in one.__globals__.values()}
        packaged = {module for module in modules if module.partition(".")[0] == own} | {self.function.__module__}
        return sorted(Path(file) for file in (sys.modules[module].__file__ for module in packaged) if file)


RECIPES: dict[Callable[..., int], CompilationRecipe] = {}
"""Functions that are to be compiled."""


def code_of(recipe: CompilationRecipe) -> bytes:
    """Compile a function: some seconds.

    Returns
    -------
    bytes
        A line of JSON that names the symbols of the machine code and says how long it is; the machine code; LLVM's
        bitcode, which lists what the machine code defines.

    Raises
    ------
    ImportError
        numba is not installed.
    TypeError
        The function uses Python's objects, which are no data.
    """
    import numba

    dispatcher = numba.njit(recipe.signature(numba), nogil=True, _nrt=recipe.lists)(_with_parts(numba, recipe))
    (result,) = dispatcher.overloads.values()
    name, _, (machine_code, bitcode) = result.library.serialize_using_object_code()
    environments = result._find_referenced_environments()
    if result.lifted or result.reload_init or any(one.consts for one in environments):
        raise TypeError(f"{recipe.name} uses objects of Python")
    symbols = {
        "library": name,
        "function": result.fndesc.mangled_name,
        "environment": result.fndesc.env_name,
        "environments": [[one.globals["__name__"], one.env_name] for one in environments],
        "machine_code": len(machine_code),
    }
    return json.dumps(symbols).encode() + b"\n" + bytes(machine_code) + bytes(bitcode)


def loaded(recipe: CompilationRecipe, code: bytes) -> Callable[..., int]:
    """Load the function from its native code, which takes some milliseconds once numba is imported.

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
    from numba.core.environment import _rebuild_env
    from numba.core.funcdesc import FunctionDescriptor

    line, _, rest = code.partition(b"\n")
    symbols = json.loads(line)
    library = symbols["library"], "object", (rest[: symbols["machine_code"]], rest[symbols["machine_code"] :])
    dispatcher = numba.njit(nogil=True)(recipe.function)
    signature = recipe.signature(numba)
    described = FunctionDescriptor(
        native=True,
        modname=recipe.function.__module__,
        qualname=recipe.function.__qualname__,
        unique_name=recipe.function.__qualname__,
        doc="",
        typemap=None,
        restype=signature.return_type,
        calltypes=None,
        args=(),
        kws=(),
        mangler=lambda *_, **__: symbols["function"],
        argtypes=signature.args,
        env_name=symbols["environment"],
    )
    with global_compiler_lock:
        dispatcher.targetctx.refresh()
        own = _rebuild_env(described.modname, [], described.env_name)
        others = tuple(_rebuild_env(module, [], name) for module, name in symbols["environments"])
        what = (library, described, own, signature, False, (), "", (), others)
        dispatcher.add_overload(CompileResult._rebuild(dispatcher.targetctx, *what))
    dispatcher.disable_compile()
    function: Callable[..., int] = dispatcher
    return function


def _with_parts(numba: Any, recipe: CompilationRecipe) -> Callable[..., int]:
    """Return the function as one that calls its parts compiled."""
    function, parts = recipe.function, recipe.parts
    partly = numba.njit(nogil=True, _nrt=False)
    names = {id(one.__globals__): dict(one.__globals__) for one in (function, *parts)}
    for part in parts:
        fast = partly(FunctionType(part.__code__, names[id(part.__globals__)], part.__name__))
        for known in names.values():
            known.update({name: fast for name, value in known.items() if value is part})
    return FunctionType(function.__code__, names[id(function.__globals__)], function.__name__)
