"""The example of the page on the executor runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "executor.md").read_text()


@pytest.mark.slow
def test_the_example_of_a_worker_trains() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", example], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert re.fullmatch(r"loss [0-9]+\.[0-9]{3}\n", ended.stdout)


def test_what_the_table_of_the_exchange_names_can_be_imported() -> None:
    from jigsaw_opt.executor.exchange import Averaging
    from jigsaw_opt.executor.schedule import LevelSchedule

    names = re.findall(r"`Averaging\.(\w+)`", PAGE)
    assert {Averaging[name].name for name in names} == set(Averaging.__members__)
    calls = re.findall(r"`LevelSchedule\((\w+)=\"(\w+)\"", PAGE)
    assert len(calls) >= 3
    assert all(LevelSchedule(3, 2, **{key: value}).levels(5) for key, value in calls)
