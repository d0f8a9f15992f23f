"""Every line of the README runs from an empty folder; those that need PyTorch name files that are there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from jigsaw_opt.documents.readers.traces.registry import read_trace
from jigsaw_opt.instances.sources import bundled_workload, workload_names

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HERE = "in the folder of this repository"


def blocks() -> list[tuple[str, str, bool]]:
    """Kind and code of every block, and whether it wants the repository's folder."""
    text = (ROOT / "README.md").read_text()
    return [(each[1], each[2], HERE in text[: each.start()].rsplit("\n\n", 2)[-2]) for each in BLOCK.finditer(text)]


def commands(code: str) -> list[list[str]]:
    lines = [line.removeprefix("$ ") for line in code.splitlines() if line.startswith("$ jigsaw ")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


@pytest.mark.slow
def test_every_line_runs_from_an_empty_folder(tmp_path: Path) -> None:
    for module in ("ortools", "matplotlib"):
        pytest.importorskip(module)
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    count = 0
    for kind, code, block in blocks():
        runs = [["-m", "jigsaw_opt", *words] for words in commands(code)] if kind == "console" else [["-c", code]]
        for words in [] if block else runs:
            done = subprocess.run(
                [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{words}: {done.stderr}"
            count += 1
    assert count >= 15


def test_lines_for_the_repository_name_what_is_there() -> None:
    (code,) = [code for _, code, block in blocks() if block]
    named = {word for words in commands(code) for word in words if word.startswith("examples/")}
    assert named and all((ROOT / word).is_file() for word in named)


@pytest.mark.parametrize(("name", "jobs", "most"), [("day", 60, 4), ("week", 300, 8)])
def test_bundled_workloads(name: str, jobs: int, most: int) -> None:
    path = bundled_workload(name)
    assert path is not None and name in workload_names() and bundled_workload("none") is None
    found = read_trace("csv", path.read_bytes(), name).jobs
    assert (len(found), max(job.gpus for job in found)) == (jobs, most)
