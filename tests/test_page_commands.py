"""What README, tutorial, first ten minutes and library page have a reader run, runs line by line in an empty folder.

Limits of time become limits of work, so that nothing depends on the speed of a machine.
"""

from __future__ import annotations

import json
import random
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.cli import COMMANDS, main
from jigsaw_opt.cli.common.parser import parser_of
from jigsaw_opt.documents.readers.traces import read_trace
from jigsaw_opt.instances.sources import bundled_workload, workload_names
from tests.installed import installed
from tests.pages import ROOT, section

BLOCK = re.compile(r'^```(console|python|csv|toml)(?: title="(.+?)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
EXTRA = "with the extra "
README, TUTORIAL, LIBRARY, COMMAND_LINE = (
    (ROOT / name).read_text() for name in ("README.md", "docs/tutorial.md", "docs/library.md", "docs/command-line.md")
)
IN_REPOSITORY = re.compile(
    r"^[^\n]*in the folder of this repository:\n\n```console\n.*?^```$", re.MULTILINE | re.DOTALL
)
LESSONS, _, TASKS = TUTORIAL.partition("\n## Tasks\n")
MADE = ("demo.html", "my.plan.json", "long.plan.json", "srtf/report.html", "policies/rows.csv")
FIRST_OUTPUT = {
    "new": r"assumed: model resnet50: estimated from data sheets, not measured",
    "solve": r"^objective +bound +gap +status .*\n2000328 +\d+ .*(optimal|feasible)",
    "check": r"^correct$",
    "explain": r"^vision .*\n^text +2,000,328 .*(.*\n)*The plan has 2,000,328",
    "plot": r"^wrote my.html$",
    "simulate": r"^workload +policy .*\njobs.csv +fifo +1 +0 .*\njobs.csv +las +1 +0 ",
}
"""By command of the first ten minutes, in their order, what it prints."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in ("ortools", "matplotlib"):
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commands(code: str) -> list[list[str]]:
    lines = [line.removeprefix("$ ") for line in code.splitlines() if line.startswith("$ jigsaw ")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


def in_work(words: list[str]) -> list[str]:
    """A command with a limit of work in place of its limit of time; phased plans have none, and get a second."""
    parser_of(COMMANDS).parse_args(words)
    if "--time-limit" not in words:
        return words
    at, own = words.index("--time-limit"), ["--work-limit", "1", "--threads", "1"]
    return [*words[:at], *(["--time-limit", "1"] if "phased" in words else own), *words[at + 2 :]]


def by_work(code: str) -> str:
    """A program whose solves have a limit of work."""
    return re.sub(r"time_limit=\d+", "work_limit=0.5", code)


def install(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """What `pip install .` does for a project."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    ((group, points),) = project["entry-points"].items()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.syspath_prepend(installed(folder, group, points))


def follow(text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str]]:
    """Run the blocks of a text in the current folder, and return each command with what it printed."""
    told = []
    for kind, title, code in BLOCK.findall(text):
        if title.startswith(EXTRA) and find_spec(title.removeprefix(EXTRA)) is None:
            continue
        if title and not title.startswith(EXTRA):
            Path(title).write_text(code)
            if title == "pyproject.toml":
                install(monkeypatch, Path.cwd())
            continue
        if kind == "python":
            exec(compile(by_work(code), "block", "exec"), {"__name__": "__main__"})
            continue
        for words in commands(code):
            capsys.readouterr()
            done, printed = main(in_work(words)), capsys.readouterr()
            assert done == 0, f"{words}: {printed.err}"
            assert words[0] != "check" or printed.out == "correct\n"
            told.append((words[0], printed.out + printed.err))
    return told


