"""Stages of pipelines and bursts: a module is cut where it is a chain, and stages may keep their input alone."""

from __future__ import annotations

import json
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import piped
import pytest
import torch
from replayed import run
from torch import Tensor, nn
from torch.distributed.pipelining._backward import (
    stage_backward,
    stage_backward_input,
    stage_backward_weight,
)

from jigsaw_opt.documents import encode_layers, load_plan, load_replay
from jigsaw_opt.documents.readers.profiles.burst_costs import read_burst_costs
from jigsaw_opt.documents.replay import require_replay_of
from jigsaw_opt.errors import RunFailedError
from jigsaw_opt.executor.catalogue import stages_entry
from jigsaw_opt.executor.hosts.burst import rows_of
from jigsaw_opt.executor.pipeline.own_stages import stage_modules
from jigsaw_opt.executor.pipeline.timed_stage import recomputed
from jigsaw_opt.executor.processes import run_group
from jigsaw_opt.executor.schedules.request import ReplayRequest
from jigsaw_opt.planning.burst.exact import fastest_plan
from jigsaw_opt.planning.burst.instance import burst_instance
from jigsaw_opt.problem import Instance
from jigsaw_opt.problem.measured.layers import LayerGraph, MeasuredLayer, chain_edges
from jigsaw_opt.problem.task_graph import BurstFamily, TaskGraphJob
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from tests.refusals import misuse


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.dense = nn.BatchNorm1d(4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dense(self.norm(x))


class Network(nn.Module):
    """A chain of blocks, unless told to do something between them."""

    def __init__(self, between: str = "") -> None:
        super().__init__()
        self.between = between
        self.stem, self.head = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 4)
        self.layers = nn.ModuleList(Block() for _ in range(3))
        if between == "parameter":
            self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        if self.between == "relu":
            x = x.relu()
        if self.between == "twice":
            x = self.layers[0](x)
        x = self.head(x)
        return x.sum(1) if self.between == "output" else x


def cut(model: nn.Module, *cuts: str) -> tuple[list[nn.Module], list[str]]:
    return stage_modules("net:whole", model, cuts, len(cuts) + 1, [(torch.randn(3, 4), None)])


@pytest.mark.parametrize(
    ("cuts", "parts"),
    [
        (["layers.1"], [("stem", "layers.0"), ("layers.1", "layers.2", "head")]),
        (["stem.1", "head"], [("stem.0",), ("stem.1", "layers.0", "layers.1", "layers.2"), ("head",)]),
    ],
)
def test_stages_have_the_modules_between_the_cuts_and_do_what_the_whole_does(
    cuts: list[str], parts: list[tuple[str, ...]]
) -> None:
    model, x = Network(), torch.randn(3, 4)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    draws = torch.get_rng_state()
    stages, names = cut(model, *cuts)
    torch.set_rng_state(draws)
    assert [stage.names for stage in stages] == parts
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    keys = [name + key for name, stage in zip(names, stages, strict=True) for key in stage.state_dict()]
    assert sorted(keys) == sorted(state)
    wanted, found = model.eval()(x), x
    for stage in stages:
        found = stage.eval()(found)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize(
    ("model", "cuts", "told"),
    [
        (Network("relu"), ["layers.1"], ("'layers.2'", "'head'")),
        (Network("output"), ["layers.1"], ("'head'", "the output")),
        (Network("twice"), ["layers.1"], ("'layers.0'", "twice")),
        (Network("parameter"), ["layers.1"], ("'scale'",)),
        (Network(), ["layers.1.dense"], ("'layers.1.dense'", "the output of 'layers.1'", "module 'layers.1' of")),
    ],
)
def test_what_is_no_chain_is_refused_with_the_place(model: nn.Module, cuts: list[str], told: Any) -> None:
    with misuse("unsupported cuts", naming=told):
        cut(model, *cuts)


def test_cuts_out_of_order_or_unknown_are_refused_with_the_names() -> None:
    for cuts in (["layers.2", "layers.1"], ["layers.7"], ["stem"]):
        with misuse("wrong-type cuts", naming=("'stem'", "'layers.2'", "'head'")):
            cut(Network(), *cuts)


