"""`jigsaw serve` as a process: it loses nothing when it is killed, and ends in order when it is asked to."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.cli import main
from tests.extras import needs_serve
from tests.processes import ROOT, wait_for
from tests.serving.services import submit

pytestmark = needs_serve
FIFO = ("2x4:a100", "--policy", "fifo")
PROGRAM = "import sys; from jigsaw_opt.cli import main; sys.argv[0] = 'jigsaw'; main()"


class Process:
    """A service that runs in a folder."""

    def __init__(self, folder: Path, *words: str) -> None:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", PROGRAM, "serve", *(words or FIFO), "--port", "0"]
        self.process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        assert line.startswith("listening on 127.0.0.1, port "), line + self.process.stderr.read()
        self.address = "http://127.0.0.1:" + line.partition("port ")[2].split()[0].rstrip(";")

    def ask(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)


def free_lease(folder: Path) -> None:
    """Have the lease of a process that was killed run out at once."""
    with sqlite3.connect(folder / "jigsaw-serve.db") as db:
        db.execute("UPDATE lease SET until_us = 0")


@pytest.mark.slow
def test_a_service_that_is_killed_goes_on_and_one_that_is_asked_ends_in_order(tmp_path: Path) -> None:
    first = Process(tmp_path)
    try:
        told = [first.ask("/v1/events", [submit(f"j{k}"), submit(f"k{k}")]) for k in range(5)]
        assert first.end(signal.SIGKILL) == -signal.SIGKILL
    finally:
        first.process.kill()
    free_lease(tmp_path)
    second = Process(tmp_path)
    try:
        names = {job["name"] for job in second.ask("/v1/jobs")["jobs"]}
        assert names == {f"{letter}{k}" for k in range(5) for letter in "jk"}
        assert second.ask("/v1/events", {"event": "finish", "job": "j0"})["sequence"] > told[-1]["sequence"]
        wait_for(lambda: second.ask("/v1/jobs/j1")["job"]["state"] == "running")
        assert second.end(signal.SIGTERM) == 0
    finally:
        second.process.kill()
    with sqlite3.connect(tmp_path / "jigsaw-serve.db") as db:
        counts = [next(db.execute(f"SELECT count(*) FROM {name}"))[0] for name in ("entries", "snapshots", "lease")]
    assert counts == [0, 1, 0]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--host", "0.0.0.0"], 2, "others reach 0.0.0.0: give --tokens FILE, or listen on 127.0.0.1"),
        (["--host", "example.org"], 2, "others reach example.org"),
        (["--step-budget", "-1"], 2, "--step-budget"),
        (["--policy", "none"], 2, "none"),
        (["--policy", "jigsaw"], 2, "models"),
        (["--tokens", "missing"], 3, "missing"),
        (["--database", "folder/missing.db", "--policy", "fifo"], 1, "unable to open"),
    ],
)
def test_a_service_that_cannot_be_is_refused(
    words: list[str], code: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["serve", "2x4:a100", *words]) == code
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_its_libraries_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("jigsaw_opt.serving.find_spec", lambda name: None)
    assert main(["serve", "2x4:a100"]) == 6
    assert "pip install 'jigsaw-opt[serve]'" in capsys.readouterr().err


def test_a_plain_cluster_needs_no_policy_and_an_instance_is_for_jigsaw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = list[str]()
    monkeypatch.setattr("jigsaw_opt.cli.clusters.serve._serve", lambda service, *_: served.append(service.policy))
    monkeypatch.chdir(tmp_path)
    for words in (["2x4:a100"], ["server/demo"], ["2x4:a100", "--policy", "las"]):
        assert main(["serve", *words]) == 0
    assert served == ["fifo", "jigsaw", "las"]


@pytest.mark.slow
def test_a_demonstration_shows_jobs_that_share_gpus_and_keeps_nothing(tmp_path: Path) -> None:
    demo = Process(tmp_path, "--demo")
    try:
        wait_for(lambda: max(demo.ask("/v1/view")["gpus"]["second"]) >= 0)
        assert demo.ask("/v1/view")["policy"] == "jigsaw" and demo.end(signal.SIGTERM) == 0
    finally:
        demo.process.kill()
    assert list(tmp_path.iterdir()) == []
