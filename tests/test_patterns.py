"""No regular expression of the package takes far longer for blanks, or for any other text, than for as much prose."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from tests.modules import PACKAGE, sources, trees
from tests.patterns import begins_with_any_number, grows_faster_than_the_text

CALLS = {"compile", "match", "fullmatch", "search", "split", "sub", "subn", "findall", "finditer"}
AT_ONE_PLACE = {"match", "fullmatch"}


def value_of(node: ast.expr, path: str) -> Any:
    """Return a constant, or what an expression is in its module; None where only a run knows it."""
    if isinstance(node, ast.Constant):
        return node.value
    name = f"jigsaw_opt.{path.removesuffix('.py').replace('/', '.')}"
    try:
        return eval(compile(ast.Expression(node), path, "eval"), vars(import_module(name)))
    except (ImportError, NameError):
        return None


def patterns_of(path: str, tree: ast.AST) -> Iterator[tuple[str | bytes, int, set[str]]]:
    """Yield the patterns of a module with their flags and with the functions that they are given to."""
    uses: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            uses.setdefault(node.value.id, set()).add(node.attr)
    named = {
        id(node.value): target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
            continue
        if not isinstance(node.func.value, ast.Name) or node.func.value.id != "re" or node.func.attr not in CALLS:
            continue
        pattern = value_of(node.args[0], path)
        positional = node.args[1:2] if node.func.attr == "compile" else []
        given = [*positional, *(one.value for one in node.keywords if one.arg == "flags")]
        flags = value_of(given[0], path) if given else 0
        if isinstance(pattern, str | bytes):
            how = {node.func.attr} if node.func.attr != "compile" else uses.get(named.get(id(node), ""), set()) & CALLS
            yield pattern, int(flags or 0), how


def schemas() -> Iterator[str]:
    todo: list[Any] = [json.loads(path.read_text()) for path in PACKAGE.rglob("schemas/*.json")]
    while todo:
        tree = todo.pop()
        if isinstance(tree, dict):
            todo += tree.values()
            if isinstance(tree.get("pattern"), str):
                yield tree["pattern"]
        elif isinstance(tree, list):
            todo += tree


def test_no_two_repeats_of_a_pattern_divide_one_text() -> None:
    using = [path for path, text in sources().items() if "import re\n" in text]
    found = {path: list(patterns_of(path, trees()[path])) for path in using}
    assert sum(map(len, found.values())) > 80
    slow = [
        (path, pattern)
        for path, patterns in found.items()
        for pattern, flags, how in patterns
        if grows_faster_than_the_text(pattern, flags) or (how - AT_ONE_PLACE and begins_with_any_number(pattern, flags))
    ]
    slow += [("schema", pattern) for pattern in schemas() if grows_faster_than_the_text(pattern)]
    assert not slow, "\n".join(map(str, slow))


@pytest.mark.parametrize(
    ("pattern", "slow"),
    [
        (r"\s*(?:\x1b\[[0-9;]*m)*\s*GPU0", True),
        (r"a\s*[:=]?\s+b", True),
        (r"a(?:\s*[:=])?\s+b", False),
        (r"(?s:.*gpu.*)", True),
        (r"(?s).*gpu.*", False),
        (r"(?:a+b?)+c", True),
        (r"(?:a+b)+c", False),
        (r'"(?:[^"\\]|\\.)*"', False),
        (r"\w+[0-9]+x", True),
    ],
)
def test_what_is_slow_is_known(pattern: str, slow: bool) -> None:
    re.compile(pattern)
    assert grows_faster_than_the_text(pattern) == slow


def test_a_search_that_begins_with_any_number_is_known() -> None:
    assert begins_with_any_number(" +(?:UTC|GMT)$") and begins_with_any_number(r"(?:\s*|x)y")
    assert (
        not begins_with_any_number(r"^.*a")
        and not begins_with_any_number(r"[^\x00-\x7f]+")
        and not begins_with_any_number(" {1,9}UTC")
    )
