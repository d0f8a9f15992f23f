"""Functions in C compute what Python does, and are only read where they were made of the functions that are here."""

from __future__ import annotations

import ast
import ctypes
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from jigsaw_opt.solvers.engines import compiled, translation
from tests.extras import needs_fast
from tests.solvers import small_kernels
from tests.solvers.small_kernels import Pair

SMALL = Path(small_kernels.__file__)

needs_compiler = pytest.mark.skipif(translation.compiler() is None, reason="there is no C compiler")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("native") / "small.so"
    # With CHECKED, a place beyond an array ends the process.
    translation.build(path, [SMALL], ["-DCHECKED"])
    return ctypes.CDLL(str(path))


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a library is looked for."""
    monkeypatch.setattr(compiled, "LIBRARY", tmp_path / "kernels.bin")
    compiled.library.cache_clear()
    yield tmp_path / "kernels.bin"
    compiled.library.cache_clear()


@needs_compiler
@pytest.mark.parametrize("name", ["orders", "signs", "rounded", "events"])
def test_c_computes_what_python_does(built: ctypes.CDLL, name: str) -> None:
    function: Callable[..., int] = getattr(small_kernels, name)
    native, draw, found = compiled.loaded(built, function), random.Random(name), set()
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


@needs_compiler
def test_arrays_of_other_numbers_are_refused(built: ctypes.CDLL) -> None:
    native = compiled.loaded(built, small_kernels.signs)
    pair, extra = compiled.arrays(Pair([1], [1.0])), np.arange(6)
    assert native(pair, extra, 1) == small_kernels.signs(Pair([1], [1.0]), list(range(6)), 1)
    for wrong in (extra.astype(np.int32), extra.astype(float), extra[::2]):
        with pytest.raises(TypeError, match="no array of 64 bits"):
            native(pair, wrong, 1)
    with pytest.raises(TypeError, match="no array of 64 bits"):
        native(Pair(np.arange(3), np.arange(3)), extra, 1)


@pytest.mark.parametrize(
    "line",
    [
        "x = [n for n in a]",
        "x = a[0] and 2",
        "x = a[-1:]",
        "x = sum(a)",
        "x = 7.0 // 2.0",
        "x = 2 ** a[0]",
        "x = a[0] is None",
        "a[0] = 0.5",
        "a[0] += 0.5",
        "x, y = a",
        "x = a.size",
        "with a: pass",
        "x = a",
    ],
)
def test_what_has_no_translation_is_refused(line: str) -> None:
    source = f"@kernel\ndef f(a: Numbers) -> int:\n    x = 0\n    {line}\n    return x\n"
    ast.parse(source)
    with pytest.raises(SyntaxError, match=r"m, line \d+: no translation"):
        translation.Translation({"m": source})


@needs_fast
def test_a_library_of_other_sources_is_not_used(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere.write_bytes(Path(translation.KERNELS, "kernels.bin").read_bytes())
    assert compiled.library() is not None
    compiled.library.cache_clear()
    monkeypatch.setattr(compiled, "sources", lambda: [SMALL])
    assert compiled.library() is None
    assert compiled.compiled(small_kernels.signs) is None


@pytest.mark.parametrize("content", [None, b"", b"not a library"])
def test_a_damaged_library_is_not_used(content: bytes | None, elsewhere: Path) -> None:
    if content is not None:
        elsewhere.write_bytes(content)
    assert compiled.library() is None


def test_a_compiler_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    with pytest.raises(OSError, match="false failed"):
        translation.build(tmp_path / "small.so", [SMALL])
    monkeypatch.setenv("CC", str(tmp_path / "missing"))
    with pytest.raises(FileNotFoundError):
        translation.build(tmp_path / "small.so", [SMALL])
    monkeypatch.setattr(translation, "compiler", lambda: None)
    with pytest.raises(FileNotFoundError, match="no C compiler"):
        translation.build(tmp_path / "small.so", [SMALL])
    assert not list(tmp_path.iterdir())
