"""Tools of the repository, which no source archive has: the checks of a commit."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]


def hook(name: str) -> dict[str, Any]:
    (found,) = (each for repository in HOOKS for each in repository["hooks"] if each["id"] == name)
    return dict(found)


def test_the_hooks_are_fetched_from_nowhere() -> None:
    assert {repository["repo"] for repository in HOOKS} == {"local"}


def test_commits_are_checked_with_the_tools_of_the_environment() -> None:
    for name in ("ruff", "ruff-format", "mypy"):
        assert hook(name)["entry"].startswith(".venv/bin/")
        assert hook(name)["language"] == "system"


def test_the_hooks_are_in_order_for_pre_commit() -> None:
    pytest.importorskip("pre_commit", reason="pre-commit is not installed (extra dev)")
    command = [sys.executable, "-m", "pre_commit", "validate-config", ".pre-commit-config.yaml"]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize(("length", "refused"), [(10, False), (72, False), (73, True), (200, True)])
def test_subjects_of_commits_are_short(length: int, refused: bool) -> None:
    """The hook is a pattern over the whole message; bodies may be as wide as they like."""
    message = f"{'x' * length}\n\n{'y' * 300}\n"
    assert hook("subject")["stages"] == ["commit-msg"] and "--multiline" in hook("subject")["args"]
    assert bool(re.search(hook("subject")["entry"], message, re.MULTILINE | re.DOTALL)) is refused
