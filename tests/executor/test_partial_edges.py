"""`PartialBackprop` in one process: cuts from given times, levels that reach nothing, and graphs of a module's own."""

from __future__ import annotations

from collections import UserDict, namedtuple
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any

import pytest
import torch
from partial_networks import (
    CASES,
    TiedGpt,
    built,
    next_token,
    tokens,
)
from torch import Tensor, nn

from jigsaw_opt.executor.partial import PartialBackprop, forward_order
from jigsaw_opt.executor.partial.forward_order import ForwardOrder, observe
from jigsaw_opt.executor.partial.outputs import tensors
from jigsaw_opt.executor.partial.parts import ModelParts, describe, split
from jigsaw_opt.executor.partial.transfers import _TransferThread
from tests.refusals import misuse


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


Pair = namedtuple("Pair", "first second")


@dataclass(frozen=True)
class Output:
    logits: Tensor
    name: str = ""


def pooled() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Flatten())


def test_a_level_that_reaches_no_parameter_has_a_backward_pass() -> None:
    model = PartialBackprop(pooled(), ["1", "2"], levels=lambda iteration, worker: 1 + iteration % 3)
    inputs = torch.ones(2, 6)
    assert torch.equal(model(inputs), model.module(inputs))
    for iteration in range(3):
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        outputs = model(inputs)
        outputs += 1  # an output may be changed in place
        outputs.sum().backward()
        assert model.iteration == iteration + 1
        assert [layer.weight.grad is not None for layer in model.module[:2]] == [iteration == 2, iteration >= 1]
    assert all(p.requires_grad for p in model.parameters())


def test_outputs_of_any_nesting_can_begin_a_backward_pass() -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.early, self.late = nn.Linear(6, 6), nn.ReLU()

        def forward(self, x: Tensor) -> Any:
            y = self.early(x)
            z = self.late(y)
            return UserDict(a=[Output(y, "y")], b=Pair(z, (z.max(1), x.long())))

    model = PartialBackprop(Nested(), ["late"], levels=lambda iteration, worker: 1)
    found = model(torch.ones(2, 6))
    assert isinstance(found, UserDict) and isinstance(found["a"][0], Output) and isinstance(found["b"], Pair)
    assert found["a"][0].name == "y" and isinstance(found["b"].second[0], torch.return_types.max)
    assert [value.requires_grad for value in tensors(found)] == [True, True, True, False, False]
    sum(value.sum() for value in tensors(found)).backward()
    assert model.iteration == 1 and model.early.weight.grad is None


class Measured(nn.Module):
    """Returns a loss with a metric, a detached feature, what is computed without gradients, and a share of an input."""

    def __init__(self) -> None:
        super().__init__()
        self.early, self.norm, self.late = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Flatten()
        self.is_short = False

    def forward(self, x: Tensor) -> Any:
        y = self.norm(self.early(x))
        with torch.no_grad():
            accuracy = (y > 0).float().mean()
        loss = self.late(y).square().mean()
        if self.is_short:
            return accuracy, loss
        return {"loss": loss, "accuracy": accuracy, "features": [y.detach()], "share": x.mean()}


def test_what_needs_no_gradient_at_full_depth_needs_none_at_any_level() -> None:
    model = PartialBackprop(Measured(), ["late"], levels=lambda iteration, worker: 1 + iteration % 2)
    inputs = torch.randn(4, 6)
    for iteration in range(4):
        model.module.is_short = iteration >= 2
        state, draws = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
        found = model(inputs)
        told = [found[1], found[0]] if iteration >= 2 else list(tensors(found))
        assert [value.requires_grad for value in told] == [True] + [False] * (len(told) - 1)
        assert all(value.numpy().size for value in told[1:])
        assert torch.equal(draws, torch.get_rng_state())
        assert int(model.norm.num_batches_tracked) == int(state["norm.num_batches_tracked"]) + 1
        told[0].backward()
        assert model.iteration == iteration + 1


def saved_at(model: PartialBackprop, inputs: Tensor) -> int:
    """How many tensors the forward pass saves."""
    saved: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(1) or tensor, lambda tensor: tensor):
        model(inputs)
    return len(saved)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_module_that_makes_its_output_require_a_gradient_keeps_no_graph_before_the_cut(checkpointed: bool) -> None:
    """As `enable_input_require_grads` of transformers does."""
    torch.manual_seed(1)
    network, cuts = TiedGpt(checkpointed=checkpointed), ["blocks.1", "blocks.3"]
    network.table.register_forward_hook(lambda module, inputs, output: output.requires_grad_(True))
    level = [2]
    model = PartialBackprop(network, cuts, lambda iteration, worker: level[0])
    reference = PartialBackprop(TiedGpt(checkpointed=checkpointed), cuts, lambda iteration, worker: level[0])
    inputs = tokens(torch.Generator().manual_seed(0))
    model.prepare(inputs)
    reference.prepare(inputs)
    for parts in (1, 2):
        level[0] = parts
        assert saved_at(model, inputs) == saved_at(reference, inputs)
    level[0] = 3
    next_token(model(inputs)).backward()
    whole = built(CASES["tied"])
    next_token(whole(inputs)).backward()
    for own, other in zip(model.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad, rtol=0, atol=1e-6)
    level[0] = 1
    model.zero_grad()
    next_token(model(inputs)).backward()
    assert model.table.weight.grad is None


