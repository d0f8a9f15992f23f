"""Measured profiles: exact sizes, times that fit the blocks, a model that an instance takes, clear refusals."""

from __future__ import annotations

import json
import multiprocessing
import signal
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from distributed_training import failing
from replayed import instance, run

import jigsaw_opt.executor as room
from jigsaw_opt.documents import schema
from jigsaw_opt.executor import processes
from jigsaw_opt.executor.devices import Spread, fit_two, isotonic, spread
from jigsaw_opt.executor.models.building import build, build_network, replica
from jigsaw_opt.executor.models.leveled_model import saved_bytes
from jigsaw_opt.executor.processes import run_group
from jigsaw_opt.executor.profiling import LevelProfile, ModelProfile, SegmentProfile, profile_replica
from jigsaw_opt.executor.profiling.links import AllReduceSample, LinkFit, fit
from jigsaw_opt.executor.profiling.restoring import flushed_denormals
from jigsaw_opt.executor.worker import TrainingRecipe
from jigsaw_opt.system.children import start_deaf
from tests.refusals import ends


@pytest.mark.parametrize(("optimiser", "state_factor"), [("sgd", 3), ("adam", 4)])
def test_sizes_are_exact(optimiser: Any, state_factor: int) -> None:
    trained = replica(build_network("mlp", {"hidden": [32, 16]}), (0, 1, 2, 3), 4)
    options = {"momentum": 0.9} if optimiser == "sgd" else {}
    found = profile_replica(trained, TrainingRecipe(optimiser, {"lr": 1e-3, **options}), torch.device("cpu"), 1, 2)
    model = found.model("cpu", {"zoo": "mlp", "arguments": {}, "batch_size": 4})
    assert [s.parameter_bytes for s in model.segments] == [4 * 65 * 32, 4 * 33 * 16, 4 * 17 * 10]
    assert found.state_bytes == state_factor * sum(s.parameter_bytes for s in model.segments)
    assert model.state_factor == state_factor
    batch = trained.batch(0, 0, 0)
    assert tuple(s.activation_bytes for s in model.segments) == saved_bytes(trained.model, batch, 3)
    assert [level.memory_bytes for level in found.levels] == [
        sum(saved_bytes(trained.model, batch, level)) for level in (1, 2, 3)
    ]
    assert all(spread.low <= spread.median <= spread.high for s in found.segments for spread in _spreads(s))
    assert all(level.block.median > 0 for level in found.levels)


def _spreads(segment: SegmentProfile) -> tuple[Spread, ...]:
    return segment.forward, segment.backward, segment.input_gradients, segment.weight_gradients


def measured(forward: list[float], backward: list[float], blocks: list[float]) -> ModelProfile:
    segments = tuple(
        SegmentProfile(f"s{i}", Spread(f, f, f), Spread(b, b, b), Spread(b, b, b), Spread(0, 0, 0), 100.0, 8, 0)
        for i, (f, b) in enumerate(zip(forward, backward, strict=True))
    )
    return ModelProfile(segments, tuple(LevelProfile(i, Spread(b, b, b), 0) for i, b in enumerate(blocks, 1)), 72)


def test_the_model_states_times_that_add_up_to_the_blocks() -> None:
    found = measured([400, 300, 200], [700, 600, 100], [1060.4, 1900, 2500])
    assert found.parts_us == (1300, 1900, 2600)
    model = found.model("cpu", {"zoo": "mlp", "arguments": {}, "batch_size": 4})
    assert model.block_us("cpu") == (1060, 1900, 2500)
    assert [s.backward_us["cpu"] for s in model.segments] == [600, 840, 100]
    assert [s.forward_us["cpu"] for s in model.segments] == [400, 320, 240]
    assert model.state_factor == 3


def test_a_deeper_block_is_never_stated_faster() -> None:
    model = measured([1, 1, 1], [1, 1, 9], [5, 8, 4]).model("cpu", {"zoo": "mlp", "arguments": {}, "batch_size": 4})
    assert model.block_us("cpu") == (5, 6, 6)
    assert sum(s.forward_us["cpu"] for s in model.segments) == 1


def test_isotonic_regression_is_the_nearest_sequence_that_never_falls() -> None:
    assert isotonic([1, 2, 2, 5]) == [1, 2, 2, 5]
    assert isotonic([3, 1, 2, 6, 4, 7]) == [2, 2, 2, 5, 5, 7]
    values = [2.0, 5.0, 1.0, 3.0]
    found = isotonic(values)
    grid = [k / 3 for k in range(16)]
    rising = (trial for trial in product(grid, repeat=4) if list(trial) == sorted(trial))
    assert sum((a - b) ** 2 for a, b in zip(found, values, strict=True)) <= 1e-9 + min(
        sum((a - b) ** 2 for a, b in zip(trial, values, strict=True)) for trial in rising
    )


@pytest.mark.parametrize(("x", "y"), [(2.0, 3.0), (0.0, 3.0), (2.0, 0.0)])
def test_a_fit_finds_what_the_times_were_made_of(x: float, y: float) -> None:
    rows = [(a, b, x * a + y * b) for a, b in product((1.0, 4.0), (1.0, 2.0, 7.0))]
    assert fit_two(rows) == pytest.approx((x, y), abs=1e-9)


