"""What the pages on the executor show runs as it stands: examples, and commands from a model to a run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from jigsaw_opt.cli import main
from jigsaw_opt.documents import load_instance, load_plan, load_replay, read_layers
from jigsaw_opt.documents.replay import require_replay_of
from jigsaw_opt.executor.exchange.by_bucket import Averaging
from jigsaw_opt.executor.level_schedule import LevelSchedule
from jigsaw_opt.executor.own_worker import OwnWorker
from jigsaw_opt.executor.partial.level_rules import level_rule
from jigsaw_opt.executor.pipeline.stage_worker import StageWorker
from jigsaw_opt.executor.schedules.request import ReplaySettings
from jigsaw_opt.planning.partition.result import decode_partition
from jigsaw_opt.planning.pipeline.stated import pipeline_of
from tests.pages import section
from tests.processes import run_python, wait_for

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "executor.md").read_text()
LOOP_PAGE = (ROOT / "docs" / "training-loop.md").read_text()
LOOP, ADAPTED = re.findall(r"```python\n(.*?)```", LOOP_PAGE, re.DOTALL)
PROFILE, TRAINING, STAGES, WORKER = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


PROGRAMS = {"python": (), "torchrun": ("-m", "torch.distributed.run", "--standalone")}
"""By name, what Python runs instead."""


@pytest.fixture
def jigsaw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[str, str]]]:
    """Run the program in a folder from which it also imports, with short measurements; what it prints and tells.

    Searches have a limit of work in place of one of time, so that what they find does not depend on the machine.
    """
    known = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(command: str, *words: str) -> tuple[str, str]:
        capsys.readouterr()
        quick = ("--repeats", "1") if command == "profile" else ()
        limited = ["1" if before == "--time-limit" else word for before, word in pairwise((command, *words))]
        short = ["--work-limit" if word == "--time-limit" else word for word in limited]
        assert main([command, *short, *quick]) == 0
        return capsys.readouterr()

    yield run
    for name in set(sys.modules) - known:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("example", "printed"),
    [
        (WORKER, r"loss [0-9]+\.[0-9]{3}\n"),
        (PROFILE, r"\[[0-9]+, [0-9]+, [0-9]+\] 3\n"),
        (LOOP, r"(?s).*the input.*\nloss 0\.[0-9]{3}\n"),
        (ADAPTED, ""),
    ],
    ids=["worker", "profile", "loop", "adapted"],
)
def test_an_example_runs(example: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        exec(example, {"__name__": "__main__"})
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    assert re.fullmatch(printed, capsys.readouterr().out)


def test_the_table_of_levels_names_every_rule() -> None:
    named = re.findall(r'^\| `"(\w+)"', LOOP_PAGE, re.MULTILINE)
    assert len(named) == 7
    assert all(3 in level_rule(levels, 3, 2, 0, 1, 0)(6) for levels in named)


def test_the_example_of_a_training_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
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
    worker = OwnWorker(entry, "$", 0, 1, torch.device("cpu"), None, 0)
    assert worker.model.depth == 3 and worker.clip_grad_norm == 1.0
    assert worker.block(2, lambda _: None) > 0


def test_the_example_of_stages_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("net")
    exec(STAGES, vars(module))
    monkeypatch.setitem(sys.modules, "net", module)
    entry = {"train": "net:stages", "arguments": {}, "cuts": []}
    own = StageWorker(entry, "$", 1, 2, torch.device("cpu"), [1], 2, ReplaySettings())
    assert [tuple(each.weight.shape) for each in own.model.own.values()] == [(1, 64)]  # type: ignore[union-attr]
    assert sum(len(group["params"]) for group in own.optimiser.param_groups) == 2
    assert [tuple(each.shape) for each in own.source.take()] == [(16, 16), (16, 1)]


def test_what_the_table_of_the_exchange_names_can_be_imported() -> None:
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


STATED = {
    "forward_us": 1000,
    "backward_us": 2500,
    "weight_us": 1200,
    "core": 100,
    "latency_us": 100,
    "bandwidth": 10**9,
}
"""Times and speeds by key of a profile; `core` is a time of the small network that runs in the background."""


def write_stated_times(path: Path) -> None:
    """Write stated times into a profile: with measured ones it is chance whether background jobs fit into the holes."""

    def stated(found: re.Match[str]) -> str:
        return f'"{found["key"]}": {STATED[found["key"]]}'

    keys = "|".join(STATED)
    text, changed = re.subn(rf'"(?P<key>{keys})": [0-9.]+', stated, path.read_text())
    assert changed >= 2
    path.write_text(text)


@pytest.mark.slow
def test_the_commands_lead_from_a_model_to_a_measured_slow_down(
    tmp_path: Path, jigsaw: Callable[..., tuple[str, str]]
) -> None:
    pytest.importorskip("ortools", reason="pip install 'jigsaw-opt[ortools]'")
    page = (ROOT / "docs" / "fill.md").read_text()
    (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "net.py").write_text(script)
    for line in re.findall(r"^\$ jigsaw (.*)", page, re.MULTILINE):
        words, _, output = line.partition(" > ")
        printed, told = jigsaw(*shlex.split(words))
        if output:
            (tmp_path / output).write_text(printed)
        if words.startswith("profile"):
            write_stated_times(tmp_path / (output or shlex.split(words)[-1]))
    assert "slow-down" in printed and "micro-batch" not in told  # which are as large as planned
    instance, plan = load_instance(tmp_path / "filled.json"), load_plan(tmp_path / "filled.plan.json")
    replay = load_replay(tmp_path / "replay.json")
    require_replay_of(plan, replay, "replay.json")
    assert {"piece", "pipe"} <= {job.name for job in instance.jobs}
    assert replay.baseline is not None and [job.name for job in replay.baseline.timeline.jobs] == ["pipe"]


def follow(part: str, folder: Path, jigsaw: Callable[..., tuple[str, str]], *scripts: str) -> None:
    """Write the scripts of a part of the page, and run its commands."""
    pytest.importorskip("ortools", reason="pip install 'jigsaw-opt[ortools]'")
    text = section((ROOT / "docs" / "pipelines.md").read_text(), part)
    for name, script in zip(scripts, re.findall(r"```python\n(.*?)```", text, re.DOTALL), strict=True):
        (folder / name).write_text(script)
    commands = [shlex.split(line) for line in re.findall(r"^\$ (?!export )(.*)", text, re.MULTILINE)]
    assert len(commands) <= 8
    for program, *words in commands:
        jigsaw(*words) if program == "jigsaw" else run_python(*words, folder=folder)


@pytest.mark.slow
def test_the_commands_lead_from_a_script_to_a_run(tmp_path: Path, jigsaw: Callable[..., tuple[str, str]]) -> None:
    follow("From a trace to `jigsaw run`", tmp_path, jigsaw, "net.py", "trace.py")
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
def test_the_commands_lead_from_a_script_to_a_configuration(
    tmp_path: Path, jigsaw: Callable[..., tuple[str, str]]
) -> None:
    follow("From a trace to TorchTitan", tmp_path, jigsaw, "train.py")
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
@pytest.mark.parametrize("name", PACKAGES)
def test_the_example_learns_on_two_processes(name: str, tmp_path: Path) -> None:
    for package in PACKAGES[name]:
        pytest.importorskip(package, reason=f"{package} is not installed (extra examples)")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    printed, _ = run_python(*launcher, ROOT / "examples" / f"partial_{name}.py", folder=tmp_path)
    losses = [float(loss) for loss in re.findall(r"loss ([0-9]+\.[0-9]{3})", printed)]  # lines may run together
    assert len(losses) == 2 and all(loss < 0.6 * BEGINS[name] for loss in losses)


EXAMPLE = ROOT / "examples" / "own_training"


def commands() -> list[list[str]]:
    page = (ROOT / "docs" / "training-loop.md").read_text()
    return [shlex.split(line) for line in re.findall(r"^\$ (.*)", section(page, "From a loop to a plan"), re.MULTILINE)]


def test_it_takes_at_most_15_lines_beyond_the_model() -> None:
    text = "".join((EXAMPLE / name).read_text() for name in ("training.py", "loop.py"))
    code = re.sub(r'^ *""".*?"""$', "", text, flags=re.MULTILINE | re.DOTALL).splitlines()
    assert sum(bool(line) and not re.match(r"import |from |#", line) for line in code) <= 15


@pytest.mark.slow
def test_the_commands_of_the_page_lead_from_a_loop_to_a_run_that_goes_on(
    tmp_path: Path, jigsaw: Callable[..., tuple[str, str]]
) -> None:
    shutil.copytree(EXAMPLE, tmp_path, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)

    def done(program: str, *words: str) -> str:
        return (jigsaw(*words) if program == "jigsaw" else run_python(*PROGRAMS[program], *words, folder=tmp_path))[0]

    (cd, loop, export, *measured, new, solve, run, resume, load) = commands()
    assert (cd, export) == (["cd", "examples/own_training"], ["export", "PYTHONPATH=."])
    losses = re.findall(r"loss ([0-9]\.[0-9]{3})", done(*loop))  # two lines may run together
    assert len(losses) == 2 and all(float(loss) < 1.3 for loss in losses)  # guesses have 1.386
    for words in (*measured, new, solve):
        done(*words)

    assert (run, run.index("--iterations")) == (resume[:-1], run.index("1000") - 1)
    command = [sys.executable, "-P", "-m", "jigsaw_opt", *run[1:], "--checkpoint-every", "1"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), ".")), "OMP_NUM_THREADS": "1"}
    interrupted = subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, stderr=subprocess.PIPE)
    saved = tmp_path / "saved"
    try:
        wait_for(lambda: any(saved.glob("job1-*-iteration??*.pt")) or interrupted.poll() is not None)
    finally:
        interrupted.send_signal(signal.SIGTERM)
        told = interrupted.communicate()[1]
    assert interrupted.returncode == 130 and "--resume" in told, told
    last = max(int(path.stem.partition("iteration")[2]) for path in saved.glob("*.pt"))
    passes = str(last // 6 + 2)
    replays = []
    for words in (resume, [passes if word == "saved" else word for word in run]):
        done(*(passes if word == "1000" else word for word in words), "-o", "replay.json")
        replays.append(load_replay(tmp_path / "replay.json").timeline.jobs)
    resumed, whole = ([job.parameters_sha256 for job in jobs] for jobs in replays)
    assert resumed == whole and all(len(set(own)) == 1 for own in whole)
    assert min(job.first_iteration for job in replays[0]) > 0 == max(job.first_iteration for job in replays[1])
    done(*(word.replace("iteration8000", f"iteration{8 * int(passes)}") for word in load))
