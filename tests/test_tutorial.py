"""The tutorial runs as it stands, line by line in an empty folder."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(console|python)(?: requires=(\w+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MADE = ("demo.html", "my.plan.json", "long.plan.json", "srtf/report.html", "policies/rows.csv")


def test_every_block_is_one_that_runs() -> None:
    text = PAGE.read_text()
    assert len(BLOCK.findall(text)) == len(re.findall(r"^```(?:console|python)", text, re.MULTILINE)) >= 7
    lines = [line for kind, _, code in BLOCK.findall(text) if kind == "console" for line in code.splitlines()]
    assert all(line.startswith("$ jigsaw ") for line in lines)


@pytest.mark.slow
def test_the_tutorial(tmp_path: Path) -> None:
    for module in ("ortools", "matplotlib"):
        pytest.importorskip(module)
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    for kind, _, code in BLOCK.findall(PAGE.read_text()):
        commands = [code] if kind == "python" else [line.removeprefix("$ jigsaw ") for line in code.splitlines()]
        for command in commands:
            words = ["-c", command] if kind == "python" else ["-m", "jigsaw_opt", *shlex.split(command)]
            done = subprocess.run(
                [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{command}: {done.stderr}"
            if command.startswith("check "):
                assert done.stdout == "correct\n"
    assert all((tmp_path / name).stat().st_size for name in MADE)
