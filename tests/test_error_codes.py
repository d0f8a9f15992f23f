"""Every problem has a code of one short list, which outlives its sentence."""

from __future__ import annotations

import ast
import copy
import pickle
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

import pytest

from jigsaw_opt.errors import CODES, Code, InvalidInputError, Problem, Problems, UsageError
from jigsaw_opt.problem.rules.report import Report
from tests.modules import sources, trees
from tests.pages import ROOT
from tests.refusals import misuse, refused, refuses


def without_code(tree: ast.AST) -> Iterator[int]:
    """Yield the lines at which a problem or a usage error is made of a sentence, and no code is given."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        needed = {"Problem": 4, "UsageError": 10**6}.get(node.func.id)
        passed_on = all(isinstance(given, ast.Starred) for given in node.args)  # problems, with their codes
        named = any(keyword.arg == "code" for keyword in node.keywords)
        if needed and not named and not (node.func.id == "UsageError" and passed_on) and len(node.args) < needed:
            yield node.lineno


def test_the_page_lists_all_codes_and_no_other() -> None:
    listed = dict(re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", (ROOT / "docs" / "library.md").read_text(), re.MULTILINE))
    assert listed == CODES
    assert list(get_args(Code)) == sorted(CODES)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in CODES)


def test_every_problem_of_the_package_states_its_code() -> None:
    found = {path: lines for path, tree in trees().items() if (lines := list(without_code(tree)))}
    assert found == {}
    wrong = 'Problem("$", "is wrong")\nUsageError("is wrong")\nUsageError(*found)\nProblem("$", "no", "", code)'
    assert list(without_code(ast.parse(wrong))) == [1, 2]


def test_every_code_is_used() -> None:
    text = "".join(text for path, text in sources().items() if path != "errors.py")
    assert {code for code in CODES if f'"{code}"' not in text} <= {"invalid"}


def test_a_problem_of_a_plug_in_needs_no_code() -> None:
    problem = Problem("$.jobs", "is wrong", "mend it")
    assert (problem.code, str(problem)) == ("invalid", "$.jobs: is wrong (mend it)")
    assert refused(UsageError("is wrong")) == ["invalid"]


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_codes_are_kept_in_copies_and_in_other_processes(again) -> None:  # type: ignore[no-untyped-def]
    problem = Problem("$.jobs", "is wrong", code="empty")
    usage = again(UsageError("must be above 0", problem, code="out-of-range", path="seed"))
    assert refused(usage) == ["out-of-range seed", "empty $.jobs"]
    assert usage.args == ("must be above 0", "$.jobs: is wrong")
    assert again(InvalidInputError([problem])).problems == (problem,)


def test_codes_are_kept_where_problems_are_gathered() -> None:
    problem = Problem("$.jobs", "is wrong", code="empty")
    first, second = Problems(), Problems()
    with first.of("the instance"):
        raise InvalidInputError([problem])
    with second.of("the cluster"):
        raise UsageError("there is no such cluster", code="unknown-name", path="cluster")
    with misuse("unknown-name the cluster") as caught:
        second.tell()
    assert caught.value.args == ("the cluster: there is no such cluster",)
    first.include(second)
    with refuses("unknown-name the cluster", "empty the instance $.jobs"):
        first.tell()
    report = Report()
    report.include([problem], ("$", "instance"))
    assert report.problems == [replace(problem, path="$.instance.jobs")]
    report.add_misspelt("$", "there is no zebra", "zebra", dict.fromkeys(("pike", "carp")))
    assert report.problems[1].hint == 'known here: "carp", "pike"'
