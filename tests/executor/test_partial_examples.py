"""The examples of training loops run as they stand, on one process and on two, where their packages are installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "transformers": ("transformers",),
    "resnet": ("torchvision",),
    "trainer": ("transformers", "accelerate"),
    "lightning": ("lightning",),
}
BEGINS = {"transformers": 4.16, "resnet": 1.39, "trainer": 4.16, "lightning": 2.08}
"""Loss of guesses: the logarithm of the number of classes."""


def test_there_is_an_example_of_each_and_it_is_short() -> None:
    found = {path.stem.removeprefix("partial_"): path for path in (ROOT / "examples").glob("partial_*.py")}
    assert found.keys() == PACKAGES.keys() == BEGINS.keys()
    assert all(len(path.read_text().splitlines()) <= 30 for path in found.values())
    page = (ROOT / "docs" / "training-loop.md").read_text()
    assert all(f"examples/{path.name}" in page for path in found.values())


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("name", PACKAGES)
def test_the_example_learns(name: str, processes: int, tmp_path: Path) -> None:
    for package in PACKAGES[name]:
        pytest.importorskip(package, reason=f"{package} is not installed (extra examples)")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if processes > 1 else []
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, ROOT / "examples" / f"partial_{name}.py"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    losses = [float(loss) for loss in re.findall(r"loss ([0-9]+\.[0-9]{3})", ended.stdout)]  # lines may run together
    assert len(losses) == processes and all(loss < 0.6 * BEGINS[name] for loss in losses)
