"""One name, one thing: two classes share a name only where one is the abstract of the other, and no plan has a twin."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.modules import trees

ALLOWED = {"problem/plan.py:is_phased", "solvers/solve_state/state.py:offer_phased"}
"""Says which of the two documents a plan is written as."""
PRIVATE = {
    *("berth", "circle", "company", "ladder", "laid", "mend", "rhythm", "revolve", "seat", "seats", "seating"),
    "wherever",
}
"""Words that are no terms."""


def test_classes_that_share_a_name_inherit_from_one_of_them() -> None:
    """Names are compared without underscores."""
    roots: dict[str, list[str]] = defaultdict(list)
    for place, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                name = node.name.lstrip("_")
                bases = [ast.unparse(base).partition("[")[0].rpartition(".")[2].lstrip("_") for base in node.bases]
                roots[name] += [place] * (name not in bases)
    assert {"Instance", "OperationGraph", "Rounding"} <= roots.keys()
    assert {name: places for name, places in roots.items() if len(places) != 1} == {}


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Names that a module defines or binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name)
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def test_no_name_has_a_word_that_is_no_term() -> None:
    named = {(path, name) for path, tree in trees().items() for name in identifiers(tree)}
    named |= {(path, path.rpartition("/")[2].removesuffix(".py")) for path in trees()}
    assert ("problem/plan.py", "is_phased") in named
    assert {(path, name) for path, name in named if PRIVATE & set(name.lower().split("_"))} == set()


def twins(modules: Mapping[str, ast.AST]) -> Iterator[str]:
    """Modules, functions and classes that are called after phased plans, but for the method that makes them."""
    for path, tree in modules.items():
        if path.startswith("solvers/phased/"):
            continue
        if "phased" in path.lower():
            yield path
        for node in ast.walk(tree):
            defined = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            if defined and "phased" in node.name.lower():
                yield f"{path}:{node.name}"


def test_nothing_has_a_twin_for_phased_plans() -> None:
    assert set(twins(trees())) == ALLOWED
    module = ast.parse("class PhasedRun:\n    def of(self): ...\ndef run_phased(): ...\n")
    found = ["phased_run.py", "phased_run.py:PhasedRun", "phased_run.py:run_phased"]
    assert list(twins({"phased_run.py": module})) == found
