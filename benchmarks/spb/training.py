"""One run: a job's workers train in one process, and what it has learnt is measured on the way."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import partial
from time import process_time
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from jigsaw_opt.executor.exchange.by_bucket import Averaging
from jigsaw_opt.executor.exchange.compression import EightBit, TopK
from jigsaw_opt.executor.level_schedule import Assignment, LevelSchedule, Rule
from jigsaw_opt.executor.models.building import Replica, SegmentedModel
from jigsaw_opt.executor.models.zoo.network import Batch
from jigsaw_opt.executor.profiling import profile_replica
from jigsaw_opt.executor.worker import OPTIMISERS, TrainingRecipe
from spb.emulation import Emulation
from spb.subjects import Optimiser, Subject, replicas, samples

MOMENTUM = 0.9
OLDEST_FIELDS = 5
"""Fields of a method that the keys of all rows name."""
HOOKS = {"": lambda: None, "8 bits": EightBit, "largest 1/100": lambda: TopK("1/100")}
RISE = 10
"""The rate rises in the first of so many parts of a run, and falls to 0 in all of it."""
POINTS = 10
"""Measurements on held-out data, evenly over a run."""


@dataclass(frozen=True, slots=True, repr=False)
class Method:
    """Who goes how deep, and how gradients are averaged.

    In per cent are `warm_up`, the share of iterations at full depth at the beginning, `always_full`, that of workers at
    full depth under ``free`` and ``two_level``, `mean_depth`, and `freeze_from`, the share of iterations after which
    parts are frozen, 0 for never. `full_every` is that of `LevelSchedule`. `rate_power` is that of
    `PartialBackprop.adapt`. With `larger_batches`, workers draw as many samples as make their blocks take equally long,
    if a backward pass takes twice as long as a forward pass. `hook` names one of `HOOKS`, which exchanges gradients.
    `average_every` is that of `PartialBackprop`.
    """

    rule: Rule = "staircase"
    assignment: Assignment = "rotation"
    averaging: str = "avg_w_count"
    warm_up: int = 0
    always_full: int = 0
    rate_power: float = 0
    full_every: int = 0
    freeze_from: int = 0
    mean_depth: int = 0
    larger_batches: bool = False
    hook: str = ""
    average_every: int = 1

    def __repr__(self) -> str:
        """Leave out fields that were added later where they have their defaults, so that keys of rows stay."""
        told = [f for at, f in enumerate(fields(self)) if at < OLDEST_FIELDS or getattr(self, f.name) != f.default]
        return f"Method({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in told)})"


@dataclass(frozen=True, slots=True)
class Setting:
    """What full depth and SPB have in common: `rise_and_fall` lets the rate do so, `sharded` splits the data."""

    rise_and_fall: bool = True
    sharded: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that decides what a run gives, but for the subject."""

    workers: int
    seed: int
    setting: Setting
    method: Method
    rate: float
    iterations: int
    batch: int
    """Samples an iteration, of all workers together."""


def train(subject: Subject, run: Run) -> dict[str, Any]:
    """Train, and measure on held-out data: iteration, accuracy, loss and blocks by level of each point; CPU seconds."""
    torch.set_num_threads(1)
    started = process_time()
    data = samples(subject, run.seed)
    workers = replicas(replace(subject, batch=run.batch), data, run.workers, run.setting.sharded, run.seed)
    model = workers[0].model
    schedule = levels_of(run, model.depth)
    emulation, rates = _learner(subject.optimiser, run, model)
    blocks, points, sizes = [0] * model.depth, [], None
    for iteration in range(run.iterations):
        levels = schedule.levels(iteration)
        if run.method.larger_batches:
            sizes = [round(run.batch / run.workers * 3 / (1 + 2 * level / model.depth)) for level in levels]
            workers = [replace(own, batch_size=n) for own, n in zip(workers, sizes, strict=True)]
        emulation.iterate(levels, _batches(workers, run.seed, iteration), sizes)
        rates.step()
        for level in levels:
            blocks[level - 1] += 1
        if (iteration + 1) * POINTS // run.iterations > iteration * POINTS // run.iterations:
            emulation.average_parameters()
            points.append([iteration + 1, *held_out(model, data.held_out), *blocks])
    return {"points": points, "cpu_seconds": process_time() - started}


