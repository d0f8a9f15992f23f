"""The program `jigsaw` among other programs: its streams, its signals, the folder it runs in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import load_plan
from jigsaw_opt.instances import load

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-m", "jigsaw_opt")
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.is_char_device(), reason="there is no device that is always full")


def usual_signals() -> None:
    """Tests that run in the background would hand down that Ctrl-C is ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def run(*command: str, before: Callable[[], None] = usual_signals, **options: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error; what is not piped is empty."""
    pipes: dict[str, object] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(pipes.pop("environment", None) or {})}  # type: ignore[dict-item]
    done = subprocess.run(command, preexec_fn=before, env=environment, text=True, check=False, **pipes)  # type: ignore[call-overload]
    return done.returncode, done.stdout or "", done.stderr or ""


@needs_full
def test_a_full_standard_output_is_an_error_in_one_line() -> None:
    with FULL.open("w") as full:
        assert run(*PROGRAM, "solvers", stdout=full) == (1, "", "error: standard output: No space left on device\n")


@needs_full
def test_a_full_standard_error_changes_no_exit_code(tmp_path: Path) -> None:
    with FULL.open("w") as full:
        assert run(*PROGRAM, "solve", "none.json", stderr=full, cwd=tmp_path)[0] == 3


def test_a_reader_that_has_gone_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    assert run(*PROGRAM, "--help", stdout=writer) == (1, "", "")
    os.close(writer)


def test_closed_streams_are_as_good_as_none(tmp_path: Path) -> None:
    def closed() -> None:
        usual_signals()
        os.closerange(0, 3)

    command = (*PROGRAM, "solve", "tiny/000", "--solver", "greedy", "-v", "-o", "plan.json")
    assert run(*command, before=closed, cwd=tmp_path, stdout=None, stderr=None)[0] == 0
    assert check(load("tiny/000"), load_plan(tmp_path / "plan.json")) == ()


def test_a_deleted_folder_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = (*PROGRAM, "simulate", "--workload", "w.csv", "--cluster", "2x4", "--policy", "fifo", "-o", "out")
    told = "error: the current folder does not exist any more\n"
    assert run(*command, before=gone.rmdir, cwd=gone) == (1, "", told)


def test_json_is_json_in_every_encoding(tmp_path: Path) -> None:
    name = "\u2013\xe9\U0001f600.json"
    (tmp_path / name).write_text("{}")
    code, out, err = run(
        *PROGRAM, "validate", "--json", name, cwd=tmp_path, environment={"PYTHONIOENCODING": "ascii"}, encoding="ascii"
    )
    assert (code, err) == (3, "")
    assert json.loads(out)[0]["file"] == name


SIGNALLED = """
import atexit, signal, sys
class Finder:
    def find_spec(self, name, *_):
        if name == "{module}":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
if not "{module}":
    atexit.register(signal.raise_signal, signal.SIGTERM)
sys.argv = ["jigsaw", "solvers"]
from jigsaw_opt.cli import main
sys.exit(main())
"""


def test_a_signal_while_something_is_imported_is_one_line() -> None:
    code, out, err = run(sys.executable, "-c", SIGNALLED.format(module="rich"))
    assert (code, out, err) == (130, "", "interrupted: nothing was kept\n")


def test_a_signal_at_the_end_changes_nothing() -> None:
    code, out, err = run(sys.executable, "-c", SIGNALLED.format(module=""))
    assert (code, err) == (0, "") and "portfolio" in out


@pytest.mark.parametrize(("number", "solver"), [(signal.SIGINT, "ilp"), (signal.SIGHUP, "cpsat")])
def test_a_signal_keeps_the_plan(number: int, solver: str, tmp_path: Path) -> None:
    """Two, to the whole group, as when a wrapper passes on what the terminal has sent already."""
    command = [*PROGRAM, "solve", "server/weighted", "--solver", solver, "-v", "-o", "plan.json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, preexec_fn=usual_signals, start_new_session=True, cwd=tmp_path, env=environment, text=True, **pipes
    ) as process:
        assert process.stderr is not None
        while "objective" not in process.stderr.readline():
            assert process.poll() is None
        os.killpg(process.pid, number)
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "interrupt" in out and "Traceback" not in err
    assert check(load("server/weighted"), load_plan(tmp_path / "plan.json")) == ()
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]
