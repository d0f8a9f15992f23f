"""Processes of two jobs that follow a plan in loops of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from jigsaw_opt.executor.following import PlanTurns, following
from jigsaw_opt.executor.partial import PartialBackprop
from jigsaw_opt.executor.replay.clock import ReplayClock
from jigsaw_opt.problem import Instance, Plan

STEPS = 6
CUTS = ["2", "4"]


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))


def batch(job: str, rank: int, iteration: int) -> tuple[torch.Tensor, torch.Tensor]:
    own = torch.Generator().manual_seed(1000 * iteration + 10 * rank + ord(job))
    return torch.randn(4, 8, generator=own), torch.randint(4, (4,), generator=own)


def train(job: str, model: PartialBackprop, steps: int) -> list[float]:
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for iteration in range(steps):
        optimiser.zero_grad()
        inputs, targets = batch(job, model.rank, iteration)
        loss = nn.functional.cross_entropy(model(inputs), targets)
        if job == "a":
            sleep(0.003)  # the others would overtake it
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


@contextmanager
def noted(clock: ReplayClock) -> Iterator[dict[str, Any]]:
    """Note when blocks begin and end, and by iteration and bucket when transfers do."""
    moments: dict[str, Any] = {"begin": [], "end": [], "transfers": {}}
    begin, end, transfer = PlanTurns.begin_block, PlanTurns.end_block, PlanTurns.transfer

    def begun(self: PlanTurns, iteration: int) -> None:
        begin(self, iteration)
        moments["begin"].append(clock.now())

    def ended(self: PlanTurns, device: torch.device) -> None:
        moments["end"].append(clock.now())
        end(self, device)

    @contextmanager
    def transferred(self: PlanTurns, iteration: int, bucket: int, is_first: bool, is_last: bool) -> Iterator[None]:
        assert is_first and is_last  # the parameters of a bucket are few
        with transfer(self, iteration, bucket, is_first, is_last):
            begin = clock.now()
            if self.follows(self._order.jobs[0]):
                sleep(0.002)  # the others would overtake it
            yield
            moments["transfers"][iteration, bucket] = begin, clock.now()

    PlanTurns.begin_block, PlanTurns.end_block = begun, ended  # type: ignore[method-assign]
    PlanTurns.transfer = transferred  # type: ignore[method-assign]
    try:
        yield moments
    finally:
        PlanTurns.begin_block, PlanTurns.end_block = begin, end  # type: ignore[method-assign]
        PlanTurns.transfer = transfer  # type: ignore[method-assign]


def follow(instance: Instance, plan: Plan, meet: str | None, steps: dict[str, int]) -> Any:
    """Train jobs ``a``, with ranks 0 and 1, and ``b``, with ranks 2 and 3, as the plan says, and then without it."""
    rank = dist.get_rank()
    groups = {"a": dist.new_group([0, 1]), "b": dist.new_group([2, 3])}
    job = "a" if rank < 2 else "b"
    clock = ReplayClock(dist.new_group(backend="gloo"))
    with noted(clock) as moments, following(plan, instance, job, process_group=groups[job], meet=meet) as part:
        model = PartialBackprop(network(), CUTS, levels=part, process_group=groups[job])
        losses = train(job, model, steps[job])
    free = PartialBackprop(network(), CUTS, levels=part, process_group=groups[job])
    assert losses == train(job, free, steps[job])
    return moments, losses, part.gpus[rank % 2]