def levels_of(run: Run, depth: int) -> LevelSchedule:
    """The levels of all workers in each iteration of a run."""
    method = run.method
    return LevelSchedule(
        depth,
        run.workers,
        method.rule,
        method.assignment,
        warm_up=run.iterations * method.warm_up // 100,
        seed=run.seed,
        min_contributors=max(1, run.workers * method.always_full // 100),
        mean_depth=Fraction(method.mean_depth, 100),
        full_every=method.full_every,
        freeze_from=run.iterations * method.freeze_from // 100 if method.freeze_from else None,
        iterations=run.iterations,
    )


def _learner(
    chosen: Optimiser, run: Run, model: SegmentedModel
) -> tuple[Emulation, torch.optim.lr_scheduler.LRScheduler]:
    recipe, method = _recipe(chosen, run.rate), run.method
    groups = [{"params": own} for own in model.buckets if own] if method.rate_power else model.parameters()
    optimiser = OPTIMISERS[recipe.optimiser](groups, **recipe.options)
    factor = partial(rate_factor, run.iterations if run.setting.rise_and_fall else 0)
    rates = torch.optim.lr_scheduler.LambdaLR(optimiser, factor)
    options = (Averaging(method.averaging), HOOKS[method.hook](), method.average_every)
    emulation = Emulation(model, optimiser, *options)
    if method.rate_power:
        emulation.adapt(method.rate_power)
    return emulation, rates


def _recipe(optimiser: Optimiser, rate: float) -> TrainingRecipe:
    return TrainingRecipe(optimiser, {"lr": rate, "momentum": MOMENTUM} if optimiser == "sgd" else {"lr": rate})


def rate_factor(iterations: int, iteration: int) -> float:
    """Rate of an iteration, as a share of the largest; 1 where `iterations` is 0."""
    if not iterations:
        return 1.0
    # A rate that begins at its largest diverges for some seeds and not for others, whatever the way.
    return min(1.0, RISE * (iteration + 1) / iterations) * (1 - iteration / iterations)


def _batches(workers: list[Replica], seed: int, iteration: int) -> list[Batch]:
    return [replica.batch(seed, worker, iteration) for worker, replica in enumerate(workers)]


def held_out(model: SegmentedModel, batch: Batch) -> tuple[float, float]:
    """Accuracy and mean loss."""
    inputs, targets = batch
    with torch.no_grad():
        scores = model(inputs)
        return (scores.argmax(-1) == targets).double().mean().item(), model.loss(scores, targets).item()


def measure_blocks(subject: Subject, workers: int, repeats: int) -> dict[str, list[float]]:
    """What a worker's blocks cost by level: median times of this thread, and operations of the matrix products.

    Times have the drawing of the batch and the optimiser's step in them.
    """
    torch.set_num_threads(1)
    own = replicas(subject, samples(subject, 0), workers, False, 0)[0]
    recipe = _recipe(subject.optimiser, subject.rates[0])
    measured = profile_replica(own, recipe, torch.device("cpu"), warm_up=max(1, repeats // 5), repeats=repeats)
    levels = range(1, own.model.depth + 1)
    return {
        "block_us": [level.block.median for level in measured.levels],
        "operations": [_operations(own.model, own.batch(0, 0, 0), level) for level in levels],
    }


def _operations(model: SegmentedModel, batch: Batch, level: int) -> float:
    with FlopCounterMode(display=False) as counter:
        model.backpropagate(batch, level)
    return float(counter.get_total_flops())
