"""The page on the architecture names rooms and functions that are there."""

from __future__ import annotations

import ast
import re

from tests.modules import trees
from tests.pages import ROOT
from tests.test_layers import ROOMS, SOLVERS

PAGE, GUIDE = ((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("architecture", "extending"))
STOPS = re.findall(r"`([\w/]+\.py):([\w.]+)`", PAGE + GUIDE)


def defined(tree: ast.AST) -> set[str]:
    """Functions, classes and methods of a module, as in ``Class.method``."""
    found: set[str] = set()
    pending: list[tuple[str, ast.AST]] = [("", tree)]
    while pending:
        above, node = pending.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(above + child.name)
                pending.append((f"{above}{child.name}.", child))
    return found


def test_the_ways_through_the_code_lead_to_what_is_there() -> None:
    assert len(STOPS) > 30
    assert [(file, name) for file, name in STOPS if file not in trees() or name not in defined(trees()[file])] == []


def test_the_guide_names_files_that_are_there() -> None:
    files = re.findall(r"`([\w./-]+\.(?:py|json|md))(?=[`:])", GUIDE)
    assert len(files) > 40
    assert [file for file in files if not any((room / file).is_file() for room in (ROOT, ROOT / "jigsaw_opt"))] == []


def test_the_table_has_all_rooms_from_the_ground_up() -> None:
    rows = re.findall(r"^\| `(\w+)/?` \|", PAGE, re.MULTILINE)
    assert tuple(rows) == ROOMS


def test_the_list_has_all_that_is_inside_solvers_from_the_ground_up() -> None:
    order = PAGE.split("never one behind it:")[1].split("\nAt the root")[0]
    names = [line.split(": ")[0] for line in order.splitlines() if line]
    assert tuple(name for line in names for name in re.findall(r"`(\w+)/?`", line)) == SOLVERS


def test_a_way_is_short_enough_to_walk() -> None:
    ways = PAGE.split("\n### ")[1:]
    assert len(ways) == 3
    assert all(5 <= len(re.findall(r"^\d+\. ", way, re.MULTILINE)) <= 16 for way in ways)
