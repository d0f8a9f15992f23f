"""Commands whose extra is not installed say which, in one line with exit code 6, and write nothing.

Each runs where its extra is missing: ``make test-core``.
"""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import jigsaw_opt
from jigsaw_opt.cli import main
from jigsaw_opt.documents.readers.chakra import trace as chakra_trace
from jigsaw_opt.solvers.engines import compiled

DATA = Path(__file__).parents[1] / "data"
TRAINED, TRAINED_PLAN = str(DATA.parents[1] / "examples" / "two-cores.json"), "trained.json"
PAIR, PLAN = str(DATA / "pair.json"), str(DATA / "pair.plan.json")


@pytest.mark.parametrize(
    ("module", "what", "extra", "command"),
    [
        ("matplotlib", "matplotlib", "plot", ("plot", PAIR, PLAN, "-o", "plan.png")),
        ("torch", "PyTorch", "torch", ("profile", "gpt", "-o", "model.json")),
        ("torch", "PyTorch", "torch", ("run", TRAINED_PLAN, "--instance", TRAINED, "-o", "replay.json")),
        ("ray", "Ray", "ray", ("bench", "tiny/000", "--engine", "ray", "--address", "auto", "-o", "out")),
    ],
    ids=["plot", "profile", "run", "bench"],
)
def test_the_extra_is_named(
    module: str,
    what: str,
    extra: str,
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if find_spec(module) is not None:
        pytest.skip(f"{module} is installed; without the extra {extra}: make test-core")
    monkeypatch.chdir(tmp_path)
    if TRAINED_PLAN in command:
        main(["solve", TRAINED, "--solver", "greedy", "-o", TRAINED_PLAN])
        capsys.readouterr()
    before = set(tmp_path.iterdir())
    assert main([*command]) == 6
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"error: {what} is not installed; run: pip install 'jigsaw-opt[{extra}]'\n"
    assert set(tmp_path.iterdir()) == before


def test_chakra_traces_name_their_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # OR-Tools brings protobuf today, so that no environment lacks it; None in `sys.modules` makes an import fail.
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pb2", None)
    chakra_trace._messages.cache_clear()
    trace, out = tmp_path / "job.0.et", tmp_path / "out"
    trace.write_bytes(b"\x00")
    assert main(["convert", "chakra", str(trace), "--gpu-type", "v100"]) == 6
    assert main(["export", PAIR, PLAN, "--to", "chakra", "-o", str(out)]) == 6
    printed = capsys.readouterr()
    assert printed.err.count("error: protobuf is not installed; run: pip install 'jigsaw-opt[chakra]'\n") == 2
    assert printed.out == "" and not out.exists()


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that was built without a C compiler."""
    # None in `sys.modules` makes an import fail.
    monkeypatch.setitem(sys.modules, compiled.MODULE, None)
    for function in (compiled.library, compiled.warn_if_interpreted):
        function.cache_clear()
    yield
    for function in (compiled.library, compiled.warn_if_interpreted):
        function.cache_clear()


@pytest.mark.usefixtures("uncompiled")
def test_uncompiled_the_search_runs_as_python_and_says_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main(["solve", "tiny/010", "--solver", "search", "--work-limit", "0.01", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.out.count('"status"') == 2
    assert printed.err.count("its functions are not compiled") == 1


def test_every_module_but_those_of_the_executor_loads_without_torch_and_ray() -> None:
    modules = [
        name
        for _, name, _ in pkgutil.walk_packages(jigsaw_opt.__path__, "jigsaw_opt.", onerror=lambda name: None)
        if not name.startswith("jigsaw_opt.executor") and not name.endswith("__main__")
    ]
    assert len(modules) > 500
    # None in `sys.modules` makes an import fail, so that the test says the same where the extras are installed.
    program = (
        "import importlib, sys\n"
        "sys.modules.update(dict.fromkeys(('torch', 'ray', 'matplotlib')))\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "print('loaded')"
    )
    done = subprocess.run([sys.executable, "-c", program, *modules], capture_output=True, text=True, check=False)
    assert done.stdout == "loaded\n", done.stderr
