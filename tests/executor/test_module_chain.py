"""A whole module is cut by qualified names where it is a chain, and refused where it is none."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from torch import Tensor, nn  # noqa: E402

from jigsaw_opt.executor.pipeline.own_stages import stage_modules  # noqa: E402
from tests.refusals import misuse  # noqa: E402


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