@pytest.mark.slow
def test_the_readme(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(follow(IN_REPOSITORY.sub("", README), monkeypatch, capsys)) >= 15


def test_lines_for_the_repository_name_what_is_there() -> None:
    (found,) = IN_REPOSITORY.findall(README)
    named = {word for words in commands(found) for word in words if word.startswith("examples/")}
    assert named and all((ROOT / word).is_file() for word in named)


@pytest.mark.slow
def test_the_first_ten_minutes(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    drawn, now, lines = random.Random(1), 0.0, ["arrival,gpus,duration_h"]
    for _ in range(200):
        now += drawn.expovariate(1 / 180)
        lines.append(f"{now:.0f},{drawn.choice((1, 1, 2, 4, 8))},{drawn.uniform(0.05, 2):.3f}")
    (here / "jobs.csv").write_text("\n".join(lines) + "\n")
    first = section(COMMAND_LINE, "The first ten minutes").partition("```console")[2].partition("```")[0]
    told = follow(f"```console{first}```", monkeypatch, capsys)
    assert [command for command, _ in told] == list(FIRST_OUTPUT)
    assert [printed for command, printed in told if not re.search(FIRST_OUTPUT[command], printed, re.MULTILINE)] == []
    assert "<html" in (here / "my.html").read_text()
    assert len((here / "policies" / "rows.csv").read_text().splitlines()) == 3


def test_every_block_of_the_tutorial_is_one_that_runs() -> None:
    for text in (LESSONS, TASKS):
        assert len(BLOCK.findall(text)) == len(re.findall(r"^```(?!sh\b)\w", text, re.MULTILINE)) >= 6
        lines = [line for kind, _, code in BLOCK.findall(text) if kind == "console" for line in code.splitlines()]
        assert all(line.startswith("$ jigsaw ") for line in lines)


@pytest.mark.slow
def test_the_tutorial(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    follow(LESSONS, monkeypatch, capsys)
    assert all((here / name).stat().st_size for name in MADE)


@pytest.mark.slow
@pytest.mark.parametrize("task", re.split(r"^### ", TASKS, flags=re.MULTILINE)[1:], ids=lambda it: it.split("\n")[0])
def test_a_task_of_the_tutorial(
    task: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    follow(task, monkeypatch, capsys)
    assert any(here.iterdir()) or task.startswith("Embed solve in a loop")


def library(title: str = "", change: tuple[str, str] = ("", "")) -> subprocess.CompletedProcess[str]:
    """Run the programs of the library page that have a title as one, in the current folder."""
    program = "\n".join(code for kind, found, code in BLOCK.findall(LIBRARY) if (kind, found) == ("python", title))
    Path("page.py").write_text(program.replace(*change) if change[0] else program)
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(Path.cwd())}
    return subprocess.run([sys.executable, "page.py"], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_page_of_the_library(here: Path) -> None:
    assert LIBRARY.count("```python") == sum(kind == "python" for kind, _, _ in BLOCK.findall(LIBRARY)) >= 9
    outcome = library()
    assert outcome.returncode == 0, outcome.stderr
    assert "INFO:jigsaw_opt.solvers.run:solving 'two jobs' with greedy" in outcome.stderr
    assert re.search(r"^\d+\.\d s: \d+, at least \d+$", outcome.stdout, re.MULTILINE)
    assert library(change=("(1800, 1800, 0.0)", "(1801, 1801, 0.0)")).returncode != 0, "it notices what does not hold"


@pytest.mark.slow
def test_the_page_of_the_library_with_devices(here: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed (extra torch)")
    outcome = library(f"{EXTRA}torch")
    assert outcome.returncode == 0, outcome.stderr
    assert re.fullmatch(r"\d+ (\d+|None)\n", outcome.stdout)


@pytest.mark.parametrize(("name", "jobs", "most"), [("day", 60, 4), ("week", 300, 8)])
def test_bundled_workloads(name: str, jobs: int, most: int) -> None:
    path = bundled_workload(name)
    assert path is not None and name in workload_names() and bundled_workload("none") is None
    found = read_trace("csv", path.read_bytes(), name).jobs
    assert (len(found), max(job.gpus for job in found)) == (jobs, most)


@pytest.mark.slow
def test_the_notebook_runs_cell_by_cell() -> None:
    notebook = json.loads((ROOT / "examples" / "tutorial.ipynb").read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    names: dict[str, Any] = {}
    for code in (by_work("".join(cell["source"])) for cell in notebook["cells"] if cell["cell_type"] == "code"):
        exec(compile(code, "cell", "exec"), names)
        last = code.splitlines()[-1]
        shown = eval(last, names) if last.isidentifier() or last.startswith(("jo.picture", "days[")) else None
        assert shown is None or "<t" in shown._repr_html_() or "<iframe" in shown._repr_html_()
    fifo, srtf = (names["days"][policy].summary.mean_completion_h for policy in ("fifo", "srtf"))
    assert srtf < fifo
