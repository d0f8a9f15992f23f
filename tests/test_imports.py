"""Importing the package and asking for help load no other library and few rooms of the package."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Parts of the standard library that take as long to load as the rest of the start together.
SLOW = {"asyncio", "concurrent", "ctypes", "email", "http", "multiprocessing", "sqlite3", "ssl", "unittest"}
LOADED_BY = """
import sys
before = set(sys.modules)
{statement}
print(*sorted(set(sys.modules) - before))
"""
HELP = """
import contextlib, io
from jigsaw_opt.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main(["--help"])
"""


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a new interpreter loads for a statement."""
    command = [sys.executable, "-c", LOADED_BY.format(statement=statement)]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    ("statement", "rooms"),
    [("import jigsaw_opt", set()), (HELP, {"cli", "errors", "system", "text"})],
    ids=["import", "help"],
)
def test_start_up_loads_no_other_library_and_few_rooms(statement: str, rooms: set[str]) -> None:
    loaded = loaded_by(statement)
    assert {name.split(".")[1] for name in loaded if name.startswith("jigsaw_opt.")} == rooms
    libraries = {name.split(".")[0] for name in loaded} - {"jigsaw_opt"}
    assert libraries - sys.stdlib_module_names == set()
    assert libraries & SLOW == set()


def test_a_method_without_a_search_imports_none() -> None:
    loaded = loaded_by("import jigsaw_opt; jigsaw_opt.solve")
    assert "jigsaw_opt.solvers.solve" in loaded
    rooms = ("search", "phased", "resolve.repaired", "portfolio")
    assert {f"jigsaw_opt.solvers.{room}" for room in rooms} & loaded == set()
