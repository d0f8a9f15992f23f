"""Child processes and temporary folders end with this process, whatever ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jigsaw_opt.errors import JigsawError
from jigsaw_opt.system.children import Keeper, temporary_folder
from tests.processes import alive, wait_for

HOLDER = """
import signal, sys, time
from jigsaw_opt.system.children import Keeper
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored
with Keeper() as keeper:
    keeper.start(["sh", "-c", "echo $$ > child; exec sleep 1000"])
    print(keeper.folder, flush=True)
    time.sleep(1000)
"""

SERVER = """
import multiprocessing, time
from jigsaw_opt.system.children import start_deaf
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["slow"])
process = context.Process(target=time.sleep, args=[0], daemon=True)
start_deaf(process)
process.join()
print("started", flush=True)
time.sleep(1000)
"""


def number_in(path: Path) -> int:
    wait_for(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_killed_parent_takes_the_child_and_the_folder_along(number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        folder = Path(parent.stdout.readline().strip())
        child = number_in(folder / "child")
        assert alive(child)
        parent.send_signal(number)
    wait_for(lambda: not alive(child) and not folder.exists())


@pytest.mark.parametrize(
    ("number", "slow"),
    [
        (signal.SIGKILL, "time.sleep(1000)"),
        (signal.SIGKILL, "atexit.register(time.sleep, 1000)"),
        (signal.SIGTERM, "atexit.register(time.sleep, 1000)"),
    ],
)
def test_the_fork_server_ends_with_its_parent(number: int, slow: str, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(f"import atexit, os, time; print(os.getpid(), flush=True); {slow}")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    with subprocess.Popen([sys.executable, "-c", SERVER], env=environment, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        if "atexit" in slow:
            assert parent.stdout.readline() == "started\n"
        assert alive(server)
        parent.send_signal(number)
    wait_for(lambda: not alive(server))


def test_the_end_of_the_block_ends_both() -> None:
    with Keeper() as keeper:
        assert keeper.folder.stat().st_mode & 0o777 == 0o700
        keeper.start(["sh", "-c", "echo $$ > child; exec sleep 1000"])
        child = number_in(keeper.folder / "child")
    assert not alive(child) and not keeper.folder.exists()


def test_how_a_child_ended_and_what_it_printed() -> None:
    with Keeper() as keeper:
        keeper.start(["sh", "-c", "echo out; echo err >&2; exit 3"])
        assert keeper.wait() == 3
        assert keeper.log() == "out\nerr\n"
    with Keeper() as keeper:
        keeper.start(["sleep", "1000"])
        keeper.send_signal(signal.SIGTERM)
        assert keeper.wait() == -signal.SIGTERM
    with Keeper() as keeper, pytest.raises(JigsawError, match="cannot start /no/such: No such file"):
        keeper.start(["/no/such"])
        keeper.wait()


def test_a_child_outlives_neither_its_keeper() -> None:
    with Keeper() as keeper:
        keeper.start(["sh", "-c", "echo $$ $PPID > child; exec sleep 1000"])
        file = keeper.folder / "child"
        wait_for(lambda: file.exists() and file.read_text().endswith("\n"))
        child, process = map(int, file.read_text().split())
        os.kill(process, signal.SIGKILL)
        assert keeper.wait() is None
    wait_for(lambda: not alive(child) and not keeper.folder.exists())


def test_a_folder_stays_until_all_holds_have_ended() -> None:
    with Keeper() as keeper:
        hold = keeper.lease()
        (keeper.folder / "file").touch()
        stdin = keeper._process.stdin
        assert stdin is not None
        stdin.close()  # as if this process had ended
        time.sleep(0.2)
        assert (keeper.folder / "file").exists()
        hold.close()
        wait_for(lambda: not keeper.folder.exists())


def test_without_a_keeper_there_is_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    with temporary_folder() as folder:
        assert folder.is_dir()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(JigsawError, match="keeps a temporary folder"), temporary_folder():
        pass
