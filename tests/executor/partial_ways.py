"""Ways of partial backpropagation that lose less, trained in processes and emulated in one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
import torch.distributed as dist
from distributed_training import flat, tiny
from spb.emulation import Emulation
from torch import Tensor

from jigsaw_opt.executor.exchange.compression import CompressedExchange, EightBit, TopK
from jigsaw_opt.executor.level_schedule import LevelSchedule
from jigsaw_opt.executor.models.building import Replica
from jigsaw_opt.executor.partial import PartialBackprop

STEPS, WORKERS = 7, 2
OPTIMISERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-2}),
    "nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    # With the usual eps, the sign of a gradient that is all rounding would decide about a step.
    "adam": (torch.optim.AdamW, {"lr": 1e-2, "eps": 1e-2}),
}


@dataclass(frozen=True)
class Way:
    """`schedule` and `adapt` are options of `LevelSchedule` and of `adapt`; `hook` makes a communication hook."""

    optimiser: str = "sgd"
    schedule: Any = None
    adapt: Any = None
    samples: Sequence[int] | None = None
    hook: Callable[[], CompressedExchange | None] = lambda: None
    every: int = 1

    def levels(self, depth: int) -> LevelSchedule:
        return LevelSchedule(depth, WORKERS, **(self.schedule or {}))

    def optimiser_of(self, groups: Any) -> tuple[torch.optim.Optimizer, Any]:
        kind, options = OPTIMISERS[self.optimiser]
        optimiser = kind(groups, **options)
        return optimiser, torch.optim.lr_scheduler.LinearLR(optimiser, 1, 0.2, total_iters=STEPS)


def largest() -> TopK:
    """Make a hook that sends a tenth of the numbers."""
    return TopK("1/10")


WAYS = {
    "plain": Way(),
    "rates": Way(adapt={"rate_power": 1.0}),
    "samples": Way(samples=(3, 1)),
    "samples, adapted": Way("nesterov", adapt={}, samples=(2, 5)),
    "samples while freezing": Way(schedule={"freeze_from": 3, "iterations": STEPS}, samples=(1, 3)),
    "uniform": Way(schedule={"rule": "uniform"}),
    "two levels": Way("adam", {"rule": "two_level", "mean_depth": Fraction(3, 4)}, {}),
    "full depth now and then": Way(schedule={"full_every": 3}, adapt={"rate_power": 0.5}),
    "largest": Way(hook=largest),
    "largest of samples": Way(samples=(3, 1), hook=largest),
    "largest, adapted": Way("nesterov", adapt={}, samples=(1, 3), hook=largest),
    "8 bits": Way(hook=EightBit),
    "8 bits, adapted": Way(adapt={"rate_power": 1.0}, samples=(1, 3), hook=EightBit),
    "local steps": Way(every=3),
    "local steps, two levels": Way("adam", {"rule": "two_level", "full_every": 3}, every=2),
    "freezing": Way("nesterov", {"freeze_from": 2, "iterations": STEPS, "full_every": 2}, {}),
}


def batch_of(own: Replica, worker: int, iteration: int) -> Any:
    return own.batch(0, worker, iteration)


def trained(way: Way) -> Tensor:
    """Parameters after a training in this process, one of a group."""
    own = tiny()
    cuts = [f"segments.{own.model.cut(level)}" for level in range(1, own.model.depth)]
    model = PartialBackprop(own.model, cuts, way.levels(own.model.depth), average_every=way.every)
    if (hook := way.hook()) is not None:
        model.register_comm_hook(None, hook)
    model.prepare(batch_of(own, dist.get_rank(), 0)[0])
    optimiser, rates = way.optimiser_of(model.parameter_groups())
    if way.adapt is not None:
        model.adapt(optimiser, **way.adapt)
    for iteration in range(STEPS):
        inputs, targets = batch_of(own, dist.get_rank(), iteration)
        if way.samples is not None:
            model.samples = way.samples[(dist.get_rank() + iteration) % WORKERS]
        own.network.loss(model(inputs), targets).backward()
        optimiser.step()
        rates.step()
        optimiser.zero_grad()
    model.average_parameters()
    return flat(own.model.parameters())


def emulated(way: Way) -> Tensor:
    """Parameters after the same training of all workers in one process."""
    own = tiny()
    schedule = way.levels(own.model.depth)
    optimiser, rates = way.optimiser_of([{"params": bucket} for bucket in own.model.buckets if bucket])
    emulation = Emulation(own.model, optimiser, hook=way.hook(), average_every=way.every)
    if way.adapt is not None:
        emulation.adapt(**{"rate_power": 0.5} | way.adapt)
    for iteration in range(STEPS):
        batches = [batch_of(own, worker, iteration) for worker in range(WORKERS)]
        samples = None if way.samples is None else [way.samples[(at + iteration) % WORKERS] for at in range(WORKERS)]
        emulation.iterate(schedule.levels(iteration), batches, samples)
        rates.step()
    emulation.average_parameters()
    return flat(own.model.parameters())


def all_trained(names: Sequence[str]) -> dict[str, Tensor]:
    """By name of a way, the parameters at its end in this process."""
    return {name: trained(WAYS[name]) for name in names}
