"""The rooms import only downward, without a cycle, and no engine is imported at the head of a module.

Imports inside functions count as those at the head do.
"""

from __future__ import annotations

import ast
from pathlib import Path

import networkx as nx
import pytest

PACKAGE = Path(__file__).parents[1] / "jigsaw_opt"
ROOMS = (
    "text",
    "errors",
    "system",
    "problem",
    "documents",
    "routing",
    "checking",
    "formulations",
    "solvers",
    "instances",
    "planning",
    "scheduling",
    "simulation",
    "executor",
    "sweeps",
    "views",
    "cli",
)
SOLVERS = (
    *("engines", "kernels"),
    *("bounds", "result", "infeasibility"),
    *(
        "params",
        "options",
        "stop",
        "correct",
        "proofs",
        "solve_state",
        "bound_tightening",
        "registry",
    ),
    *("assignments", "activities", "greedy"),
    *("cpsat", "ilp"),
    *("search", "allocation"),
    "portfolio",
    *("listed", "resolve", "explanation", "phased", "failure_repair"),
    *("solve", "solving", "session"),
)
"""Folders and modules of the room of solvers, from the ground up."""
ENGINES = {"highspy", "matplotlib", "networkx", "numpy", "ortools", "pulp", "ray", "rich", "torch"}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem in ("text", "errors"))


def imports(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, "imports are absolute"
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def head_imports(tree: ast.Module) -> set[str]:
    """What a module imports when it is loaded: not inside functions, not for the type checker."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= imports(ast.Module([node], []))
    return found


def used_imports(tree: ast.AST) -> set[str]:
    """What a module imports when it is loaded or used: not for the type checker alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    return imports(tree)


def room(module: str) -> str:
    return module.split(".")[1]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_only_downward(path: Path) -> None:
    own = ROOMS.index(path.relative_to(PACKAGE).parts[0].removesuffix(".py"))
    used = {name for name in imports(ast.parse(path.read_text())) if name.startswith("jigsaw_opt.")}
    above = sorted(name for name in used if room(name) in ROOMS and ROOMS.index(room(name)) > own)
    assert not above


@pytest.mark.parametrize("own", SOLVERS)
def test_imports_inside_solvers_point_only_downward(own: str) -> None:
    folder = PACKAGE / "solvers" / own
    paths = folder.rglob("*.py") if folder.is_dir() else [folder.with_suffix(".py")]
    used = {tuple(name.split(".")) for path in paths for name in imports(ast.parse(path.read_text()))}
    names = {name[2] for name in used if name[:2] == ("jigsaw_opt", "solvers") and len(name) > 2}
    assert names <= {*SOLVERS[: SOLVERS.index(own) + 1]}


def test_all_that_is_inside_solvers_has_its_place() -> None:
    paths = (PACKAGE / "solvers").iterdir()
    inside = [path for path in paths if path.suffix == ".py" or (path / "__init__.py").exists()]
    assert sorted(path.stem for path in inside) == sorted(("__init__", *SOLVERS))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_engines_are_imported_only_where_they_are_used(path: Path) -> None:
    heads = {name.split(".")[0] for name in head_imports(ast.parse(path.read_text()))}
    # Modules are torch's classes, so the executor needs torch at the head; the next test keeps this in its room.
    allowed = {"torch"} if path.relative_to(PACKAGE).parts[0] == "executor" else set()
    assert not heads & (ENGINES - allowed)


def test_torch_is_loaded_only_by_modules_of_the_executor_that_are_imported_when_used() -> None:
    heads = {name: head_imports(ast.parse(path.read_text())) for name, path in module_names().items()}
    loading = {name for name, used in heads.items() if any(u.split(".")[0] == "torch" for u in used)}
    while more := {name for name, used in heads.items() if used & loading} - loading:
        loading |= more
    assert loading
    assert {room(name) for name in loading} == {"executor"}
    assert "jigsaw_opt.executor" not in loading


def module_names() -> dict[str, Path]:
    names = {f"jigsaw_opt.{'.'.join(p.relative_to(PACKAGE).with_suffix('').parts)}": p for p in MODULES}
    return {name.removesuffix(".__init__"): path for name, path in names.items()}


@pytest.mark.slow
def test_there_is_no_import_cycle() -> None:
    names = module_names()
    graph: nx.DiGraph[str] = nx.DiGraph()
    for name, path in names.items():
        for used in used_imports(ast.parse(path.read_text())):
            if used in names and used != name:
                graph.add_edge(name, used)
    # A package's front door imports its own modules, which may import their siblings, never the door.
    assert list(nx.simple_cycles(graph)) == []