def test_a_fit_is_the_best_one_that_is_not_negative() -> None:
    rows = [(1.0, 1.0, 1.0), (1.0, 2.0, 4.0), (1.0, 3.0, 9.0)]

    def loss(x: float, y: float) -> float:
        return sum(((x * a + y * b) / t - 1) ** 2 for a, b, t in rows)

    x, y = fit_two(rows)
    assert x >= 0 and y >= 0
    grid = [k / 50 for k in range(251)]
    assert loss(x, y) <= min(loss(a, b) for a in grid for b in grid) + 1e-9


def test_all_reduce_fit_recovers_latency_and_bandwidth() -> None:
    truth = LinkFit(20.0, 1e-3)
    shapes = [AllReduceSample(w, size, Spread(1, 1, 1)) for w in (2, 4) for size in (2**12, 2**20)]
    samples = [AllReduceSample(s.workers, s.size, Spread(t, t, t)) for s in shapes for t in [truth.time_us(s)]]
    assert samples[0].time.median == pytest.approx(2 * 20 + 2**12 * 1e-3)
    found = fit(samples)
    assert (found.latency_us, found.bandwidth) == (pytest.approx(20.0), 10**9)
    assert all(abs(found.residual(sample)) < 1e-9 for sample in samples)
    assert LinkFit(1.0, 0.0).bandwidth == 2**53 - 1


def test_spread() -> None:
    assert spread([1, 2, 3, 4, 100]) == Spread(3, 2, 4)
    assert spread([7]) == Spread(7, 7, 7)


def test_profile_writes_a_model_that_an_instance_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.json"
    options = ("--argument", "layers=1", "--argument", "data=text", "--batch", 2, "--segments", 2, "--repeats", 2)
    assert run("profile", "gpt", *options, "--gpu-type", "box", "--json", "-o", file) == 0
    printed = json.loads(capsys.readouterr().out)
    document = json.loads(file.read_text())
    assert printed["model"] == document and printed["versions"]["torch"] == torch.__version__
    whole = schema("instance")
    jsonschema.validate(document, {"$ref": "#/$defs/model", "$defs": whole["$defs"]})
    assert document["executor"] == {"zoo": "gpt", "arguments": {"layers": 1, "data": "text"}, "batch_size": 2}
    taken = instance(models={"net": document}, jobs=[{"name": "a", "model": "net", "workers": 1, "iterations": 1}])
    assert build("net", taken.models["net"]).model.names == tuple(s.name for s in taken.models["net"].segments)
    assert [s["name"] for s in printed["profile"]["segments"]] == [s["name"] for s in document["segments"]]


def test_profile_of_an_all_reduce(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("profile", "--all-reduce", 2, "--repeats", 1, "--json") == 0
    found = json.loads(capsys.readouterr().out)["all_reduce"]
    assert [row["bytes"] for row in found["alone"]] == [row["bytes"] for row in found["two_at_once"]]
    assert len(found["alone"]) >= 5 and {row["workers"] for row in found["alone"]} == {2}
    assert found["bandwidth"] >= 1 and found["latency_us"] >= 0
    assert all("residual" in row and row["time_us"]["median"] > 0 for row in found["alone"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("gtp",), "3: unknown-name $.zoo"),
        (("mlp", "--argument", "hiden=[3]"), "3: unknown-field $.arguments.hiden"),
        (("os:system",), "3: not-allowed $.zoo"),
        (("mlp", "--argument", "hidden"), "2: malformed --argument"),
        (("mlp", "--repeats", 0), "2: out-of-range --repeats"),
        (("mlp", "--gpu-type", "a/b"), "2: malformed --gpu-type"),
        (("--all-reduce", 1), "2: out-of-range --all-reduce"),
        ((), "2: missing-option model"),
        (("mlp", "-o", "/dev/null/model.json"), "2: unwritable /dev/null/model.json"),
    ],
)
def test_bad_input(arguments: Any, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    ends(told, "profile", *arguments)
    assert capsys.readouterr().out == ""


def test_a_missing_device_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    ends("2: unsupported device", "profile", "mlp", "--device", "cuda")


def test_without_torch_the_install_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(room, "find_spec", lambda name: None)
    assert run("profile", "mlp") == 6
    assert "pip install 'jigsaw-opt[torch]'" in capsys.readouterr().err


def test_an_exception_in_one_process_ends_all_and_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        run_group(failing, 2)


@pytest.mark.parametrize("moment", ["before", "after", "while the server imports"])
def test_an_interrupt_while_processes_start_leaves_none_behind(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(process: Any) -> None:
        if moment == "after":
            start_deaf(process)
        signal.raise_signal(signal.SIGINT)
        if moment == "before":
            start_deaf(process)
        elif moment == "while the server imports":
            raise EOFError

    monkeypatch.setattr(processes, "start_deaf", start)
    with pytest.raises(processes.InterruptedGroupError):
        run_group(failing, 2)
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("kept", [True, False])
def test_denormal_numbers_are_flushed_while_a_model_is_profiled_alone(kept: bool) -> None:
    def denormal() -> float:
        return float((torch.tensor(1e-40) * 1).item())

    torch.set_flush_denormal(not kept)
    try:
        with flushed_denormals():
            assert denormal() == 0
        assert (denormal() > 0) == kept
    finally:
        torch.set_flush_denormal(False)