class Counted(nn.Module):
    """Layers of many kinds, with draws and buffers, that count their forward passes."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Linear(6, 9), nn.BatchNorm1d(9), nn.Dropout(0.3), nn.GELU(), nn.Linear(9, 6), nn.Sigmoid()]
        self.inside, self.passes, self.between = nn.Sequential(*layers), 0, list[Any]()

    def forward(self, inputs: Tensor) -> Tensor:
        self.passes += 1
        hidden = self.inside[0](inputs)
        self.between.append(weakref.ref(hidden))
        return inputs + self.inside[1:](hidden)


def trained(split: bool, again: bool) -> tuple[Counted, Tensor, list[Tensor]]:
    """A module after two micro-batches in flight at once, the gradient of the second one's input, and draws behind."""
    torch.manual_seed(0)
    module = Counted()
    inputs = [torch.randn(5, 6).requires_grad_() for _ in range(2)]
    outputs = [recomputed(module, value) if again else module(value) for value in inputs]
    assert [each() is None for each in module.between] == [again, again], "what is computed again is let go of"
    found: Any = ()
    for given, output in zip(inputs, outputs, strict=True):
        gradient = torch.randn(5, 6)
        if split:
            found, groups = stage_backward_input([output], [gradient], [given], module.parameters())
            assert len(groups) > 2, "each of them is one call of autograd"
            stage_backward_weight(module.parameters(), groups)
        else:
            found = stage_backward(output, gradient, (given,))
    return module, found[0], [torch.rand(3)]


@pytest.mark.parametrize("split", [False, True])
def test_nothing_differs_but_the_number_of_forward_passes(split: bool) -> None:
    plain, again = trained(split, False), trained(split, True)
    assert (plain[0].passes, again[0].passes) == (2, 4)
    for one, other in zip(plain[0].parameters(), again[0].parameters(), strict=True):
        assert one.grad is not None and other.grad is not None and torch.equal(one.grad, other.grad)
    assert torch.equal(plain[1], again[1]) and torch.equal(plain[2][0], again[2][0])
    for one, other in zip(plain[0].buffers(), again[0].buffers(), strict=True):
        assert torch.equal(one, other)


def test_another_second_pass_is_told() -> None:
    class Fickle(nn.Module):
        passes = 0

        def forward(self, inputs: Tensor) -> Tensor:
            self.passes += 1
            return inputs.sin() if self.passes == 1 else inputs.sin().cos()

    with pytest.raises(RunFailedError, match="other tensors come of it than before"):
        recomputed(Fickle(), torch.ones(3, requires_grad=True)).sum().backward()


@pytest.mark.slow
def test_a_plan_that_recomputes_trains_the_same_within_less_memory(tmp_path: Path) -> None:
    # As `piped:deep` is made: a micro-batch of four samples has 256 numbers between layers, which keep four times that.
    weight, kept = 64 * 65 * 4, 4 * 256 * 4
    layers = tuple(MeasuredLayer(str(at), 100, 200, weight, kept, 100, 4 * 64 * 4) for at in range(6))
    layers = (replace(layers[0], input_bytes=4 * 64 * 4), *layers[1:])
    (tmp_path / "layers.json").write_bytes(encode_layers(LayerGraph(layers, chain_edges(6), 4, 3)))
    digests, bytes_of = list[Any](), list[list[int]]()
    for again, memory in (("none", 10**6), ("all", 165_000)):
        files = [tmp_path / f"{again}.{name}" for name in ("instance", "plan", "cut", "replay")]
        asked = ("--stages", 2, "--micro-batches", 4, "--batch", 16, "--recompute", again, "--memory", memory)
        written = ("-o", files[0], "--plan", files[1], "--cuts", files[2])
        assert run("pipeline", tmp_path / "layers.json", *asked, "--work-limit", 0.2, "-q", *written) == 0
        stages = json.loads(files[2].read_text())["stages"]
        assert [stage["recompute"] for stage in stages] == [again == "all"] * 2
        assert [stage["input_bytes"] for stage in stages] == [4 * 64 * 4, None]
        ran = ("--trust", "piped:deep", "--partition", files[2], "--warm-up", 1, "--iterations", 2, "-o", files[3])
        assert run("run", *files[:2], *ran) == 0
        found = load_replay(files[3])
        [job] = found.timeline.jobs
        digests.append(job.parameters_sha256)
        bytes_of.append([gpu.memory_bytes for gpu in found.gpus])
        assert all(gpu.memory_bytes <= gpu.planned_memory_bytes for gpu in found.gpus)
    assert bytes_of[1][0] >= 3 * 3 * weight + 3 * kept + 4 * 64 * 4, "the first stage holds its input, too"
    assert digests[0] == digests[1]
    assert max(bytes_of[1]) <= 165_000 < max(bytes_of[0])


