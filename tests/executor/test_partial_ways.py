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
from jigsaw_opt.executor.partial.steps import AdaptedSteps
from jigsaw_opt.executor.partial.weights import contributor_share
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


WIDTH, DEPTH, WARM_UP, ITERATIONS = 50, 3, 4, 400
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


def measured_variances(levels: list[tuple[int, ...]], samples: list[int] | None, decay: float) -> list[float]:
    """Mean squared length of each bucket's averaged gradient, whose expectation is 0; 0 where it has none."""
    segments = [Noise(bucket) for bucket in (3, 2, 1)]
    model = SegmentedModel(["c", "b", "a"], segments, lambda outputs, _: outputs[1].mean(), [1, 2, 3])
    emulation = Emulation(model, torch.optim.SGD(model.parameters(), 0.0), kept_decay=decay)
    draw = torch.Generator().manual_seed(1)
    scale = torch.tensor(TRACES).div(WIDTH).sqrt()[:, None]
    sums = [0.0] * DEPTH
    for iteration in range(WARM_UP + ITERATIONS):
        sizes = samples or [1] * len(levels[0])
        batches = [((torch.randn(n, DEPTH, WIDTH, generator=draw) * scale, torch.zeros(n)), None) for n in sizes]
        emulation.iterate(levels[iteration % len(levels)], batches, samples)
        if iteration >= WARM_UP:
            for bucket in range(DEPTH):
                (own,) = emulation.buckets.of(bucket + 1)
                sums[bucket] += float(own.square().sum()) / ITERATIONS
    return sums


def kept(decay: float, *ages: int) -> float:
    """Variance of a mean of kept gradients, in traces."""
    weights = [decay**age for age in ages]
    return sum(weight**2 for weight in weights) / sum(weights) ** 2


@pytest.mark.parametrize(
    ("levels", "samples", "decay", "variances"),
    [
        ([(3, 3, 3)], None, 0.0, [1 / 3, 1 / 3, 1 / 3]),
        (ROTATION, None, 0.0, [1 / 3, 1 / 2, 1]),
        ([(3, 1, 3), (3, 3, 1)], None, 0.0, [1 / 3, 1 / 2, 1 / 2]),
        ([(3, 3, 3), (2, 2, 2)], None, 0.0, [1 / 3, 1 / 3, 1 / 6]),
        (ROTATION, None, 1.0, [1 / 3, 1 / 3, 1 / 3]),
        (ROTATION, None, 0.5, [1 / 3, kept(0.5, 0, 0, 1), kept(0.5, 0, 1, 2)]),
        ([(1, 2, 3)], [5, 3, 2], 0.0, [1 / 10, 1 / 5, 1 / 2]),
    ],
    ids=["full", "rotation", "two levels", "uniform", "kept", "kept and decayed", "samples"],
)
def test_variances_are_those_of_the_page(
    levels: list[tuple[int, ...]], samples: list[int] | None, decay: float, variances: list[float]
) -> None:
    """A mean of 400 squared lengths of 50 numbers has the relative deviation sqrt(2 / 20 000), 1 %, if independent.

    Gradients that are kept for two iterations leave a third of the lengths independent: 1.7 %. Four of these are 7 %.
    """
    found = measured_variances(levels, samples, decay)
    assert found == pytest.approx([trace * own for trace, own in zip(TRACES, variances, strict=True)], rel=0.07)


def test_a_momentum_of_one_sums_up_samples() -> None:
    gradients, own = torch.ones(5, 2).double(), nn.Parameter(torch.zeros(2).double())
    found = adapted(torch.optim.SGD([own], 0.1, momentum=1.0), 0.0, gradients)
    sums = [sum(SHARES[: step + 1]) for step in range(5)]
    assert [float(p[0]) for p in found] == pytest.approx([-0.1 * sum(sums[: step + 1]) for step in range(5)])


def kept_means(losses: dict[int, float], set_back: int | None = None) -> list[list[float]]:
    """Gradients of the early weight in iterations that rank 0 always reaches, and rank 1 in the first two alone."""
    network = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    nn.init.ones_(network[1].weight)  # type: ignore[arg-type]
    model = PartialBackprop(network, ["1"], lambda i, worker: 1 if worker and i > 1 else 2, kept_decay=0.5)
    found = []
    for batch in range(6):
        if set_back is not None and batch == 5:
            model.iteration = set_back
        loss = model(torch.full((1, 1), 2.0 + 4 * dist.get_rank())).sum()
        (loss * losses.get(batch, 1.0) if dist.get_rank() else loss).backward()
        found.append([float(p.grad) for p in network[0].parameters() if p.grad is not None])
        model.zero_grad()
    return found


