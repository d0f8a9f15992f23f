"""What passes the boundaries of segments, and layer profiles of measured models."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from torch import Tensor, nn  # noqa: E402

import jigsaw_opt  # noqa: E402
from jigsaw_opt.cli import main  # noqa: E402
from jigsaw_opt.documents import read_layers  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:times of blocks")
ROWS = 5


class Skipping(nn.Module):
    """Its third part reads what the first one puts out."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.blocks = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.last = nn.Linear(8, 2)
        self.unused = nn.Linear(2, 2)

    def forward(self, inputs: Tensor, weights: Tensor) -> Tensor:
        values = self.first(inputs)
        outputs = self.blocks[1](self.blocks[0](values) * weights)
        result: Tensor = self.last(outputs) + values[:, :2] * weights
        return result


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        ones = torch.eye(8).to_sparse().to_dense()
        result: Tensor = self.last(self.first(inputs) @ ones)
        return result


def measured(model: nn.Module, cuts: list[str], *inputs: Tensor) -> jigsaw_opt.ModelProfile:
    batch = ((torch.randn(ROWS, 4), *inputs), torch.zeros(ROWS, 2))
    return jigsaw_opt.profile(model, batch, nn.MSELoss(), cuts, warm_up=1, repeats=1)


def test_what_skips_a_segment_passes_both_its_boundaries() -> None:
    found = measured(Skipping(), ["blocks.0", "blocks.1", "last"], torch.ones(ROWS, 1))
    row = 4 * ROWS * 8
    assert [segment.output_bytes for segment in found.segments] == [row, 2 * row, 2 * row, None]
    modules = [("first",), ("blocks.0",), ("blocks.1",), ("last",)]
    assert [segment.modules for segment in found.segments] == modules


def test_modules_are_named_where_a_segment_has_all_of_them() -> None:
    found = measured(Skipping(), ["first.1", "last"], torch.ones(ROWS, 1))
    assert [segment.modules for segment in found.segments] == [
        ("first.0",),
        ("first.1", "blocks.0", "blocks.1"),
        ("last",),
    ]


def test_a_tensor_without_a_storage_leaves_open_what_is_sent() -> None:
    assert [segment.output_bytes for segment in measured(Sparse(), ["last"]).segments] == [None, None]


def test_a_layer_profile_has_times_of_a_pass() -> None:
    found = measured(Skipping(), ["blocks.0", "last"], torch.ones(ROWS, 1))
    graph = found.layers("v100")
    assert (graph.gpu_type, graph.batch, graph.is_chain) == ("v100", ROWS, True)
    assert graph.state_factor == found.model().state_factor == 3  # SGD with momentum
    for layer, segment in zip(graph.layers, found.segments, strict=True):
        assert layer.forward_us == round(segment.forward.median)
        assert layer.backward_us == round(segment.backward.median)
        assert 0 <= (layer.weight_us or 0) <= layer.backward_us
        assert (layer.output_bytes, layer.modules) == (segment.output_bytes, segment.modules)


def test_samples_are_known_where_all_tensors_agree() -> None:
    assert measured(Skipping(), ["last"], torch.ones(1)).batch is None
    loader = [((torch.randn(3, 4), torch.ones(3, 1)), torch.zeros(3, 2))] * 2
    assert jigsaw_opt.profile(Skipping(), lambda: iter(loader), nn.MSELoss(), 1, warm_up=1, repeats=1).batch == 3


def test_a_network_of_the_zoo_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, few = tmp_path / "layers.json", ["--repeats", "1", "--warm-up", "1", "--batch", "2"]
    assert main(["profile", "mlp", *few, "--to", "layers", "-o", str(path)]) == 0
    graph = read_layers(path.read_bytes())
    assert graph.batch == 2 and all(layer.weight_us is not None for layer in graph.layers)
    assert all(layer.output_bytes for layer in graph.layers[:-1])
    assert main(["partition", str(path), "--machines", "2", "--bandwidth", "1000000", "--no-replication"]) == 0
    capsys.readouterr()
    assert main(["profile", "mlp", "--to", "layers"]) == 2
    assert "give -o FILE" in capsys.readouterr().err
