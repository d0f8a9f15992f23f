"""Stages that keep their input alone: gradients, draws, buffers and memory, with whole and split backward passes."""

from __future__ import annotations

import json
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from replayed import run  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.distributed.pipelining._backward import (  # noqa: E402
    stage_backward,
    stage_backward_input,
    stage_backward_weight,
)

from jigsaw_opt.documents import encode_layers, load_replay  # noqa: E402
from jigsaw_opt.errors import RunFailedError  # noqa: E402
from jigsaw_opt.executor.pipeline.recomputing import recomputed  # noqa: E402
from jigsaw_opt.problem.measured.layers import LayerGraph, MeasuredLayer, chain_edges  # noqa: E402


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
@pytest.mark.parametrize("split", [False, True])
def test_a_plan_that_recomputes_trains_the_same_within_less_memory(split: bool, tmp_path: Path) -> None:
    # As `piped:deep` is made: a micro-batch of four samples has 256 numbers between layers, which keep four times that.
    weight, kept = 64 * 65 * 4, 4 * 256 * 4
    layers = tuple(
        MeasuredLayer(str(at), 100, 200, weight, kept, 100 if split else None, 4 * 64 * 4) for at in range(6)
    )
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
