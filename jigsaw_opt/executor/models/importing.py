"""Code of the user's own: how it is imported, and its errors, told with the line that raised them."""

from __future__ import annotations

import inspect
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

import jigsaw_opt
from jigsaw_opt.errors import JigsawError, PluginError, UsageError
from jigsaw_opt.problem.rules.report import Place, Report

_LIBRARIES = tuple(Path(sysconfig.get_path(name)) for name in ("purelib", "platlib"))
_OURS = tuple(Path(str(module.__file__)).parent for module in (jigsaw_opt, torch))
_STANDARD = Path(sysconfig.get_path("stdlib"))


@contextmanager
def blame_own_code(what: str) -> Iterator[None]:
    """Raise what the user's own code raises in the block as a PluginError that names `what` and the line.

    An error in which no line of the user's code has a part is raised as it is, and so is one of this package.
    """
    try:
        yield
    except (JigsawError, torch.OutOfMemoryError):
        raise
    except (Exception, SystemExit) as error:
        if own_line(error) is None:
            raise
        raise PluginError(f"{what}: {told(error)}") from error


def own_function(name: str, arguments: Mapping[str, Any], place: Place) -> Callable[..., Any]:
    """Import a function of the user's own, which must be trusted.

    `arguments`: what it will be called with, by name. `place`: where the entry that names it stands, with the
    arguments.
    """
    module, _, called = name.partition(":")
    try:
        with blame_own_code(name):
            imported = import_module(module)
        function: Callable[..., Any] = getattr(imported, called)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"cannot import {name}: {error}; PYTHONPATH=FOLDER says where else to look", code="failed", path=name
        ) from error
    report = Report()
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        report.add((place, "arguments"), f"{name} does not take them: {error}", code="failed")
    report.raise_if_any()
    return function


def told(error: BaseException) -> str:
    """Return class and first line of an error, and the line of the user's code that raised it, if there is one."""
    first, line = str(error).partition("\n")[0], own_line(error)
    return f"{type(error).__name__}: {first}" + (f" ({line})" if line else "")


def own_line(error: BaseException) -> str | None:
    """Return file and line of the user's code that an error comes from, as in ``own.py:12``; None where it has none.

    It is the innermost one outside this package, torch and Python's library; one outside all installed packages
    goes before.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [
        (Path(frame.filename), frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_file() and not _is_ours(Path(frame.filename))
    ]
    outside = [(path, line) for path, line in frames if not any(path.is_relative_to(one) for one in _LIBRARIES)]
    if not frames:
        return None
    path, line = (outside or frames)[-1]
    return f"{path}:{line}"


def _is_ours(path: Path) -> bool:
    """Return whether a file is of this package, of torch, or of Python's library."""
    if any(path.is_relative_to(one) for one in _OURS):
        return True
    return path.is_relative_to(_STANDARD) and not any(path.is_relative_to(one) for one in _LIBRARIES)
