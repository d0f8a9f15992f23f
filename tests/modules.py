"""The modules of the package, each read and parsed once."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "jigsaw_opt"


@cache
def sources() -> dict[str, str]:
    """Text of every module by its path in the package."""
    return {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def trees() -> dict[str, ast.Module]:
    """What they parse to, to be looked at and never changed."""
    return {path: ast.parse(text) for path, text in sources().items()}