def emulated_means(losses: dict[int, float]) -> list[list[float]]:
    """Return what `kept_means` does, by an emulation."""
    segments = [nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)]
    nn.init.ones_(segments[1].weight)  # type: ignore[arg-type]
    model = SegmentedModel(["early", "late"], segments, lambda outputs, factor: outputs.sum() * factor, [1, 2])
    nothing = torch.optim.SGD([nn.Parameter(torch.zeros(1))])  # a step by infinity is none that goes on
    emulation, found = Emulation(model, nothing, kept_decay=0.5), []
    for iteration in range(6):
        factors = (1.0, losses.get(iteration, 1.0))
        batches = [(torch.full((1, 1), 2.0 + 4 * worker), own) for worker, own in enumerate(factors)]
        emulation.iterate((2, 1 if iteration > 1 else 2), batches)
        found.append(emulation.buckets.of(2)[0].tolist())
    return found


def doubtful() -> list[list[list[float]]]:
    return [kept_means({}), kept_means({1: math.inf}), kept_means({}, 2), kept_means({}, 4)]


def test_no_gradient_is_kept_that_is_not_finite_or_of_a_later_iteration() -> None:
    """Rank 0 has the gradient 2 and rank 1, of age 0 in the first two iterations, the gradient 6."""
    means = [[(2 + 6 * 0.5**age) / (1 + 0.5**age)] for age in (0, 0, 1, 2, 3, 4)]
    emulated = [emulated_means({}), emulated_means({1: math.inf})]
    for plain, overflown, *set_back in (*run_group(doubtful, 2), emulated):
        assert plain == [pytest.approx(own) for own in means]
        assert all(own == [*(pytest.approx(mean) for mean in means[:5]), [2.0]] for own in set_back)
        assert overflown == [[4.0], [math.inf], [2.0], [2.0], [2.0], [2.0]]


def test_samples_and_decays_out_of_range_are_refused() -> None:
    assert [contributor_share([1, 3, 2, 0], [4, 2, 2, 9], bucket) for bucket in (1, 2, 3)] == [1.0, 0.5, 0.25]
    case = CASES["skips"]
    for samples in (0, True, 2**63, 1.0):
        with misuse("out-of-range samples"):
            prepared().samples = samples  # type: ignore[assignment]
    with misuse("out-of-range kept_decay"):
        PartialBackprop(built(case), case.cuts, kept_decay=1.5)
    with misuse("not-together kept_decay"):
        PartialBackprop(built(case), case.cuts, kept_decay=0.5, efficiency_every=1)


def habits() -> list[str]:
    """What is told of loops that might mix gradients of different iterations, by turns."""
    case, rank, told = CASES["skips"], dist.get_rank(), []

    def uncleared(model: PartialBackprop) -> None:
        for batch in range(2):
            loss_of(case, model, rank, batch).backward()

    def again(model: PartialBackprop) -> None:
        loss = loss_of(case, model, rank, 0)
        loss.backward(retain_graph=True)
        loss.backward()

    def joined(model: PartialBackprop) -> None:
        with model.join():
            loss_of(case, model, rank, 0).backward()

    def copied(model: PartialBackprop) -> None:
        loss_of(case, model, rank, 0).backward()
        assert model.state_dict().keys() == built(case).state_dict().keys()
        for copy in (deepcopy(model), pickle.loads(pickle.dumps(model))):
            copy.zero_grad()
            loss_of(case, copy, rank, 0).backward()

    def accumulated(model: PartialBackprop) -> None:
        for _ in range(3):
            with model.no_sync():
                loss_of(case, model, rank, 0).backward()
            loss_of(case, model, rank, 1).backward()
            model.zero_grad(set_to_none=False)

    def one_sided(model: PartialBackprop) -> None:
        model.samples = 3 if rank else None
        loss_of(case, model, rank, 0).backward()

    for loop in (uncleared, again, joined, copied, accumulated, one_sided):
        try:
            loop(PartialBackprop(built(case), case.cuts, kept_decay=0.5))
            told.append("nothing")
        except UsageError as error:
            told += refused(error)
    return told


def test_gradients_of_other_iterations_are_not_mixed_in() -> None:
    wanted = ["wrong-order kept_decay", "unsupported kept_decay", "not-together join", "nothing", "nothing"]
    assert run_group(habits, 2) == [[*wanted, "mismatch samples"]] * 2
