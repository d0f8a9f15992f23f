"""Functions are compiled beside a solve, never after it; code on disk is read where it is whole and to be trusted."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jigsaw_opt.instances import load
from jigsaw_opt.problem.operations import compile_instance
from jigsaw_opt.solvers.engines import code_cache
from jigsaw_opt.solvers.engines.native import RECIPES
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.search import opening
from jigsaw_opt.solvers.search.driver import Driver
from jigsaw_opt.solvers.solve_state import SolveState
from tests.solvers import small_kernels

ROOT = Path(__file__).parents[2]
TOTAL = RECIPES[small_kernels.total]

needs_numba = pytest.mark.skipif(not code_cache.available(), reason="numba is not installed")
needs_owners = pytest.mark.skipif(os.name != "posix", reason="owners and modes are those of POSIX")

SOLVE = """
import sys
from jigsaw_opt.solvers.engines import code_cache, compiled, compiler
from tests.solvers.small_kernels import total
begun, start = [], compiler.start
compiler.start = lambda recipes: begun.append(1) or start(recipes)
{first}
compiled.prepare(None)
fast = compiled.compiled(total)
print(len(begun), fast is not None, (fast or total)(compiled.arrays([1, 2, 3])))
"""
AHEAD = """
from jigsaw_opt.solvers import kernels
import tests.solvers.small_kernels
kernels._MODULES = ()
kernels.compile_all(print)
"""
SLOW = """
from jigsaw_opt.solvers.engines import compiled
import tests.solvers.slow_kernels
compiled.prepare(0)
while compiled._preparation._process is None:
    pass
print(compiled._preparation._process.pid, flush=True)
{then}
"""


def python(program: str, folder: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder), "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=pipe, stderr=pipe, text=True)


def solved(folder: Path, first: str = "") -> str:
    """What a process prints that has a function compiled: how often that began, whether it succeeded, and a result."""
    process = python(SOLVE.format(first=first), folder)
    printed, complaints = process.communicate(timeout=300)
    assert (process.returncode, complaints) == (0, "")
    return printed.strip()


def kept(folder: Path) -> Path:
    (file,) = (folder / "jigsaw-opt").iterdir()
    return file


def ended(pid: int) -> bool:
    """Whether a process has ended, or does so within a minute."""
    for _ in range(600):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:100])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def replace(file: Path) -> None:
    file.write_bytes(random.Random(1).randbytes(file.stat().st_size))


DAMAGES: list[Callable[[Path], object]] = [
    truncate,
    flip,
    replace,
    lambda file: file.write_bytes(b""),
    Path.unlink,
]


@needs_numba
def test_functions_are_compiled_once_and_then_read(tmp_path: Path) -> None:
    assert solved(tmp_path) == "1 True 16"
    assert solved(tmp_path) == "0 True 16"


@needs_numba
def test_those_not_compiled_are_told_once(tmp_path: Path) -> None:
    program = SOLVE.format(first="import logging; logging.basicConfig()")
    told = [python(program, tmp_path).communicate(timeout=300)[1] for _ in range(2)]
    assert "(1 to do); all in a minute: jigsaw solvers --compile" in told[0]
    assert told[1] == ""


@needs_numba
def test_all_are_compiled_ahead_and_named(tmp_path: Path) -> None:
    printed = [python(AHEAD, tmp_path).communicate(timeout=300)[0] for _ in range(2)]
    assert printed == ["total\n", ""]
    assert solved(tmp_path) == "0 True 16"


@needs_numba
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_code_is_made_anew(damage: Callable[[Path], object], tmp_path: Path) -> None:
    solved(tmp_path)
    whole = kept(tmp_path).read_bytes()
    damage(kept(tmp_path))
    assert solved(tmp_path) == "1 True 16"
    assert len(kept(tmp_path).read_bytes()) >= len(whole) // 2
    assert solved(tmp_path) == "0 True 16"


@needs_numba
def test_code_of_other_settings_is_not_read_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    solved(tmp_path)
    before = kept(tmp_path)
    monkeypatch.setenv("NUMBA_OPT", "1")
    assert solved(tmp_path) == "1 True 16"
    assert before.exists()
    assert len(list((tmp_path / "jigsaw-opt").iterdir())) == 2


@needs_numba
def test_two_processes_may_fill_a_cache_at_once(tmp_path: Path) -> None:
    both = [python(SOLVE.format(first=""), tmp_path) for _ in range(2)]
    for process in both:
        printed, complaints = process.communicate(timeout=300)
        assert (printed.split()[1:], complaints) == (["True", "16"], "")
    assert solved(tmp_path) == "0 True 16"


@needs_numba
def test_where_nothing_can_be_written_code_still_comes(tmp_path: Path) -> None:
    nowhere = "code_cache._folders = lambda: iter(())"
    child = f"from jigsaw_opt.solvers.engines import code_cache; {nowhere}; main("
    first = f"{nowhere}; compiler._PROGRAM = compiler._PROGRAM.replace('main(', {child!r})"
    for _ in range(2):
        assert solved(tmp_path, first) == "1 True 16"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("told", [True, False])
def test_folders_that_cannot_be_written_are_passed_over(
    told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked, temporary = tmp_path / "file", tmp_path / "temporary"
    blocked.write_text("")
    monkeypatch.setattr(code_cache, "__file__", str(blocked / "code_cache.py"))
    monkeypatch.setattr(code_cache, "_owners", lambda: {os.geteuid()})
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(blocked) if told else "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(temporary))
    file = code_cache.keep(TOTAL, b"code")
    assert file is not None
    assert file.is_relative_to(temporary)
    assert code_cache.find(TOTAL) == b"code"
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(blocked))
    assert code_cache.keep(TOTAL, b"code") is None


@needs_numba
def test_without_a_process_functions_are_left_as_they_are(tmp_path: Path) -> None:
    assert solved(tmp_path, "sys.executable = ''") == "1 False 16"


@needs_numba
def test_without_numba_nothing_is_begun(tmp_path: Path) -> None:
    assert solved(tmp_path, "code_cache._environment = lambda: None") == "0 False 16"


class Forged:
    """Runs code when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.marker,)


