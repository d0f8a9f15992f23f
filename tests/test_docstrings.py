"""Docstrings: sections where a stranger calls, a short text everywhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.modules import trees
from tests.pages import ROOT

SECTION = re.compile(r"^(Parameters|Returns|Yields|Raises|Attributes)\n-+$", re.MULTILINE)
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Names:
    """What the modules of the package define, list in `__all__` and import from each other."""

    def __init__(self) -> None:
        self.trees = {f"jigsaw_opt/{path}": tree for path, tree in trees().items()}
        self.paths = {path[:-3].removesuffix("/__init__").replace("/", "."): path for path in self.trees}
        self.pages = "\n".join(page.read_text() for page in (*ROOT.glob("docs/*.md"), ROOT / "README.md"))

    def listed(self, module: str) -> set[str]:
        for node in self.trees[self.paths[module]].body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                return {ast.literal_eval(entry) for entry in getattr(node.value, "elts", ())}
        return set()

    def home(self, module: str, name: str, seen: frozenset[str] = frozenset()) -> tuple[str, str] | None:
        """The file that defines what a module calls `name`, and its name there; None for a constant or a module."""
        if module not in self.paths or module in seen:
            return None
        path = self.paths[module]
        if any(isinstance(node, Definition) and node.name == name for node in self.trees[path].body):
            return path, name
        for node in ast.walk(self.trees[path]):
            for alias in node.names if isinstance(node, ast.ImportFrom) and node.module else ():
                if (alias.asname or alias.name) == name:
                    return self.home(str(node.module), alias.name, seen | {module})
        return None

    def public(self) -> set[tuple[str, str]]:
        """File and name of all that the package lists, that a room lists and a page names, or that a page imports."""
        code = set(re.findall(r"[A-Za-z_]\w*", " ".join(re.findall(r"```.*?```|`[^`\n]+`", self.pages, re.DOTALL))))
        found = {
            self.home(module, name)
            for module, path in self.paths.items()
            if path.endswith("__init__.py")
            for name in self.listed(module)
            if module == "jigsaw_opt" or name in code
        }
        for module, names in re.findall(r"from (jigsaw_opt[\w.]*) import (\([^)]*\)|[^\n]*)", self.pages):
            found |= {self.home(module, name) for name in re.findall(r"\w+", names)}
        found |= {self.home(*parts) for parts in re.findall(r"\b(jigsaw_opt(?:\.\w+)*)\.(\w+)", self.pages)}
        return {entry for entry in found if entry}


def definitions(node: ast.AST, public: set[str]) -> Iterator[tuple[Definition, bool]]:
    """All classes and functions below a node, and whether a stranger calls them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            bases = {ast.unparse(base).partition("[")[0] for base in getattr(child, "bases", ())}
            contract = bool(bases & {"Protocol", "ABC"}) and not child.name.startswith("_")
            called = child.name in public or ("*" in public and not child.name.startswith("_")) or contract
            yield child, called
            yield from definitions(child, {"*"} if called and isinstance(child, ast.ClassDef) else set())
        else:
            yield from definitions(child, public)


@pytest.fixture(scope="module")
def documented() -> list[tuple[str, Definition, bool, str]]:
    names = Names()
    public = names.public()
    return [
        (f"{path}:{node.name}", node, called, ast.get_docstring(node) or "")
        for path, tree in names.trees.items()
        for node, called in definitions(tree, {name for place, name in public if place == path})
    ]


def test_what_a_stranger_calls_says_what_it_takes(documented: list[tuple[str, Definition, bool, str]]) -> None:
    silent = {
        place
        for place, node, called, text in documented
        if called
        and not isinstance(node, ast.ClassDef)
        and not node.decorator_list
        and len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs) > 2
        and "Parameters\n---" not in text
    }
    assert silent == set()


def test_what_nobody_else_calls_has_no_sections(documented: list[tuple[str, Definition, bool, str]]) -> None:
    assert {place for place, _, called, text in documented if not called and SECTION.search(text)} == set()


def test_no_private_docstring_is_longer_than_its_function(documented: list[tuple[str, Definition, bool, str]]) -> None:
    assert {place for place, node, called, text in documented if not called and is_too_long(node, text)} == set()


def is_too_long(node: Definition, text: str) -> bool:
    """Whether a docstring has more lines than the rest; up to six lines a formula may take or a reason."""
    if isinstance(node, ast.ClassDef) or not text:
        return False
    lines = text.count("\n") + 1
    return lines > max(6, int(node.end_lineno or 0) - node.lineno - lines)
