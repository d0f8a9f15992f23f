"""Marks of tests that need an extra of the package."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

import pytest

from jigsaw_opt.solvers.engines.compiled import library

HAS_COMPILER = "CC" in os.environ or any(map(shutil.which, ("cc", "gcc", "clang")))


def _needs(extra: str, module: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(module) is None, reason=f"{module} is not installed (extra {extra})")


needs_fast = pytest.mark.skipif(library() is None, reason="not compiled here: pip install --no-deps -e .")
needs_plot = _needs("plot", "matplotlib")
needs_ray = _needs("ray", "ray")
needs_serve = _needs("serve", "starlette")
