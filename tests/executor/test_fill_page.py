"""The way from a model to a pipeline that is carried out beside other jobs runs as its page has it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")
pytest.importorskip("ortools", reason="pip install 'jigsaw-opt[ortools]'")

from jigsaw_opt.documents import load_instance, load_plan, load_replay
from jigsaw_opt.documents.replay import require_replay_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "fill.md").read_text()


@pytest.mark.slow
def test_the_commands_lead_from_a_model_to_a_measured_slow_down(tmp_path: Path) -> None:
    (script,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "net.py").write_text(script)
    (folders,) = re.findall(r"^\$ export PYTHONPATH=(\S+)", PAGE, re.MULTILINE)
    environment = os.environ | {"PYTHONPATH": f"{folders}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    for line in re.findall(r"^\$ jigsaw (.*)", PAGE, re.MULTILINE):
        words, _, output = line.partition(" > ")
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "jigsaw_opt", *shlex.split(words)],  # as `jigsaw`, which adds no folder
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, f"{line}\n{ended.stderr}"
        if output:
            (tmp_path / output).write_text(ended.stdout)
    assert "slow-down" in ended.stdout and "micro-batch" not in ended.stderr  # which are as large as planned
    instance, plan = load_instance(tmp_path / "filled.json"), load_plan(tmp_path / "filled.plan.json")
    replay = load_replay(tmp_path / "replay.json")
    require_replay_of(plan, replay, "replay.json")
    assert {"piece", "pipe"} <= {job.name for job in instance.jobs}
    assert replay.baseline is not None and [job.name for job in replay.baseline.timeline.jobs] == ["pipe"]
