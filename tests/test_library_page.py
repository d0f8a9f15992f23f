"""The examples of `docs/library.md` run as they stand, one after the other."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "library.md"
BLOCK = re.compile(r'^```python(?: title="with the extra (\w+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def program(text: str, requirement: str = "") -> str:
    """The blocks of a page that have a requirement, as one program."""
    return "\n".join(code for needed, code in BLOCK.findall(text) if needed == requirement)


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    script = folder / "page.py"
    script.write_text(code)
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(
        [sys.executable, script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_the_examples_run(tmp_path: Path) -> None:
    for engine in ("ortools", "numpy"):
        pytest.importorskip(engine)
    text = PAGE.read_text()
    assert text.count("```python") == len(BLOCK.findall(text)) >= 9
    outcome = run(program(text), tmp_path)
    assert outcome.returncode == 0, outcome.stderr
    assert "INFO:jigsaw_opt.solvers.listed:solving 'two jobs' with greedy" in outcome.stderr
    assert re.search(r"^\d+\.\d s: \d+, at least \d+$", outcome.stdout, re.MULTILINE)


@pytest.mark.slow
def test_the_example_with_devices_runs(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed (extra torch)")
    outcome = run(program(PAGE.read_text(), "torch"), tmp_path)
    assert outcome.returncode == 0, outcome.stderr
    assert re.fullmatch(r"\d+ (\d+|None)\n", outcome.stdout)


def test_an_example_that_no_longer_holds_is_noticed(tmp_path: Path) -> None:
    broken = program(PAGE.read_text()).replace("(1800, 1800, 0.0)", "(1801, 1801, 0.0)")
    assert run(broken, tmp_path).returncode != 0
