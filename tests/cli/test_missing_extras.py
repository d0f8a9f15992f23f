"""Commands whose extra is not installed say which, in one line with exit code 6, and write nothing.

Where it is installed, it is hidden: None in `sys.modules` makes an import fail, and nothing finds the module.
"""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import jigsaw_opt
from jigsaw_opt.cli import main
from jigsaw_opt.documents.readers.chakra import trace as chakra_trace
from jigsaw_opt.solvers.engines import compiled

DATA = Path(__file__).parents[1] / "data"
TORCH = "PyTorch is not installed; run: pip install 'jigsaw-opt[torch]'"
RAY = "Ray is not installed; run: pip install 'jigsaw-opt[ray]'"
PAIR, PLAN = str(DATA / "pair.json"), str(DATA / "pair.plan.json")


@pytest.mark.parametrize(
    ("module", "told", "command"),
    [
        ("matplotlib", "matplotlib is not installed; run: pip install 'jigsaw-opt[plot]'", "plot PAIR PLAN -o a.png"),
        ("torch", TORCH, "profile gpt -o model.json"),
        ("torch", TORCH, "run PAIR PLAN -o replay.json"),
        ("ray", RAY, "bench tiny/000 --engine ray --address auto -o o"),
        ("ray", RAY, "solve tiny/000 --engine ray --address auto -o o"),
        ("pulp", "PuLP is not installed; run: pip install 'pulp", "export PAIR --to mps -o x.mps"),
    ],
    ids=["plot", "profile", "run", "bench", "solve", "export"],
)
def test_the_extra_is_named(
    module: str,
    told: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.chdir(tmp_path)
    assert main([{"PAIR": PAIR, "PLAN": PLAN}.get(word, word) for word in command.split()]) == 6
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"error: {told}") and printed.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_chakra_traces_name_their_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
    monkeypatch.setitem(sys.modules, compiled.MODULE, None)
    for function in (compiled.library, compiled.warn_if_interpreted):
        function.cache_clear()
    yield
    for function in (compiled.library, compiled.warn_if_interpreted):
        function.cache_clear()


@pytest.mark.usefixtures("uncompiled")
def test_uncompiled_the_search_runs_as_python_and_says_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main(["solve", "tiny/000", "--solver", "search", "--work-limit", "0.001", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.out.count('"status"') == 2
    assert printed.err.count("its functions are not compiled") == 1


def test_every_module_but_those_of_executor_and_service_loads_without_torch_and_ray() -> None:
    modules = [
        name
        for _, name, _ in pkgutil.walk_packages(jigsaw_opt.__path__, "jigsaw_opt.", onerror=lambda name: None)
        if not name.startswith(("jigsaw_opt.executor", "jigsaw_opt.serving.")) and not name.endswith("__main__")
    ]
    assert len(modules) > 500
    program = (
        "import importlib, sys\n"
        "sys.modules.update(dict.fromkeys(('torch', 'ray', 'matplotlib')))\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "print('loaded')"
    )
    done = subprocess.run([sys.executable, "-c", program, *modules], capture_output=True, text=True, check=False)
    assert done.stdout == "loaded\n", done.stderr
