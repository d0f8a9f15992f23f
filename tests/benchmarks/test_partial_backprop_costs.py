"""The bytes that `benchmarks/partial_backprop.py` counts are those of activations, by level."""

from __future__ import annotations

from functools import partial

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from partial_backprop import MODELS, block, same, saved_bytes  # noqa: E402
from torch import nn  # noqa: E402

from jigsaw_opt.executor.partial import PartialBackprop  # noqa: E402
from jigsaw_opt.executor.partial.parts import require_modules  # noqa: E402


def test_a_layer_keeps_its_input_and_the_loss_its_outputs() -> None:
    found = []
    for level in (1, 2, 3):
        network = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3)))
        model = PartialBackprop(network, ["1", "2"], partial(same, level))
        model.prepare(torch.ones(2, 4))
        found.append(saved_bytes(model, torch.ones(2, 4)))
    row = 2 * 4 * 4
    assert found == [2 * row, 3 * row, 4 * row]


@pytest.mark.parametrize("name", MODELS)
def test_the_cuts_are_modules(name: str) -> None:
    network, cuts, _ = MODELS[name]()
    require_modules(network, cuts)
    assert len(cuts) == 3


def test_a_block_steps_every_parameter_whatever_its_level_reaches() -> None:
    network = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3)))
    before = [p.detach().clone() for p in network.parameters()]
    model = PartialBackprop(network, ["1", "2"], partial(same, 1))
    optimiser = torch.optim.SGD(model.parameters(), 0.1, weight_decay=0.5)
    assert block(model, optimiser, torch.ones(2, 4)) > 0
    assert not any(torch.equal(own, old) for own, old in zip(network.parameters(), before, strict=True))
    assert all(p.grad is None for p in network.parameters())
