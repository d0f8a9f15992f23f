"""The rooms import only downward, without a cycle, and no engine is imported at the head of a module.

Imports inside functions count as those at the head do.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Sequence

import networkx as nx
import pytest

from tests.modules import trees

ROOMS = (
    "text",
    "errors",
    "arguments",
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
    "serving",
    "cli",
)
SOLVERS = (
    *("engines", "kernels"),
    *("bounds", "case_search", "result", "infeasibility"),
    *(
        "params",
        "options",
        "stop",
        "correct",
        "solve_state",
        "bound_tightening",
        "certification",
        "registry",
        "run",
    ),
    *("placement", "activities", "greedy"),
    *("cpsat", "ilp"),
    *("search", "allocation"),
    "portfolio",
    *("resolve", "explanation", "phased"),
    *("solve", "failure_repair", "failures", "solving", "session"),
)
"""Folders and modules of the room of solvers, from the ground up."""
FLOORS = {
    "solvers": SOLVERS,
    "checking.proofs": ("step", "facts", "rows", "kinds", "arguments"),
    "documents.readers": (
        *("tally", "times", "lines", "table", "tree"),
        *("workload_csv", "traces", "philly", "gavel", "outages", "solutions"),
        *("slurm", "kubernetes", "profiles", "kineto", "chakra"),
    ),
    "scheduling": (
        *(
            "memo",
            "dependencies",
            "option_values",
            "plain",
            "allocation",
            "link_routes",
            "performance",
            "gpu_pools",
            "policy",
        ),
        *("placement", "policy_at_work"),
        *("policies", "live"),
    ),
    "executor": (
        *("randomness", "devices", "level_schedule", "catalogue", "processes"),
        *("models", "exchange", "partial", "user_code", "worker", "own_worker"),
        *("schedules", "pipeline", "hosts", "replay", "run_plan", "following"),
        "profiling",
    ),
    "simulation": ("engine", "inputs", "prediction", "results", "simulate"),
}
"""Folders and modules of rooms, from the ground up."""
ENGINES = {"highspy", "matplotlib", "networkx", "numpy", "ortools", "pulp", "ray", "rich", "torch"}
MODULES = {
    f"jigsaw_opt.{path.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}": tree
    for path, tree in trees().items()
    if "/" in path or path in ("text.py", "errors.py", "arguments.py")
}
"""Trees of all modules but those of the facade, by their names."""


def imports(tree: ast.AST, but: Container[int] = ()) -> set[str]:
    """What a module imports anywhere, but for nodes with these identities."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in but:
            continue
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
    checked = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    return imports(tree, {id(below) for node in checked for each in node.body for below in ast.walk(each)})


def room(module: str) -> str:
    return module.split(".")[1]


def above(package: str, order: Sequence[str]) -> list[tuple[str, str]]:
    """Modules of a package with what they import of it that stands above them in an order."""
    ranks = {f"{package}.{name}": rank for rank, name in enumerate(order)}

    def rank(module: str) -> int:
        return ranks.get(".".join(module.split(".")[: package.count(".") + 2]), -1)

    inside = {name: tree for name, tree in MODULES.items() if rank(name) >= 0}
    return [(name, used) for name, tree in inside.items() for used in imports(tree) if rank(used) > rank(name)]


def test_imports_point_only_downward() -> None:
    assert above("jigsaw_opt", ROOMS) == []


@pytest.mark.parametrize("name", FLOORS)
def test_imports_inside_a_room_point_only_downward(name: str) -> None:
    package = f"jigsaw_opt.{name}"
    depth = package.count(".") + 1
    assert {module.split(".")[depth] for module in MODULES if module.startswith(package + ".")} == {*FLOORS[name]}
    assert above(package, FLOORS[name]) == []


def test_engines_are_imported_only_where_they_are_used() -> None:
    heads = {(name, used.split(".")[0]) for name, tree in MODULES.items() for used in head_imports(tree)}
    engines = {(name, library) for name, library in heads if library in ENGINES}
    # Modules are torch's classes, so the executor needs torch at the head; the next test keeps this in its room.
    assert {(name, library) for name, library in engines if (room(name), library) != ("executor", "torch")} == set()


def test_torch_is_loaded_only_by_modules_of_the_executor_that_are_imported_when_used() -> None:
    heads = {name: head_imports(tree) for name, tree in MODULES.items()}
    loading = {name for name, used in heads.items() if any(u.split(".")[0] == "torch" for u in used)}
    while more := {name for name, used in heads.items() if used & loading} - loading:
        loading |= more
    assert loading
    assert {room(name) for name in loading} == {"executor"}
    assert "jigsaw_opt.executor" not in loading


def test_there_is_no_import_cycle() -> None:
    graph: nx.DiGraph[str] = nx.DiGraph()
    for name, tree in MODULES.items():
        for used in used_imports(tree):
            if used in MODULES and used != name:
                graph.add_edge(name, used)
    # A package's front door imports its own modules, which may import their siblings, never the door.
    assert list(nx.simple_cycles(graph)) == []
