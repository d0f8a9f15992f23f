"""The tutorials from a trace to files of TorchTitan and to a run do so as they stand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")
pytest.importorskip("ortools", reason="pip install 'jigsaw-opt[ortools]'")

from jigsaw_opt.documents import load_instance, load_plan, load_replay, read_layers
from jigsaw_opt.planning.partition.result import decode_partition
from jigsaw_opt.planning.pipeline.recognising import pipeline_of
from tests.pages import section

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "pipelines.md").read_text()
PROGRAMS = {"python": (sys.executable,), "jigsaw": (sys.executable, "-m", "jigsaw_opt")}


def follow(part: str, folder: Path, *scripts: str) -> None:
    """Write the scripts of a part of the page, and run its commands."""
    text = section(PAGE, part)
    for name, script in zip(scripts, re.findall(r"```python\n(.*?)```", text, re.DOTALL), strict=True):
        (folder / name).write_text(script)
    commands = [shlex.split(line) for line in re.findall(r"^\$ (?!export )(.*)", text, re.MULTILINE)]
    assert len(commands) <= 8
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "OMP_NUM_THREADS": "1"}
    for program, *words in commands:
        ended = subprocess.run(
            [*PROGRAMS[program], *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_the_commands_lead_from_a_script_to_a_run(tmp_path: Path) -> None:
    follow("From a trace to `jigsaw run`", tmp_path, "net.py", "trace.py")
    graph = read_layers((tmp_path / "layers.json").read_bytes())
    names = ["stem", *(f"layers.{at}" for at in range(4)), "head"]
    assert [layer.name for layer in graph.layers] == names
    assert graph.layers[0].input_bytes == 4 * 4 * 16 and graph.knows_input
    partition = decode_partition((tmp_path / "cut.json").read_bytes())
    assert [name for stage in partition.stages for name in stage.nodes] == names
    found = load_replay(tmp_path / "replay.json")
    assert len(found.gpus) == len(partition.stages) == 2
    assert all(0 < gpu.memory_bytes <= gpu.planned_memory_bytes for gpu in found.gpus)


@pytest.mark.slow
def test_the_commands_lead_from_a_script_to_a_configuration(tmp_path: Path) -> None:
    follow("From a trace to TorchTitan", tmp_path, "train.py")
    names = ["tok_embeddings", *(f"layers.{at}" for at in range(6)), "norm", "output"]
    graph = read_layers((tmp_path / "layers.json").read_bytes())
    assert [layer.name for layer in graph.layers] == names
    assert [layer.output_bytes for layer in graph.layers[:-1]] == [4 * 32 * 4 * 64] * (len(names) - 1)
    read = tomllib.loads((tmp_path / "run.toml").read_text())
    assert [name for part in read["parallelism"]["module_fqns_per_model_part"] for name in part] == names
    assert read["training"]["local_batch_size"] == 8 * read["parallelism"]["pipeline_parallel_microbatch_size"] == 32
    instance, plan = load_instance(tmp_path / "pipeline.json"), load_plan(tmp_path / "plan.json")
    _, layout = pipeline_of(instance, plan)
    rows = (tmp_path / read["parallelism"]["pipeline_parallel_schedule_csv"]).read_text().splitlines()
    assert len(rows) == layout.gpus == 2
    assert sum(row.count("F") for row in rows) == layout.stages * 8
