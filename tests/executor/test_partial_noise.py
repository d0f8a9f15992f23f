"""Gradient noise by bucket: the estimate of a training, and what it says of levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import inf, nan
from statistics import fmean, stdev
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from jigsaw_opt.executor.models.building import build_network, replica
from jigsaw_opt.executor.partial import PartialBackprop
from jigsaw_opt.executor.partial.noise import BucketNoise, GradientNoise, NoiseEstimate, squared_length
from jigsaw_opt.executor.processes import run_group
from jigsaw_opt.executor.profiling.efficiency import NoiseRun, fixed_share
from jigsaw_opt.executor.worker import TrainingRecipe
from jigsaw_opt.problem.efficiency import Efficiency, payoffs
from tests.refusals import misuse

pytestmark = pytest.mark.xdist_group("peers of partial backpropagation")

MEAN, DEVIATION = torch.tensor([1.0, -2.0, 0.5]), torch.tensor([3.0, 1.0, 2.0])
TRUE = 14 / 5.25
"""Sum of the variances over the squared length of the mean."""


class Product(nn.Module):
    """A loss that is linear in its weights, so that the gradient is the input."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = (self.weight * x).sum()
        return out


def drawn(generator: torch.Generator) -> Tensor:
    return MEAN + DEVIATION * torch.randn(3, generator=generator)


def of_workers(count: int, seed: int) -> BucketNoise:
    """The estimate of 100 iterations of some workers."""
    noise, generator = GradientNoise(1, keep=1), torch.Generator().manual_seed(seed)
    for _ in range(100 if count > 1 else 200):
        own = [drawn(generator) for _ in range(count)]
        noise.observe(1, count, fmean(map(squared_length, own)), [torch.stack(own).mean(0)])
    return noise.estimate().buckets[0]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_estimate_of_a_known_covariance_is_unbiased_and_knows_its_error(count: int) -> None:
    found = [of_workers(count, seed) for seed in range(40)]
    assert {own.estimates for own in found} == {100}
    lengths = [own.weight for own in found]
    traces = [own.noise_scale * own.weight for own in found]
    for values, true in ((lengths, 5.25), (traces, 14)):  # within 3 standard errors of the mean of 40
        assert abs(fmean(values) - true) < 3 * stdev(values) / 40**0.5
    # A ratio is skewed, so its standard error is held to be right within a third.
    assert stdev(own.noise_scale for own in found) == pytest.approx(fmean(own.error for own in found), rel=1 / 3)


def test_a_worker_alone_compares_two_iterations() -> None:
    model = PartialBackprop(Product(), [], "full", efficiency_every=5)
    generator = torch.Generator().manual_seed(0)
    pair: list[Tensor] = []
    for iteration in range(9):
        batch = drawn(generator)
        pair += [batch] if iteration >= 5 and iteration < 7 else []
        model(batch).backward()
        model.zero_grad()
    (found,) = model.efficiency().buckets
    assert found.estimates == 2, "of iterations 0 and 1, and of 5 and 6"
    newest = float(pair[0] @ pair[1])
    older = (found.weight * 1.99 - newest) / 0.99
    first = torch.Generator().manual_seed(0)
    assert older == pytest.approx(float(drawn(first) @ drawn(first)), rel=1e-5)


def test_a_lone_contributor_counts_only_where_there_were_never_several() -> None:
    noise, (one, other) = GradientNoise(1), ([torch.tensor([3.0, 0.0])], [torch.tensor([1.0, 1.0])])
    noise.observe(1, 1, 0, one)
    noise.observe(1, 1, 0, other)
    (alone,) = noise.estimate().buckets
    assert (alone.noise_scale, alone.weight, alone.alone) == (pytest.approx((9 + 2) / 2 / 3 - 1), 3, True)
    assert "<= 0.833" in str(noise.estimate())
    noise.observe(1, 2, 10, one)
    (several,) = noise.estimate().buckets
    assert (several.noise_scale, several.weight, several.estimates, several.alone) == (0.25, 8, 1, False)
    assert "<=" not in str(noise.estimate())


def estimate(*buckets: tuple[float, float]) -> NoiseEstimate:
    rows = enumerate(buckets, 1)
    return NoiseEstimate(tuple(BucketNoise(at, scale, 0.1, weight, 9) for at, (scale, weight) in rows))


def test_progress_is_that_of_the_theory() -> None:
    found = estimate((0, 1), (2, 3), (inf, 0))
    assert found.progress([3, 3, 3, 3]) == 1
    assert found.progress([1, 1, 1, 3]) == pytest.approx((1 + 3 * 1 * 6 / (4 * 3)) / 4)
    assert found.progress([1, 1]) == pytest.approx(1 / 4)
    assert found.rounded() == Efficiency((0, 2000, 10**9), (250, 750, 0))
    assert str(found).splitlines()[2].split() == ["2", "2", "0.1", "75.0%", "9"]


