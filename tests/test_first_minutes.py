"""The commands of the first ten minutes run as the page has them, one after the other in one folder."""

from __future__ import annotations

import random
import re
import shlex
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

import pytest

from jigsaw_opt.cli.clusters.simulate import configure

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "command-line.md"
SECTION = re.compile(r"^## The first ten minutes\n.*?^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OUTPUT = {
    "new": r"assumed: model resnet50: estimated from data sheets, not measured",
    "solve": r"^objective +bound +gap +status .*\n2000328 +\d+ .*(optimal|feasible)",
    "check": r"^correct$",
    "explain": r"^vision .*\n^text +2,000,328 .*(.*\n)*The plan has 2,000,328",
    "plot": r"^wrote my.html$",
    "simulate": r"^workload +policy .*\njobs.csv +fifo +1 +0 .*\njobs.csv +las +1 +0 ",
}
"""By command, in their order on the page, what it prints."""


def commands() -> list[list[str]]:
    found = SECTION.search(PAGE.read_text())
    assert found is not None
    return [shlex.split(line.removeprefix("$ jigsaw ")) for line in found[1].splitlines()]


def write_jobs(path: Path, count: int) -> None:
    drawn, now, lines = random.Random(1), 0.0, ["arrival,gpus,duration_h"]
    for _ in range(count):
        now += drawn.expovariate(1 / 180)
        lines.append(f"{now:.0f},{drawn.choice((1, 1, 2, 4, 8))},{drawn.uniform(0.05, 2):.3f}")
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.slow
def test_the_first_ten_minutes(tmp_path: Path) -> None:
    pytest.importorskip("ortools")
    write_jobs(tmp_path / "jobs.csv", 200)
    asked = commands()
    assert [words[0] for words in asked] == list(OUTPUT)
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    for words in asked:
        program = [sys.executable, "-m", "jigsaw_opt", *words]
        done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert re.search(OUTPUT[words[0]], done.stdout + done.stderr, re.MULTILINE), done.stdout + done.stderr
    assert "<html" in (tmp_path / "my.html").read_text()
    rows = (tmp_path / "policies" / "rows.csv").read_text().splitlines()
    assert len(rows) == 3


def test_policies_given_one_by_one_are_all_taken() -> None:
    parser = ArgumentParser()
    configure(parser)
    words = "--workload a.csv --cluster c --policy fifo --policy las srtf -o out"
    assert parser.parse_args(words.split()).policy == ["fifo", "las", "srtf"]
