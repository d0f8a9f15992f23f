"""Functions and files of the package stay short enough to be read at once (CONTRIBUTING.md)."""

from __future__ import annotations

import ast
from pathlib import Path
from statistics import median

PACKAGE = Path(__file__).parents[1] / "jigsaw_opt"
FILES = sorted(PACKAGE.rglob("*.py"))
FUNCTION_LINES = 80
FILE_LINES = 400


def lengths() -> dict[str, int]:
    """Lines of every function, its head and docstring included, by module and qualified name."""
    found: dict[str, int] = {}
    for path in FILES:
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        pending: list[tuple[str, ast.AST]] = [(module, ast.parse(path.read_text()))]
        while pending:
            name, node = pending.pop()
            for child in ast.iter_child_nodes(node):
                named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                below = f"{name}.{child.name}" if named else name  # type: ignore[attr-defined]
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                    # Overloads and conditional definitions share a name: the longest counts.
                    size = (child.end_lineno or child.lineno) - child.lineno + 1
                    found[below] = max(size, found.get(below, 0))
                pending.append((below, child))
    return found


LENGTHS = lengths()


def test_no_function_is_too_long() -> None:
    assert not {name: lines for name, lines in LENGTHS.items() if lines > FUNCTION_LINES}


def test_most_functions_are_short() -> None:
    in_order = sorted(LENGTHS.values())
    assert median(in_order) <= 10
    assert in_order[int(0.9 * len(in_order))] <= 35


def test_no_file_is_too_long() -> None:
    lines = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in FILES}
    assert lines
    assert not {name: count for name, count in lines.items() if count > FILE_LINES}