WIDTHS = (2, 1, 3, 3, 1)


def costs() -> dict[str, Any]:
    """Five layers, each with one choice of GPUs, and times for moving and synchronising."""
    layers = []
    for number, gpus in enumerate(WIDTHS):
        config = {"gpus": gpus, "gpu_us": 900.0, "fwd_us": 300.0, "bwd_us": 600.0, "sync_us": 90.0 * (gpus > 1)}
        layer = {"id": number, "name": "linear", "single_gpu_us": 900.0, "configs": [config]}
        layers.append(layer | ({"xfer_us": [[80.0 * (gpus != WIDTHS[number - 1])]]} if number else {}))
    return {"gpus": 3, "layers": layers}


def instance() -> Instance:
    plan = fastest_plan(read_burst_costs(json.dumps(costs())), 100.0, "exact")
    return burst_instance(plan, "burst", "finite")


def shape_of(of: Instance) -> Any:
    [job] = of.jobs
    assert isinstance(job, TaskGraphJob)
    return job.shape


def test_samples_are_shared_out_evenly() -> None:
    assert [rows_of(rank, 3, 12) for rank in range(4)] == [range(4), range(4, 8), range(8, 12), range(0)]


def test_a_burst_is_built_by_its_family() -> None:
    assert shape_of(instance()).family == BurstFamily(WIDTHS)
    assert stages_entry(instance(), ["own:net"]) == {"train": "own:net", "arguments": {}, "cuts": []}


@pytest.mark.slow
def test_gradients_of_a_burst_are_those_of_one_process(tmp_path: Path) -> None:
    of = instance()
    plan = solve(of, "greedy", Options(threads=1)).plan
    assert plan is not None
    entry = {"train": "piped:layers", "arguments": {}, "cuts": []}
    found = run_group(piped.burst, 3, ReplayRequest(instance=of, plan=plan), entry)
    assert [layers for layers, _, _ in found] == [[0, 1, 2, 3, 4], [0, 2, 3], [2, 3]]
    assert all(largest > 1e-3 and difference < 1e-6 for _, difference, largest in found)


@pytest.mark.slow
def test_a_burst_is_measured(tmp_path: Path) -> None:
    files, replay = (tmp_path / "burst.json", tmp_path / "plan.json"), tmp_path / "replay.json"
    (tmp_path / "costs.json").write_text(json.dumps(costs()))
    assert run("burst", tmp_path / "costs.json", "--limit", 100, "-o", files[0]) == 0
    assert run("solve", files[0], "--solver", "greedy", "-o", files[1], "-q") == 0
    assert run("run", *files, "--trust", "piped:layers", "--iterations", 2, "-o", replay) == 0
    found = load_replay(replay)
    require_replay_of(load_plan(files[1]), found, "replay")
    assert set(found.kinds) == set("AFBSG") and found.kinds["F"].count == 10
    [job] = found.timeline.jobs
    assert len({digest.split("+")[-1] for digest in job.parameters_sha256[1:]}) == 1, "layer 3 is the same on both"
    assert run("plot", *files, "--replay", replay, "-o", tmp_path / "burst.html") == 0
