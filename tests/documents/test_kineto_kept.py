"""Activations of traces of the PyTorch profiler: against what autograd keeps, stated, and unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import load_instance
from jigsaw_opt.documents.readers import read_kineto_layers
from jigsaw_opt.errors import InvalidInputError
from tests.refusals import carries

FILE = Path(__file__).parents[1] / "data" / "trace.kineto.json"
LAYERS = ("layer:a", "layer:b", "layer:head")


def network(kind: str) -> tuple[Any, Any]:
    """Return the layers of a network, and a batch of it."""
    import torch
    from torch import nn

    class Block(nn.Module):
        """Attention before a perceptron, each after a normalisation and around it a sum."""

        def __init__(self, weighted: bool) -> None:
            super().__init__()
            self.weighted = weighted
            self.first, self.second = nn.LayerNorm(32), nn.LayerNorm(32)
            self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
            self.perceptron = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32), nn.Dropout(0.1))

        def forward(self, batch: Any) -> Any:
            read = self.first(batch)
            batch = batch + self.attention(read, read, read, need_weights=self.weighted)[0]
            return batch + self.perceptron(self.second(batch))

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.LSTM(32, 64, 2, batch_first=True)

        def forward(self, batch: Any) -> Any:
            return self.cells(batch)[0]

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.norm = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
            self.relu = nn.ReLU(inplace=True)

        def forward(self, batch: Any) -> Any:
            return self.relu(batch + self.norm(self.convolution(batch)))

    words, images = torch.randn(4, 16, 32), torch.randn(4, 3, 16, 16)
    encoder = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    layers = {
        "perceptron": [nn.Sequential(nn.Linear(32, 64), nn.ReLU()), nn.Sequential(nn.Linear(64, 8), nn.Tanh())],
        "convolutions": [
            nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            Residual(),
            nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(128, 8)),
        ],
        "attention": [Block(weighted=False), Block(weighted=True)],
        "encoder": [encoder, nn.TransformerEncoder(encoder, 2)],
        "lstm": [Recurrent(), nn.Linear(64, 8)],
    }[kind]
    return nn.ModuleList(layers), images if kind == "convolutions" else words


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["perceptron", "convolutions", "attention", "encoder", "lstm"])
def test_activations_are_about_what_autograd_keeps(kind: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    layers, first = network(kind)
    weights = {one.untyped_storage().data_ptr() for one in (*layers.parameters(), *layers.buffers())}
    kept: list[dict[int, int]] = [{} for _ in layers]
    alive: list[Any] = []

    def train() -> None:
        batch = first
        for k, layer in enumerate(layers):

            def pack(tensor: Any, k: int = k) -> Any:
                alive.append(tensor)
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in weights:
                    kept[k][storage.data_ptr()] = storage.nbytes()
                return tensor

            hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
            with torch.profiler.record_function(f"layer {k}"), hooks:
                batch = layer(batch)
        batch.sum().backward()

    train()
    true = [sum(one.values()) for one in kept]
    alive.clear()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        train()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    found = [one.activation_bytes for one in read_kineto_layers((tmp_path / "trace.json").read_bytes())]
    assert len(found) == len(true)
    for estimated, measured in zip(found, true, strict=True):
        assert 0.8 * measured <= estimated <= 1.25 * measured


def shapeless() -> str:
    """Return the trace as it is without `record_shapes`."""
    tree = json.loads(FILE.read_text())
    for one in tree["traceEvents"]:
        for key in ("Input Dims", "Input type"):
            one["args"].pop(key, None)
    return json.dumps(tree)


def test_activations_without_shapes_are_to_be_stated() -> None:
    parameters, activations = dict.fromkeys(LAYERS, 8), {name: 10 * k for k, name in enumerate(LAYERS)}
    told: list[str] = []
    found = read_kineto_layers(shapeless(), parameter_bytes=parameters, activation_bytes=activations, tell=told.append)
    assert [one.activation_bytes for one in found] == [0, 10, 20]
    assert not any("estimated" in line for line in told)
    with pytest.raises(InvalidInputError) as caught:
        read_kineto_layers(
            shapeless(), parameter_bytes=parameters, activation_bytes={"layer:b": 2**60, "x": 1}, source="t"
        )
    assert [str(one) for one in caught.value.problems] == [
        't: no operation has shapes, so activations are unknown of "layer:a", "layer:head" '
        "(profile with record_shapes=True, or state activations)",
        f't: layer "layer:b" has activations of 0 to {2**40} bytes, not {2**60}',
        't: activations of a layer "x", which there is not',
    ]


def test_activations_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "i.json"
    convert = ["convert", "kineto", str(FILE), "--gpu-type", "v100", "-o", str(out)]
    assert main(convert) == 0
    assert capsys.readouterr().err.count("activations are estimated from shapes; `jigsaw profile` measures them") == 1
    stated = [word for name in LAYERS for word in ("--activations", f"{name}=77")]
    assert main([*convert, *stated]) == 0
    assert {one.activation_bytes for one in load_instance(out).models["trace"].segments} == {77}
    assert "estimated" not in capsys.readouterr().err
    assert main([*convert, "--activations", "x"]) == 2
    assert carries(capsys.readouterr().err, "--activations", "LAYER=BYTES")


def test_one_large_layer_is_told_with_what_it_holds() -> None:
    def event(name: str, start: float, length: float, cat: str = "cpu_op", **arguments: Any) -> dict[str, Any]:
        named = {key.replace("_", " "): value for key, value in arguments.items()}
        return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": length, "args": named}

    node = "autograd::engine::evaluate_function: "
    events = [event("nn.Module: Net_0", 0.5, 96, "python_function")]
    modules = [
        ("Embedding_0", 1, 4),
        ("Encoder_0", 10, 80),
        ("Linear_0", 92, 4),
        ("Block_0", 11, 38),
        ("Block_1", 50, 38),
    ]
    events += [event(f"nn.Module: {name}", start, length, "python_function") for name, start, length in modules]
    for k, (start, length) in enumerate(((2, 2), (12, 30), (52, 30), (93, 2))):
        events.append(event("aten::mm", start, length, Sequence_number=k, Input_Dims=[], Input_type=[]))
        events.append(event(node + "MmBackward0", 250 - 40 * k, 3, Sequence_number=k))
        gradient = event("torch::autograd::AccumulateGrad", 255.1 - 40 * k, 0.1, Input_Dims=[[2]], Input_type=["float"])
        events += [event(node + "torch::autograd::AccumulateGrad", 255 - 40 * k, 1), gradient]
    told: list[str] = []
    read_kineto_layers(json.dumps({"traceEvents": events}), source="t", tell=told.append)
    wanted = 'has 85 % of the time: --layers chooses from what it holds, "Block_0", "Block_1"; name "Embedding_0"'
    assert any(wanted in line for line in told), told
