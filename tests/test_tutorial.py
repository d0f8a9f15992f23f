"""The tutorial and its tasks run as they stand, line by line in an empty folder."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r'^```(console|python|csv|toml)(?: title="(.+?)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
EXTRA = "with the extra "
SECTION = re.compile(r"^### ", re.MULTILINE)
MADE = ("demo.html", "my.plan.json", "long.plan.json", "srtf/report.html", "policies/rows.csv")


def blocks(text: str) -> list[tuple[str, ...]]:
    """Kind, title and code of every block; a title is the name of a file, or says which extra is needed."""
    return BLOCK.findall(text)


def parts() -> tuple[str, str]:
    """Return the tutorial, and the tasks that stand behind it."""
    tutorial, tasks = (ROOT / "docs" / "tutorial.md").read_text().split("\n## Tasks\n")
    return tutorial, tasks


def tasks() -> dict[str, str]:
    """Text of each task by its title."""
    found = SECTION.split(parts()[1])[1:]
    return {part.partition("\n")[0]: part for part in found}


def test_every_block_is_one_that_runs() -> None:
    for text in parts():
        assert len(blocks(text)) == len(re.findall(r"^```(?!sh\b)\w", text, re.MULTILINE)) >= 6
        lines = [line for kind, _, code in blocks(text) if kind == "console" for line in code.splitlines()]
        assert all(line.startswith("$ jigsaw ") for line in lines)


def install(folder: Path) -> None:
    """What `pip install .` leaves of a project: its entry points, beside its modules."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    told = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    told.mkdir()
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [
        line
        for group, points in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (told / "entry_points.txt").write_text("\n".join(lines) + "\n")


def follow(text: str, folder: Path) -> None:
    """Run the blocks of a text in a folder."""
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    for kind, title, code in blocks(text):
        if title and not title.startswith(EXTRA):
            (folder / title).write_text(code)
            if title == "pyproject.toml":
                install(folder)
            continue
        if title and find_spec(title.removeprefix(EXTRA)) is None:
            continue
        commands = [code] if kind == "python" else [line.removeprefix("$ jigsaw ") for line in code.splitlines()]
        for command in commands:
            words = ["-c", command] if kind == "python" else ["-m", "jigsaw_opt", *shlex.split(command)]
            done = subprocess.run(
                [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{command}: {done.stderr}"
            if command.startswith("check "):
                assert done.stdout == "correct\n"


@pytest.mark.slow
def test_the_tutorial(tmp_path: Path) -> None:
    for module in ("ortools", "matplotlib"):
        pytest.importorskip(module)
    follow(parts()[0], tmp_path)
    assert all((tmp_path / name).stat().st_size for name in MADE)


@pytest.mark.slow
@pytest.mark.parametrize("title", tasks())
def test_a_task(title: str, tmp_path: Path) -> None:
    for module in ("ortools", "matplotlib"):
        pytest.importorskip(module)
    follow(tasks()[title], tmp_path)
    assert any(tmp_path.iterdir()) or title == "Embed solve in a loop"
