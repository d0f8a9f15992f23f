"""Compiled functions compute what Python does, and are only used where they are those that are here."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from jigsaw_opt.solvers.engines import compiled, kernel_source
from tests.extras import HAS_COMPILER, needs_fast
from tests.solvers import small_kernels
from tests.solvers.small_kernels import Pair

SMALL = Path(small_kernels.__file__)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    pytest.importorskip("Cython", reason="Cython is not installed (extra dev)")
    setuptools = pytest.importorskip("setuptools", reason="setuptools is not installed (extra dev)")
    if not HAS_COMPILER:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("native")
    # With CHECKED, a place beyond an array ends the process.
    flags = [*kernel_source.FLAGS, "-DCHECKED", "-O1"]
    source = kernel_source.write_c("small", folder, [SMALL])
    small = setuptools.Extension("small", [source], extra_compile_args=flags, extra_link_args=flags)
    command = setuptools.Distribution({"ext_modules": [small]}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(folder), str(folder)
    command.ensure_finalized()
    with pytest.MonkeyPatch.context() as patch:
        # What the environment asks for must not change what is computed.
        patch.setenv("CFLAGS", "-Ofast -ffast-math -funsafe-math-optimizations")
        command.run()
    spec = spec_from_file_location("small", command.get_ext_fullpath("small"))
    assert isinstance(spec, ModuleSpec) and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def looked_for_anew() -> Iterator[None]:
    for function in (compiled.library, compiled.warn_if_interpreted):
        function.cache_clear()
    yield
    for function in (compiled.library, compiled.warn_if_interpreted):
        function.cache_clear()


@pytest.mark.parametrize("name", ["orders", "signs", "rounded", "truths"])
def test_c_computes_what_python_does(built: ModuleType, name: str) -> None:
    function: Callable[..., int] = getattr(small_kernels, name)
    native, draw, found = getattr(built, name), random.Random(name), set()
    for _ in range(100):
        pair = Pair([draw.randrange(1 << 30) for _ in range(6)], [draw.uniform(0.0, 2.0) for _ in range(5)])
        extra = [draw.randrange(1, 40), *(draw.randrange(-30, 30) for _ in range(8))]
        ours, more, count = compiled.arrays(pair), compiled.arrays(extra), draw.randrange(1, 6)
        value = function(pair, extra, count)
        assert native(ours, more, count) == value
        assert [*ours.numbers, *more] == [*pair.numbers, *extra]
        assert list(ours.reals) == pair.reals  # to the last bit
        found.add(value)
    assert len(found) > 10


def ended(built: ModuleType, program: str) -> subprocess.CompletedProcess[bytes]:
    """A program that can import the extension module, in a process of its own."""
    paths = os.pathsep.join([str(Path(str(built.__file__)).parent), *sys.path])
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, check=False)


def test_tiny_floats_stay_what_they_are_in_the_process(built: ModuleType) -> None:
    done = ended(built, "import small\ntiny = float('5e-324')\nprint(tiny * 2 > 0, tiny + 0.0 == tiny)")
    assert (done.returncode, done.stdout.split()) == (0, [b"True", b"True"])


def test_a_checked_build_ends_at_a_place_beyond_an_array(built: ModuleType) -> None:
    done = ended(
        built,
        "import small\n"
        "from jigsaw_opt.solvers.engines.compiled import arrays\n"
        "from tests.solvers.small_kernels import Pair\n"
        "small.orders(arrays(Pair([1, 2], [1.0])), arrays([1]), 1)",
    )
    assert done.returncode == -signal.SIGABRT
    assert b" of 2\n" in done.stderr or b" of 1\n" in done.stderr


def test_arrays_of_other_numbers_are_refused(built: ModuleType) -> None:
    pair, extra = Pair([1], [1.0]), np.arange(6)
    assert built.signs(compiled.arrays(pair), extra, 1) == small_kernels.signs(pair, list(range(6)), 1)
    fixed = extra.copy()
    fixed.flags.writeable = False
    for wrong in (extra.astype(np.int32), extra.astype(float), extra[::2], fixed, extra.reshape(2, 3), np.array(1)):
        with pytest.raises(TypeError, match="no array of 64 bits that can be written to"):
            built.signs(compiled.arrays(pair), wrong, 1)
    with pytest.raises(TypeError, match="integer"):
        built.signs(compiled.arrays(pair), extra, 1.5)
    with pytest.raises(TypeError, match="no array of 64 bits"):
        built.signs(compiled.arrays(Pair([1], [1])), extra, 1)  # type: ignore[list-item]


@pytest.mark.parametrize(("steps", "whole", "last"), [(100, 30, 100), (100, 30, 47), (9, 0, 9), (90, 30, 90)])
def test_work_is_counted_at_the_same_steps_whatever_the_parts(steps: int, whole: int, last: int) -> None:
    def counted(most: int, limit: int) -> tuple[list[tuple[int, int]], int]:
        found, done, calls = [], 0, 0

        def run(first: int, count: int) -> tuple[int, int]:
            nonlocal done
            assert first == done
            taken = min(count, last - first)
            done += taken
            return 3 * taken, taken

        def stop(work: int) -> bool:
            nonlocal calls
            calls += 1
            if work:
                found.append((done, work))
            return sum(work for _, work in found) >= limit

        compiled.run_in_parts(run, steps, whole, most, stop)
        return found, calls

    for limit in (1000, 100):
        in_one, calls = counted(whole, limit)
        in_many, more = counted(min(whole, 7), limit)
        assert in_many == in_one
        assert sum(work for _, work in in_one) == 3 * in_one[-1][0]
        assert more > calls or whole == 0


@pytest.mark.parametrize(
    "line", ["x = f(a) + f(a)", "x = f(a) < f(a)", "x = max(f(a), f(a))", "a[f(a)] += f(a)", "x = a[1:]"]
)
def test_what_c_would_not_do_as_python_does_is_refused(line: str, tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(f"@kernel\ndef f(a: Numbers) -> int:\n    x = a[0]\n    {line}\n    return x\n")
    with pytest.raises(SyntaxError, match="line 4"):
        kernel_source.cython_source([path])


@needs_fast
def test_a_module_of_other_sources_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert compiled.library() is not None
    compiled.library.cache_clear()
    monkeypatch.setattr(compiled, "kernel_modules", lambda: [SMALL])
    assert compiled.library() is None
    assert compiled.compiled(small_kernels.signs) is None
    compiled.warn_if_interpreted()
    assert "have changed since they were compiled; run `pip install --no-deps -e .`" in caplog.text


def test_a_module_that_was_not_compiled_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "MODULE", small_kernels.__name__)
    assert compiled.library() is None
    assert compiled.compiled(small_kernels.signs) is None
