"""Ways of partial backpropagation that lose less: in two processes as in one, and as they are written out."""

from __future__ import annotations

import math
import pickle
from copy import deepcopy
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
import torch
import torch.distributed as dist
from partial_networks import CASES, built, loss_of
from partial_ways import WAYS, all_trained, emulated
from spb.emulation import Emulation
from torch import Tensor, nn

from jigsaw_opt.errors import UsageError
from jigsaw_opt.executor.models.building import SegmentedModel
from jigsaw_opt.executor.partial import PartialBackprop
from jigsaw_opt.executor.partial.averaging import contributor_share
from jigsaw_opt.executor.partial.steps import AdaptedSteps
from jigsaw_opt.executor.processes import run_group
from tests.refusals import misuse, refused

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
    off = (found[0][name] - wanted).abs()
    if name.startswith("8 bits"):  # where sums are rounded in another order, a code may be the next one
        exact = emulated(replace(WAYS[name], hook=WAYS["plain"].hook))
        assert 10 * float(off.median()) <= float((wanted - exact).abs().median()) and float(off.max()) <= 1e-3
    else:
        assert float(off.max()) <= 1e-6
    if name != "plain" and WAYS[name].optimiser == "sgd":
        assert float((wanted - emulated(WAYS["plain"])).abs().max()) > 1e-4  # it is another way


def test_a_step_has_the_rate_of_its_share_and_leaves_no_other_rate_behind() -> None:
    own, shares = nn.Parameter(torch.zeros(2)), [0.25, 0.25, 1.0, 0.0]
    optimiser = torch.optim.SGD([own], 1.0)
    AdaptedSteps(optimiser, {own: 1}, lambda bucket: shares.pop(0), 0.5)
    with pytest.raises(ZeroDivisionError):
        optimiser.register_step_pre_hook(lambda *_: 1 / 0)
        optimiser.step()
    optimiser._optimizer_step_pre_hooks.popitem()
    own.grad = torch.ones(2)
    for reached in (-0.5, -1.5, -2.5):  # without a contributor, a gradient that nobody has cleared steps as without
        optimiser.step()
        assert own.tolist() == [reached, reached] and optimiser.param_groups[0]["lr"] == 1.0


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
        (lambda _: PartialBackprop(built(CASES["skips"]), ["late"]).parameter_groups(), "wrong-order"),
        (closure, "unsupported closure"),
        (twice, "duplicate-name optimizer"),
    ],
)
def test_what_cannot_be_adapted_is_refused(misused: Any, told: str) -> None:
    model = prepared()
    with misuse(told):
        misused(model)


WIDTH, DEPTH, ITERATIONS = 50, 3, 400
TRACES = [1.0, 4.0, 0.25]
"""Of the covariance of one sample's gradient, by bucket, from the output."""
ROTATION = [(1, 2, 3), (2, 3, 1), (3, 1, 2)]


class Noise(nn.Module):
    """A bucket whose gradient is the mean of what a batch has at its place: noise of a known covariance."""

    def __init__(self, bucket: int) -> None:
        super().__init__()
        self.bucket, self.weight = bucket, nn.Parameter(torch.zeros(WIDTH))

    def forward(self, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        noise, total = inputs
        return noise, total + noise[:, self.bucket - 1] @ self.weight


def measured_variances(levels: list[tuple[int, ...]], samples: list[int] | None) -> list[float]:
    """Mean squared length of each bucket's averaged gradient, whose expectation is 0; 0 where it has none."""
    segments = [Noise(bucket) for bucket in (3, 2, 1)]
    model = SegmentedModel(["c", "b", "a"], segments, lambda outputs, _: outputs[1].mean(), [1, 2, 3])
    emulation = Emulation(model, torch.optim.SGD(model.parameters(), 0.0))
    draw = torch.Generator().manual_seed(1)
    scale = torch.tensor(TRACES).div(WIDTH).sqrt()[:, None]
    sums = [0.0] * DEPTH
    for iteration in range(ITERATIONS):
        sizes = samples or [1] * len(levels[0])
        batches = [((torch.randn(n, DEPTH, WIDTH, generator=draw) * scale, torch.zeros(n)), None) for n in sizes]
        emulation.iterate(levels[iteration % len(levels)], batches, samples)
        for bucket in range(DEPTH):
            (own,) = emulation.buckets.of(bucket + 1)
            sums[bucket] += float(own.square().sum()) / ITERATIONS
    return sums


@pytest.mark.parametrize(
    ("levels", "samples", "variances"),
    [
        ([(3, 3, 3)], None, [1 / 3, 1 / 3, 1 / 3]),
        (ROTATION, None, [1 / 3, 1 / 2, 1]),
        ([(3, 1, 3), (3, 3, 1)], None, [1 / 3, 1 / 2, 1 / 2]),
        ([(3, 3, 3), (2, 2, 2)], None, [1 / 3, 1 / 3, 1 / 6]),
        ([(1, 2, 3)], [5, 3, 2], [1 / 10, 1 / 5, 1 / 2]),
    ],
    ids=["full", "rotation", "two levels", "uniform", "samples"],
)
def test_variances_are_those_of_the_page(
    levels: list[tuple[int, ...]], samples: list[int] | None, variances: list[float]
) -> None:
    """A mean of 400 squared lengths of 50 numbers has the relative deviation sqrt(2 / 20 000), 1 %; five are 5 %."""
    found = measured_variances(levels, samples)
    assert found == pytest.approx([trace * own for trace, own in zip(TRACES, variances, strict=True)], rel=0.05)


def test_samples_out_of_range_are_refused() -> None:
    assert [contributor_share([1, 3, 2, 0], [4, 2, 2, 9], bucket) for bucket in (1, 2, 3)] == [1.0, 0.5, 0.25]
    for samples in (0, True, 2**63, 1.0):
        with misuse("out-of-range samples"):
            prepared().samples = samples  # type: ignore[assignment]


def habits() -> list[str]:
    """What is told of loops in which workers do not count alike, by turns."""
    case, rank, told = CASES["skips"], dist.get_rank(), []

    def joined(model: PartialBackprop) -> None:
        with model.join():
            loss_of(case, model, rank, 0).backward()

    def copied(model: PartialBackprop) -> None:
        loss_of(case, model, rank, 0).backward()
        for copy in (deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert copy.samples == 3
            copy.zero_grad()
            loss_of(case, copy, rank, 0).backward()

    def one_sided(model: PartialBackprop) -> None:
        model.samples = 3 if rank else None
        loss_of(case, model, rank, 0).backward()

    def measured(_: PartialBackprop) -> None:
        model = PartialBackprop(built(case), case.cuts, efficiency_every=1)
        model.samples = 3
        loss_of(case, model, rank, 0).backward()

    for loop in (joined, copied, one_sided, measured):
        model = PartialBackprop(built(case), case.cuts)
        model.samples = 3
        try:
            loop(model)
            told.append("nothing")
        except UsageError as error:
            told += refused(error)
    return told


def test_samples_that_do_not_go_with_others_are_refused_and_copies_have_them() -> None:
    wanted = ["not-together samples", "nothing", "mismatch samples", "not-together samples"]
    assert run_group(habits, 2) == [wanted] * 2
