"""Child processes and temporary folders end with this process, whatever ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jigsaw_opt import load_instance, save_instance, save_plan, solve
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


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_a_killed_parent_takes_the_child_and_the_folder_along(number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        folder, child = parent.stdout.readline().split()
        assert alive(int(child))
        parent.send_signal(number)
    wait_for(lambda: not alive(int(child)) and not Path(folder).exists())


@pytest.mark.parametrize(
    ("number", "slow"),
    [(signal.SIGKILL, "time.sleep(1000)"), (signal.SIGTERM, "atexit.register(time.sleep, 1000)")],
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


@pytest.mark.parametrize(
    "command",
    [
        ["bench", "tiny/000", "--solvers", "greedy", "--work-limit", "1"],
        pytest.param(["run", "../instance.json", "../plan.json", "--iterations", "1"], marks=pytest.mark.slow),
    ],
    ids=lambda command: str(command[0]),
)
def test_no_module_of_the_current_folder_is_imported(command: list[str], tmp_path: Path) -> None:
    if command[0] == "run":
        pytest.importorskip("torch")
        instance = load_instance(Path(__file__).parents[2] / "examples" / "two-cores.json")
        save_instance(instance, tmp_path / "instance.json")
        save_plan(solve(instance, method="greedy").plan, tmp_path / "plan.json")
    program = tmp_path / "bin" / "jigsaw"  # not `python -m`, which has the current folder on its own path
    program.parent.mkdir()
    program.write_text(
        "import sys\nfrom jigsaw_opt.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
    )
    folder = tmp_path / "traces"
    folder.mkdir()
    for module in ("json", "pickle", "random", "signal", "socket", "struct", "torch"):
        (folder / f"{module}.py").write_text(f"open({str(tmp_path / module)!r}, 'w').close()")
    before = set(tmp_path.iterdir())
    done = subprocess.run(
        [sys.executable, str(program), *command, "-o", "../out"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(tmp_path.iterdir()) - before == {tmp_path / "out"}


CHOSEN = """
import multiprocessing, os, subprocess, sys
from jigsaw_opt.system.children import start_deaf

def report():
    import chosen
    subprocess.run([sys.executable, "-c", "import sys; print(sys.flags.safe_path)"], check=True)

if __name__ == "__main__":
    sys.path.insert(0, "chosen")
    environment = dict(os.environ)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["chosen"])
    process = context.Process(target=report)
    start_deaf(process)
    process.join()
    assert process.exitcode == 0 and os.environ == environment
    spawned = multiprocessing.get_context("spawn").Process(target=report)
    spawned.start()
    spawned.join()
    assert spawned.exitcode == 0
"""


def test_the_server_loads_what_this_process_would_and_changes_nothing_else(tmp_path: Path) -> None:
    script = tmp_path / "bin" / "script.py"
    for file, text in {script: CHOSEN, tmp_path / "chosen" / "chosen.py": "import os; print(os.getpid())"}.items():
        file.parent.mkdir()
        file.write_text(text)
    (tmp_path / "chosen.py").write_text("print('of the current folder')")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    environment.pop("PYTHONSAFEPATH", None)
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    server, safe, spawned, *others = done.stdout.split()
    assert server.isdecimal() and spawned.isdecimal() and [safe, *others] == ["False", "False"]


TRACKED = """
import multiprocessing, os, signal, time
from multiprocessing import resource_tracker
from jigsaw_opt.system.children import start_deaf
context = multiprocessing.get_context("forkserver")
for _ in range(2):
    process = context.Process(target=time.sleep, args=[0], daemon=True)
    start_deaf(process)
    process.join()
    killed = resource_tracker._resource_tracker._pid
    os.kill(killed, signal.SIGKILL)
    os.waitpid(killed, 0)
"""


def test_nothing_is_said_of_a_tracker_of_resources_that_was_killed_and_is_started_anew() -> None:
    done = subprocess.run([sys.executable, "-c", TRACKED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


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