def test_a_smaller_batch_is_worth_as_much_as_fewer_workers() -> None:
    found = estimate((1, 1), (5, 3))
    assert found.progress([2] * 4, 0.5) == pytest.approx((2 * 5 / (4 * 3) + 3 * 2 * 9 / (4 * 7)) / 4, abs=1e-6)


def test_a_running_job_says_what_pays() -> None:
    model = PartialBackprop(layers(), ["2"], "full", efficiency_every=1)
    assert model.efficiency().times == (), "no pass has shown the parts yet"
    with misuse("wrong-order times"):
        estimate((1, 1), (2, 1)).payoffs()
    for _ in range(2):
        model(batch(0, 0)).square().mean().backward()
        model.zero_grad()
    found = model.efficiency()
    assert found.payoffs((2, 3), 4) == payoffs(found.rounded(), (2, 3), 4, None, found.interval())
    one, deep = found.times
    whole = model.describe().levels[0].share
    assert whole is not None and found.workers == 1
    assert (one, deep) == pytest.approx((deep / 3 * (1 + 2 * whole), deep), rel=1e-6)
    assert "full depth" in str(found)
    assert "\nby a smaller batch: assumes that time is in proportion to samples\nmeasured on small" in str(found)


def test_what_is_known_of_fixed_costs_is_counted_and_told() -> None:
    found = replace(estimate((4, 1), (4, 1)), times=(60, 100), workers=2, fixed_share=0.6)
    assert found.payoffs() == payoffs(found.rounded(), (60, 100), 2, Fraction(3, 5), found.interval())
    told = "by a smaller batch: 60.0% of the time of a block at full depth does not fall with the batch"
    assert f"\n{told}\n" in str(found)


def test_the_verdict_waits_until_the_noise_is_known_well_enough() -> None:
    known = replace(estimate((2, 1), (2, 1)), times=(60, 100), workers=2, fixed_share=0.6)
    assert known.interval() == (Efficiency((1800, 1800), (500, 500)), Efficiency((2200, 2200), (500, 500)))
    assert known.payoffs()[1].verdict == "pays"
    for error in (5.0, inf):
        vague = replace(known, buckets=tuple(replace(own, error=error) for own in known.buckets))
        assert vague.payoffs()[1].verdict.startswith("undecided") and "undecided" in str(vague)
        assert vague.payoffs()[0].verdict == "full depth"
    alone = replace(known, buckets=tuple(replace(own, alone=True) for own in known.buckets))
    assert alone.interval()[0].noise_scale == (0, 0)
    silent = estimate((2, 1), (inf, 0))
    assert silent.interval()[0].noise_scale == (1800, 10**9), "nothing is known of what has no weight"


class Timed:
    """Blocks that take 30 us, and 7 us for each sample; of one size it has none."""

    model = SimpleNamespace(depth=3)

    def __init__(self, samples: int, refused: int = 0) -> None:
        self.draw, self.round, self.refused = lambda _: samples, 0, refused

    def block(self, level: int) -> tuple[float, float]:
        samples = self.draw(self.round)
        assert level == 3 and samples != self.refused
        # The first round is slow.
        return 10.0, 20.0 + 7 * samples + 1000 * (self.round == 0)