@needs_numba
@needs_owners
@pytest.mark.parametrize("open_to_others", ["file", "folder"])
def test_code_that_others_could_have_written_is_not_read(
    open_to_others: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "other"))
    code = pickle.dumps(Forged(tmp_path / "marker"))
    file = code_cache.keep(TOTAL, code)
    assert file is not None
    assert code_cache.find(TOTAL) == code
    (file if open_to_others == "file" else file.parent).chmod(0o777)
    assert code_cache.find(TOTAL) is None
    if open_to_others == "folder":
        elsewhere = code_cache.keep(TOTAL, code)
        assert elsewhere is not None
        assert not elsewhere.is_relative_to(file.parent)


@needs_owners
def test_code_of_somebody_else_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    file = code_cache.keep(TOTAL, b"code")
    assert file is not None
    assert code_cache.find(TOTAL) == b"code"
    someone = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: someone)
    monkeypatch.setattr(code_cache, "_owners", lambda: {someone})
    assert code_cache.find(TOTAL) is None


@needs_numba
def test_compiling_ends_with_the_process(tmp_path: Path) -> None:
    process = python(SLOW.format(then=""), tmp_path)
    printed, complaints = process.communicate(timeout=300)
    assert (process.returncode, complaints) == (0, "")
    assert ended(int(printed))


@needs_numba
def test_compiling_ends_with_a_killed_process(tmp_path: Path) -> None:
    process = python(SLOW.format(then="input()"), tmp_path)
    assert process.stdout is not None
    compiles = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=300)
    assert ended(compiles)


@pytest.mark.parametrize(("limit", "most"), [(1.0, 0.5), (100.0, 2.0), (None, 2.0)])
def test_the_wait_for_functions_is_within_the_limit(
    limit: float | None, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)  # However slow the machine is, no time passes.
    options = Options(threads=1, time_limit=limit)
    solve_state = SolveState("test", compile_instance(load("server/weighted")), options, lambda event: None)
    waits: list[float] = []

    def prepare(wait: float) -> None:
        waits.append(wait)
        options.cancel.set()

    monkeypatch.setattr(opening, "prepare", prepare)
    Driver(solve_state).run()
    assert waits
    assert max(waits) <= most
