"""The example of the page on the executor runs as it stands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "executor.md").read_text()


PROFILE, TRAINING, STAGES, WORKER = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "printed"),
    [(WORKER, r"loss [0-9]+\.[0-9]{3}\n"), (PROFILE, r"\[[0-9]+, [0-9]+, [0-9]+\] 3\n")],
    ids=["worker", "profile"],
)
def test_an_example_runs(example: str, printed: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", example], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert re.fullmatch(printed, ended.stdout)


def test_the_example_of_a_training_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    from jigsaw_opt.executor.user_code.training import WorkerPlace, own_training

    class Net(torch.nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(10)))

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return self.layers(rows)

    module = ModuleType("train")
    data = TensorDataset(torch.randn(64, 64), torch.randint(64, (64,)))
    vars(module).update(torch=torch, Net=Net, DATA=data, DataLoader=DataLoader, DistributedSampler=DistributedSampler)
    exec(TRAINING, vars(module))
    monkeypatch.setitem(sys.modules, "train", module)
    (entry,) = (json.loads(found) for found in re.findall(r'"executor": (\{"train.*)\n', PAGE))
    replica, recipe = own_training(entry, "$", WorkerPlace(0, 1, torch.device("cpu"), None), 0)
    assert replica.model.depth == 3 and recipe.clip_grad_norm == 1.0
    assert replica.model.backpropagate(replica.batch(0, 0, 0), 2) > 0


def test_the_example_of_stages_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from jigsaw_opt.executor.pipeline.own_stages import own_stages
    from jigsaw_opt.executor.replay.request import ReplaySettings

    module = ModuleType("net")
    exec(STAGES, vars(module))
    monkeypatch.setitem(sys.modules, "net", module)
    entry = {"train": "net:stages", "arguments": {}, "cuts": []}
    given = {"rank": 1, "world": 2, "device": torch.device("cpu")}
    own = own_stages(entry, "$", given, [1], 2, ReplaySettings())
    assert [tuple(each.weight.shape) for each in own.modules.values()] == [(1, 64)]  # type: ignore[union-attr]
    assert sum(len(group["params"]) for group in own.optimiser.param_groups) == 2
    assert [tuple(each.shape) for each in own.source.take()] == [(16, 16), (16, 1)]


def test_what_the_table_of_the_exchange_names_can_be_imported() -> None:
    from jigsaw_opt.executor.exchange.by_bucket import Averaging
    from jigsaw_opt.executor.level_schedule import LevelSchedule

    names = re.findall(r"`Averaging\.(\w+)`", PAGE)
    assert {Averaging[name].name for name in names} == set(Averaging.__members__)
    calls = re.findall(r"`LevelSchedule\((\w+)=\"(\w+)\"", PAGE)
    assert len(calls) >= 3
    assert all(LevelSchedule(3, 2, **{key: value}).levels(5) for key, value in calls)


def test_commands_that_import_a_file_of_the_folder_say_where_it_is() -> None:
    pages = [path.read_text() for path in (ROOT / "docs").glob("*.md")]
    blocks = [block for page in pages for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL)]
    own = [block for block in blocks if re.search(r"^\$ .*--trust", block, re.MULTILINE)]
    assert len(own) >= 3
    assert all("PYTHONPATH=." in block.partition("--trust")[0] for block in own)
