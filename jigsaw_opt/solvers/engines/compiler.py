"""A process that compiles functions for another one, and ends with it.

Compiling takes half a minute, holds up the threads beside it and cannot be interrupted; a process can be ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib import import_module

from jigsaw_opt.solvers.engines import code_cache
from jigsaw_opt.solvers.engines.native import RECIPES, CompilationRecipe, code_of

__all__ = ["main", "results", "start"]

_PROGRAM = f"""
import json, sys
names, sys.path[:] = json.loads(sys.argv[1])
from {__name__} import main
main(names)
"""
_NICE = 5
"""Niceness of the process, which runs beside those that solve."""


def start(recipes: Sequence[CompilationRecipe]) -> subprocess.Popen[bytes]:
    """Start to compile functions in a separate process; Ctrl-C does not reach it.

    Raises
    ------
    OSError
        No process can be started.
    """
    if not sys.executable or getattr(sys, "frozen", False):
        raise FileNotFoundError("no Python to run")
    # Not from the working folder (-P), but from where this process imports.
    order = json.dumps([[recipe.name for recipe in recipes], list(map(str, sys.path))])
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM, order],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def results(process: subprocess.Popen[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield names and codes of the functions as they are compiled, until the process ends."""
    assert process.stdout is not None
    while (line := process.stdout.readline()).endswith(b"\n"):
        name, size = line.split()
        code = process.stdout.read(int(size))
        if len(code) < int(size):
            break
        yield name.decode(), code


def main(names: Sequence[str]) -> None:
    """Compile functions and write them to the cache and to standard output; ends as soon as standard input does."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(_NICE)
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as out:
        # Whatever else is printed must not come in between.
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        for name in names:
            module, _, function = name.partition(":")
            recipe = RECIPES[getattr(import_module(module), function)]
            code = code_cache.find(recipe)
            if code is None:
                code = code_of(recipe)
                code_cache.keep(recipe, code)
            out.write(b"%b %d\n%b" % (name.encode(), len(code), code))
            out.flush()


def _end_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)
