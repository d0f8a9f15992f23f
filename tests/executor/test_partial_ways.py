"""Ways of partial backpropagation that lose less: in two processes as in one, and as they are written out."""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

import pytest
import torch
from partial_networks import CASES, built, loss_of
from partial_ways import WAYS, all_trained, emulated
from torch import Tensor, nn

from jigsaw_opt.executor.partial import PartialBackprop
from jigsaw_opt.executor.partial.steps import AdaptedSteps
from jigsaw_opt.executor.processes import run_group
from tests.refusals import misuse

pytestmark = pytest.mark.xdist_group("ways of partial backpropagation")
SHARES = [0.25, 1.0, 0.5, 0.75, 0.25]


@pytest.fixture(scope="module")
def found() -> list[dict[str, Tensor]]:
    """By rank and name of a way, the parameters at its end."""
    return run_group(all_trained, 2, list(WAYS))


@pytest.mark.parametrize("name", WAYS)
def test_processes_train_as_their_emulation(found: list[dict[str, Tensor]], name: str) -> None:
    wanted = emulated(WAYS[name])
    assert torch.equal(found[0][name], found[1][name])
    assert float((found[0][name] - wanted).abs().max()) <= 1e-6
    if name != "plain" and WAYS[name].optimiser == "sgd":
        assert float((wanted - emulated(WAYS["plain"])).abs().max()) > 1e-4  # it is another way


def adapted(optimiser: torch.optim.Optimizer, power: float, gradients: Tensor) -> list[Tensor]:
    """Parameters after each step with these gradients; bucket 1 has the shares `SHARES`."""
    (parameter,) = optimiser.param_groups[0]["params"]
    now: dict[str, float] = {}
    AdaptedSteps(optimiser, {parameter: 1}, lambda bucket: now["share"], power, True)
    states = []
    for share, gradient in zip(SHARES, gradients, strict=True):
        now["share"] = share
        parameter.grad = given = gradient.clone()
        before = dict(optimiser.param_groups[0])
        optimiser.step()
        assert dict(optimiser.param_groups[0]) == before
        assert parameter.grad is given and torch.equal(given, gradient)
        states.append(parameter.detach().clone())
    return states


def weights(beta: float, step: int) -> list[float]:
    """Weight of each gradient in an average of samples that decays by `beta` for all samples of an iteration."""
    return [(1 - beta ** SHARES[at]) * beta ** sum(SHARES[at + 1 : step + 1]) for at in range(step + 1)]


def test_momentum_holds_as_many_samples_as_at_full_depth() -> None:
    gradients, parameter = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).double(), torch.zeros(4)
    own = nn.Parameter(parameter.double())
    found = adapted(torch.optim.SGD([own], 0.1, momentum=0.9), 0.5, gradients)
    wanted = torch.zeros(4).double()
    for step, share in enumerate(SHARES):
        velocity = sum(w * g for w, g in zip(weights(0.9, step), gradients, strict=False)) / (1 - 0.9)
        wanted = wanted - 0.1 * share**0.5 * velocity
        assert torch.allclose(found[step], wanted, rtol=1e-12)


def test_adams_moments_are_averages_of_samples_without_bias() -> None:
    gradients = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).double()
    own = nn.Parameter(torch.zeros(4).double())
    found = adapted(torch.optim.Adam([own], 0.1, betas=(0.9, 0.99), eps=1e-9), 0.0, gradients)
    wanted = torch.zeros(4).double()
    for step in range(len(SHARES)):
        first, second = weights(0.9, step), weights(0.99, step)
        mean = sum(w * g for w, g in zip(first, gradients, strict=False)) / sum(first)
        square = sum(w * g**2 for w, g in zip(second, gradients, strict=False)) / sum(second)
        wanted = wanted - 0.1 * mean / (square.sqrt() + 1e-9)
        assert torch.allclose(found[step], wanted, rtol=1e-5)  # torch counts steps in 32 bits


def test_a_step_that_fails_leaves_no_other_rate_behind() -> None:
    own = nn.Parameter(torch.ones(2))
    optimiser = torch.optim.SGD([own], 1.0)
    AdaptedSteps(optimiser, {own: 1}, lambda bucket: 0.25, 1.0, False)
    with pytest.raises(ZeroDivisionError):
        optimiser.register_step_pre_hook(lambda *_: 1 / 0)
        optimiser.step()
    optimiser._optimizer_step_pre_hooks.popitem()
    own.grad = torch.ones(2)
    optimiser.step()
    assert own.tolist() == [0.75, 0.75] and optimiser.param_groups[0]["lr"] == 1.0


def prepared() -> PartialBackprop:
    model = PartialBackprop(built(CASES["skips"]), CASES["skips"].cuts)
    loss_of(CASES["skips"], model, 0, 0).backward()
    return model


def test_each_bucket_is_a_group_of_an_optimiser() -> None:
    model = prepared()
    groups = [group["params"] for group in model.parameter_groups()]
    assert [len(own) for own in groups] == [4, 2, 2] and {*chain(*groups)} == {*model.parameters()}
    optimiser = torch.optim.Adam([{**own, "lr": 0.01 * at} for at, own in enumerate(model.parameter_groups())])
    model.adapt(optimiser, 1)
    optimiser.step()
    assert [group["lr"] for group in optimiser.param_groups] == [0.0, 0.01, 0.02]


def closure(model: PartialBackprop) -> Any:
    optimiser = torch.optim.SGD(model.parameter_groups(), 0.1)
    model.adapt(optimiser)
    return optimiser.step(lambda: math.nan)


def twice(model: PartialBackprop) -> Any:
    optimiser = torch.optim.SGD(model.parameter_groups(), 0.1)
    model.adapt(optimiser)
    return model.adapt(optimiser)


@pytest.mark.parametrize(
    ("misused", "told"),
    [
        (lambda model: model.adapt(torch.optim.SGD(model.parameters(), 0.1)), "mismatch optimizer"),
        (lambda model: model.adapt(torch.optim.SGD(model.parameter_groups(), 0.1), 2), "out-of-range rate_power"),
        (
            lambda model: model.adapt(torch.optim.RMSprop(model.parameter_groups()), count_samples=True),
            "unsupported count_samples",
        ),
        (lambda _: PartialBackprop(built(CASES["skips"]), ["late"]).parameter_groups(), "wrong-order"),
        (closure, "unsupported closure"),
        (twice, "duplicate-name optimizer"),
    ],
)
def test_what_cannot_be_adapted_is_refused(misused: Any, told: str) -> None:
    model = prepared()
    with misuse(told):
        misused(model)
