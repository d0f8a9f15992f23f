"""What people find around the code: one version, one licence, a citation."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import jigsaw_opt
from jigsaw_opt.cli import main
from jigsaw_opt.instances import load
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CITATION = yaml.load((ROOT / "CITATION.cff").read_text(), yaml.BaseLoader)


def test_the_version_stands_in_one_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "jigsaw_opt.__version__"}
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"jigsaw {jigsaw_opt.__version__}\n"
    plan = solve(load("tiny/000"), "greedy", Options()).plan
    assert plan is not None and plan.solver["version"] == jigsaw_opt.__version__


def test_citation_and_changelog_are_of_this_version() -> None:
    # What the Citation File Format 1.2.0 asks of the keys that we use.
    assert CITATION.keys() >= {"authors", "cff-version", "message", "title", "abstract", "keywords"}
    assert (CITATION["cff-version"], CITATION["title"], CITATION["type"]) == ("1.2.0", "jigsaw_opt", "software")
    assert all(author.keys() == {"name"} for author in CITATION["authors"])
    releases = re.findall(r"^## \[(.+?)\] - (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert releases[0] == (CITATION["version"], CITATION["date-released"])
    assert CITATION["version"] == jigsaw_opt.__version__


def test_the_licence_is_apache_2_as_it_is() -> None:
    digest = hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest()
    assert digest == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
    assert CITATION["license"] == "Apache-2.0" and PROJECT["project"]["license"] == "Apache-2.0 AND MIT"
    assert all((ROOT / name).is_file() for name in PROJECT["project"]["license-files"])
    assert "jigsaw_opt" in (ROOT / "NOTICE").read_text()


def test_constraints_hold_every_requirement() -> None:
    """Each direct requirement has a version there that it admits, on every system and Python."""
    pinned: dict[str, list[str]] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        requirement = Requirement(line)
        pinned.setdefault(canonicalize_name(requirement.name), []).extend(
            each.version for each in requirement.specifier
        )
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = [Requirement(each) for each in sum(extras, PROJECT["project"]["dependencies"])]
    others = [each for each in wanted if canonicalize_name(each.name) != PROJECT["project"]["name"]]
    assert len(others) > 20
    for each in others:
        versions = pinned.get(canonicalize_name(each.name), [])
        assert versions and all(version in each.specifier for version in versions), each


def test_files_of_tests_have_names_of_their_own() -> None:
    """Two of the same name in rooms of tests would be taken for one module."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names)) > 50
