"""Cuts that `PartialBackprop` finds, and shares of the backward pass: from times that are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from partial_networks import TiedGpt, tokens  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from jigsaw_opt.executor.partial import PartialBackprop, forward_order  # noqa: E402
from jigsaw_opt.executor.partial.description import describe  # noqa: E402
from jigsaw_opt.executor.partial.forward_order import ForwardOrder, observe  # noqa: E402
from jigsaw_opt.executor.partial.parts import ModelParts, split  # noqa: E402
from tests.refusals import misuse  # noqa: E402


def timed(network: nn.Module, inputs: Tensor, costs: Mapping[str, float]) -> ForwardOrder:
    """What is observed, with a time for each parameter by the beginning of its name, 1 for the others."""
    order = observe(network, (inputs,), {})
    names = {p: name for name, p in network.named_parameters()}
    done = 0.0
    order.gradients_us = {}
    for parameter in reversed(order.uses):
        done += next((us for start, us in costs.items() if names[parameter].startswith(start)), 1.0)
        order.gradients_us[parameter] = done
    order.end_us = done
    return order


def gpt(costs: Mapping[str, float], cuts: Any) -> ModelParts:
    torch.manual_seed(0)
    network = TiedGpt()
    return split(network, timed(network, tokens(torch.Generator().manual_seed(0)), costs), cuts)


@pytest.mark.parametrize(("count", "cuts"), [(1, ("blocks.2",)), (3, ("blocks.1", "blocks.2", "blocks.3"))])
def test_cuts_are_made_between_repeated_blocks(count: int, cuts: tuple[str, ...]) -> None:
    """A block has 12 parameters; what is before and behind them has four."""
    parts = gpt({}, count)
    assert parts.cuts == cuts
    assert sum(parts.backward_us) == 4 * 12 + 4


def test_blocks_that_are_far_from_even_are_cut_within() -> None:
    parts = gpt({"blocks.0.attention": 60, "blocks.0.dense.2": 100}, 1)
    assert parts.cuts == ("blocks.0.norm2",)
    assert parts.backward_us == (2 + 2 + 4 * 60, 2 + 2 + 2 * 100 + 3 * 12 + 2)


def test_the_share_of_a_level_is_that_of_the_backward_pass() -> None:
    parts = gpt({"blocks": 10, "norm": 20, "table": 30, "positions": 10}, ["blocks.2", "blocks.3"])
    assert parts.backward_us == (280, 120, 160)
    assert [level.share for level in describe(parts).levels] == [160 / 560, 280 / 560, 1]


def test_a_part_without_parameters_takes_no_time_by_itself() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Identity())
    parts = split(network, timed(network, torch.ones(1, 2), {}), ["1", "2"])
    assert parts.backward_us == (2, 0, 0)


@pytest.mark.parametrize("late", range(1, 14))
def test_a_step_that_is_delayed_once_does_not_count(late: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by 10 a reading, and once by a million more while passes are timed."""
    network = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(4)))
    readings = 0

    def clock(device: torch.device) -> float:
        nonlocal readings
        readings += 1
        return 10.0 * readings + 1e6 * (readings >= 6 + late)

    monkeypatch.setattr(forward_order, "wall_us", clock)
    order = observe(network, (torch.ones(2, 4),), {})
    assert readings == 6 * (1 + forward_order.TIMED)
    assert list(order.gradients_us.values()) == [10, 20, 30, 40] and order.end_us == 50
    assert list(order.gradients_us) == list(reversed(list(network.parameters())))
    assert all(p.grad is None for p in network.parameters())


def test_outputs_that_hold_no_tensor_are_trained_but_not_timed() -> None:
    class Held:
        def __init__(self, value: Tensor) -> None:
            self.value = value

    class Holding(nn.Sequential):
        def forward(self, x: Tensor) -> Any:
            return Held(super().forward(x))

    model = PartialBackprop(Holding(nn.Linear(2, 2), nn.Linear(2, 2)), ["1"])
    model(torch.ones(1, 2)).value.sum().backward()
    assert [level.share for level in model.describe().levels] == [None, None] and "?" in str(model.describe())
    with misuse("unsupported cuts"):
        PartialBackprop(Holding(nn.Linear(2, 2), nn.Linear(2, 2)), 1)(torch.ones(1, 2))