def test_an_input_of_which_the_gradient_is_asked_gets_it_at_every_level() -> None:
    network = nn.Sequential(nn.Identity(), *pooled()[:2])
    model = PartialBackprop(network, ["2"], levels=lambda iteration, worker: 1)
    inputs = torch.ones(2, 6, requires_grad=True)
    model(inputs).sum().backward()
    wanted = torch.ones(2, 6) @ network[2].weight @ network[1].weight
    torch.testing.assert_close(inputs.grad, wanted)
    assert network[1].weight.grad is None


def test_what_is_frozen_between_the_passes_stays_frozen() -> None:
    model = PartialBackprop(pooled(), ["1"], levels=lambda iteration, worker: 1)
    outputs = model(torch.ones(2, 6))
    model.module[0].requires_grad_(False)
    outputs.sum().backward()
    assert [p.requires_grad for p in model.parameters()] == [False, False, True, True]


def test_a_buffer_that_the_first_pass_makes_is_made_by_that_pass_alone() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Linear(6, 6)
            self.register_buffer("passes", None)

        def forward(self, x: Tensor) -> Tensor:
            self.passes = torch.ones(()) if self.passes is None else self.passes + 1
            return self.dense(x)

    model = PartialBackprop(Counting(), [])
    model(torch.ones(2, 6)).sum().backward()
    assert float(model.passes) == 1


class Opaque:
    """Holds an output where nobody looks for it."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


class Hiding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Opaque:
        return Opaque(self.dense(x))


def test_hidden_outputs_belong_to_the_one_pass_that_they_can_be_of() -> None:
    model, inputs = PartialBackprop(Hiding(), []), torch.ones(2, 6)
    for iteration in range(2):
        with model.no_sync():
            model(inputs).logits.sum().backward()
        assert model.iteration == iteration
        model(inputs).logits.sum().backward()
        assert model.iteration == iteration + 1
    first = model(inputs)
    with model.no_sync():
        second = model(inputs)
    for outputs in (first, second):
        with misuse("wrong-order outputs"):
            outputs.logits.sum().backward()


def test_a_process_that_ends_waits_a_little_for_its_transfers() -> None:
    thread, free = _TransferThread(), Event()
    thread.finish()
    sent = thread.submit(free.wait)
    thread.finish(longest_s=0.01)
    assert not sent.done()
    free.set()
    thread.finish(longest_s=60)
    assert sent.done() and thread._thread is not None and not thread._thread.is_alive()
    assert thread.submit(free.is_set).result()


def test_wrappers_of_one_network_train_it_in_turn() -> None:
    network, inputs = pooled(), torch.ones(2, 6)
    shallow = PartialBackprop(network, ["1"], levels=lambda iteration, worker: 1)
    whole = PartialBackprop(network, ["1"], levels="full")
    for iteration in range(2):
        for model in (shallow, whole):
            network.zero_grad()
            model(inputs).sum().backward()
            assert model.iteration == iteration + 1
            assert [layer.weight.grad is not None for layer in network[:2]] == [model is whole, True]
    before = shallow(inputs)
    whole(inputs)
    with misuse("wrong-order module"):
        before.sum().backward()
    assert (shallow.iteration, whole.iteration) == (2, 2)


class Shifted(nn.Module):
    """Dense layers, and a parameter beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.shift, self.layers = nn.Parameter(torch.zeros(6)), pooled()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x + self.shift)
        return out


def test_distributed_checkpoints_have_the_names_of_the_module() -> None:
    state_dicts = pytest.importorskip("torch.distributed.checkpoint.state_dict")
    network = Shifted()
    model = PartialBackprop(network, ["layers.0"], "full")
    optimiser = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    model(torch.ones(2, 6)).sum().backward()
    optimiser.step()
    held, states = state_dicts.get_state_dict(model, optimiser)
    assert list(held) == list(network.state_dict())
    assert set(states["state"]) == {name for name, _ in network.named_parameters()}
    other = Shifted()
    missed = state_dicts.set_model_state_dict(other, held)
    assert not missed.missing_keys and torch.equal(other.shift, network.shift)
    state_dicts.set_state_dict(model, optimiser, model_state_dict=held, optim_state_dict=states)
