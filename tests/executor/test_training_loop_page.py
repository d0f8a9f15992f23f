"""The example of the page on a training loop of one's own runs as it stands, alone and in two processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "training-loop.md").read_text()
BEGIN = "import torch.distributed\ntorch.distributed.init_process_group('gloo')\n"
END = "torch.distributed.destroy_process_group()\n"


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_the_example_trains(processes: int, tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    script = tmp_path / "train.py"
    script.write_text(example if processes == 1 else BEGIN + example + END)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if processes > 1 else []
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, *launcher, script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    losses = [float(loss) for loss in re.findall(r"loss ([0-9]+\.[0-9]{3})", ended.stdout)]  # lines may run together
    assert len(losses) == processes and all(loss < 1 for loss in losses)
    assert ended.stdout.count("the input") == processes


def test_the_table_names_every_rule() -> None:
    from jigsaw_opt.executor.partial.level_rules import level_rule

    named = re.findall(r'^\| `"(\w+)"', PAGE, re.MULTILINE)
    assert len(named) == 5
    assert all(3 in level_rule(levels, 3, 2, 0, 1, 0)(5) for levels in named)
