"""A plan is one thing: what takes phased plans has no twin that takes only them.

``python -m pytest tests/test_one_plan.py`` counts modules, classes and functions with *phased* in their names.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "jigsaw_opt"
METHOD = PACKAGE / "solvers" / "phased"
"""The method that makes phased plans is one of many, and bears their name."""
ALLOWED = {
    "problem/plan.py:is_phased": "says which of the two documents a plan is written as",
}


def named(package: Path, method: Path) -> Iterator[str]:
    """Modules outside of the method, and their functions and classes, that are called after phased plans."""
    for path in sorted(package.rglob("*.py")):
        if method in path.parents:
            continue
        name = path.relative_to(package).as_posix()
        if "phased" in name.lower():
            yield name
        for node in ast.walk(ast.parse(path.read_text())):
            defined = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            if defined and "phased" in node.name.lower():
                yield f"{name}:{node.name}"


@pytest.mark.slow
def test_nothing_has_a_twin_for_phased_plans() -> None:
    assert list(named(PACKAGE, METHOD)) == list(ALLOWED)


def test_twins_are_found(tmp_path: Path) -> None:
    (tmp_path / "phased_run.py").write_text("class PhasedRun:\n    def of(self): ...\ndef run_phased(): ...\n")
    found = ["phased_run.py", "phased_run.py:PhasedRun", "phased_run.py:run_phased"]
    assert list(named(tmp_path, METHOD)) == found