def test_the_fixed_share_is_where_a_line_through_two_sizes_comes_to_no_samples() -> None:
    def of(samples: int | None, refused: int = 0) -> float | None:
        trainee: Any = Timed(samples or 0, refused)
        whole = trainee.draw
        found = fixed_share(trainee, lambda _: (samples or 0) // 2, samples, 1, 3)
        assert trainee.draw is whole
        return found

    assert of(10) == pytest.approx(0.3)
    assert of(5) == pytest.approx(30 / 65)
    assert of(10, refused=5) is of(1) is of(None) is None


def test_what_is_not_known_is_said() -> None:
    assert str(estimate((1, 1), (nan, 0))).splitlines()[2].split()[1] == "?"
    with misuse("wrong-order efficiency", naming=("buckets 2",)):
        estimate((1, 1), (nan, 0)).progress([2])
    with misuse("wrong-order efficiency", naming=("noise",)):
        estimate((inf, 0)).rounded()
    for levels in ([], [0, 1], [1, 3]):
        with misuse("out-of-range levels", naming=("1 to 2", str(levels))):
            estimate((1, 1), (1, 1)).progress(levels)
    with misuse("wrong-order efficiency_every"):
        PartialBackprop(Product(), []).efficiency()
    for name in ("efficiency_every", "debug", "warm_up"):
        with misuse(f"out-of-range {name}"):
            PartialBackprop(Product(), [], **{name: -1})


def test_half_precision_has_no_estimate_and_others_have() -> None:
    numbers = torch.linspace(-1, 1, 300)
    assert squared_length(numbers.half()) != squared_length(numbers.half())
    assert squared_length(numbers.bfloat16()) == pytest.approx(squared_length(numbers), rel=1e-3)
    assert squared_length(torch.complex(numbers, numbers)) == pytest.approx(2 * squared_length(numbers))


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def batch(iteration: int, rank: int) -> Tensor:
    return torch.randn(5, 6, generator=torch.Generator().manual_seed(10 * iteration + rank))


def levels(iteration: int, worker: int) -> int:
    return 1 + (iteration + worker) % 2


def measured(hook: Any = None) -> list[tuple[float, ...]]:
    """The estimate of eight iterations; rank 1 has no batch in the last four."""
    model = PartialBackprop(layers(), ["2"], levels, efficiency_every=1)
    if hook is not None:
        model.register_comm_hook(None, hook)
    with model.join():
        for iteration in range(4 if dist.get_rank() else 8):
            model(batch(iteration, dist.get_rank())).square().mean().backward()
            model.zero_grad()
    return rows_of(model.efficiency())


def rows_of(found: NoiseEstimate) -> list[tuple[float, ...]]:
    return [(own.noise_scale, own.weight, own.estimates) for own in found.buckets]


def emulated(iterations: int) -> list[tuple[float, ...]]:
    """What one process finds with the batches of both."""
    noise, model = GradientNoise(2), layers()
    parts = {1: list(model[2].parameters()), 2: list(model[0].parameters())}
    for iteration in range(iterations):
        own: dict[int, list[Tensor]] = {1: [], 2: []}
        for rank in range(2 if iteration < 4 else 1):
            model(batch(iteration, rank)).square().mean().backward()
            for bucket in range(1, levels(iteration, rank) + 1):
                own[bucket].append(torch.cat([p.grad.flatten() for p in parts[bucket] if p.grad is not None]))
            model.zero_grad()
        for bucket, found in own.items():
            if found:
                noise.observe(bucket, len(found), fmean(map(squared_length, found)), [torch.stack(found).mean(0)])
    return rows_of(noise.estimate())


def processes() -> list[list[tuple[float, ...]]]:
    return [measured(), measured(default_hooks.allreduce_hook)]


def near(found: Sequence[Sequence[float]], wanted: Sequence[Sequence[float]]) -> bool:
    return all(row == pytest.approx(list(other), rel=1e-4) for row, other in zip(map(list, found), wanted, strict=True))


def test_two_processes_find_what_one_finds_with_the_batches_of_both() -> None:
    """Also with a hook, and after one has no batch left."""
    longer, shorter = run_group(processes, 2)
    assert all(near(found, emulated(8)) for found in longer)
    assert all(near(found, emulated(4)) for found in shorter)
    assert emulated(8) != emulated(4)


def test_the_noise_of_a_network_is_the_variance_of_its_gradients() -> None:
    """At rate 0 all iterations have gradients of the same parameters; everything is afterwards as it was."""
    made = replica(build_network("mlp", {"hidden": [8]}), (0, 1, 2), 256)
    before = [p.clone() for p in made.model.parameters()]
    recipe = TrainingRecipe("sgd", {"lr": 0.0})
    found = NoiseRun(5, 3).of_replica(made, recipe, torch.device("cpu"))
    for bucket, noise in zip(made.model.buckets, found.buckets, strict=True):
        traces, lengths = [], []
        for turn in range(5):
            losses = [made.model.loss_of(made.batch(recipe.seed, worker, turn)) for worker in range(3)]
            own = [torch.cat([g.flatten() for g in torch.autograd.grad(loss, bucket)]) for loss in losses]
            traces.append(float(torch.stack(own).var(0).sum()))
            lengths.append(float(torch.stack(own).mean(0).square().sum()) - traces[-1] / 3)
        assert noise.weight == pytest.approx(fmean(lengths), rel=1e-4)
        assert noise.noise_scale == pytest.approx(fmean(traces) / fmean(lengths), rel=1e-4)
    assert all(torch.equal(p, kept) for p, kept in zip(made.model.parameters(), before, strict=True))
    (moved, *_) = NoiseRun(5, 3, rate=0.5).of_replica(made, recipe, torch.device("cpu")).buckets
    assert moved.weight != found.buckets[0].weight
