"""One name, one thing: two classes share a name only where one is the abstract of the other."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "jigsaw_opt"


def classes() -> dict[str, list[tuple[str, bool]]]:
    """By name without underscores, the module of every class, and whether it inherits from one of its own name."""
    found: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                name = node.name.lstrip("_")
                bases = [ast.unparse(base).partition("[")[0].rpartition(".")[2].lstrip("_") for base in node.bases]
                found[name].append((place, name in bases))
    return found


@pytest.mark.slow
def test_classes_that_share_a_name_inherit_from_one_of_them() -> None:
    found = classes()
    assert {"Instance", "OperationGraph", "Rounding"} <= found.keys()
    roots = {name: [place for place, inherits in places if not inherits] for name, places in found.items()}
    assert {name: places for name, places in roots.items() if len(places) != 1} == {}


PRIVATE = {
    "berth",
    "circle",
    "company",
    "ladder",
    "laid",
    "mend",
    "rhythm",
    "revolve",
    "seat",
    "seats",
    "seating",
    "wherever",
}


def identifiers(path: Path) -> set[str]:
    """Names that a module defines or binds, and the words of its own name."""
    found = {path.stem}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name))
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


@pytest.mark.slow
def test_no_name_has_a_word_that_is_no_term() -> None:
    words = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in PACKAGE.rglob("*.py")
        for name in identifiers(path)
        if PRIVATE & set(name.lower().split("_"))
    }
    assert words == set()
