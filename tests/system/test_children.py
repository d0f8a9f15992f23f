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
from jigsaw_opt.system import keeper_process
from jigsaw_opt.system.children import Keeper
from tests.processes import alive, wait_for

HOLDER = """
import signal, subprocess, time
from jigsaw_opt.system.children import Keeper
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored
with Keeper() as keeper:
    sleeper = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    keeper.end_too(sleeper.pid)
    print(keeper.folder, sleeper.pid, flush=True)
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


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_killed_parent_takes_the_child_and_the_folder_along(number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        folder, child = parent.stdout.readline().split()
        assert alive(int(child))
        parent.send_signal(number)
    wait_for(lambda: not alive(int(child)) and not Path(folder).exists())


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


def test_the_folder_is_this_users_alone_and_ends_with_the_block() -> None:
    with Keeper() as keeper:
        assert keeper.folder.stat().st_mode & 0o777 == 0o700
    assert not keeper.folder.exists()


def test_no_signal_ends_a_keeper_and_where_one_is_killed_the_folder_ends_with_the_block() -> None:
    with Keeper() as keeper:
        process = keeper._process
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process.send_signal(number)
        assert process.poll() is None and keeper.folder.exists()
        process.kill()
        process.wait()
        keeper.end_too(process.pid)
    assert not keeper.folder.exists()


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


FULL = """
import errno, os, runpy, tempfile

def full(**_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

tempfile.mkdtemp = full
runpy.run_path({real!r}, run_name="__main__")
"""


def test_without_a_keeper_or_room_there_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "full.py").write_text(FULL.format(real=keeper_process.__file__))
    monkeypatch.setattr(keeper_process, "__file__", str(tmp_path / "full.py"))
    with pytest.raises(JigsawError, match="cannot make a temporary folder: No space"):
        Keeper()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(JigsawError, match="keeps a temporary folder"):
        Keeper()
