"""What the tests of the exchange run in three processes, and what they should find."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from jigsaw_opt.executor.exchange.by_bucket import Averaging, GradientExchange
from jigsaw_opt.executor.models.building import Replica, build_network, even_segments, replica
from jigsaw_opt.executor.worker import OPTIMISERS, TrainingRecipe, ZooWorker, block_and_send

RECIPE = TrainingRecipe("sgd", {"lr": 0.1, "momentum": 0.9})
CPU = torch.device("cpu")
DEPTH, STEPS = 4, 20
Plan = Sequence[Sequence[int]]
Job = tuple[Sequence[int], Plan, Averaging]


def tiny() -> Replica:
    network = build_network("gpt", {"layers": 2, "width": 16, "rows": 8}, seed=3)
    return replica(network, even_segments(network, DEPTH), batch_size=4)


def flat(parameters: Iterable[Tensor]) -> Tensor:
    return torch.cat([p.detach().flatten() for p in parameters])


class Hosted:
    """A job with a worker in each of the processes `ranks`."""

    def __init__(self, ranks: Sequence[int], plan: Plan, averaging: Averaging) -> None:
        self.plan, self.exchange = plan, GradientExchange(ranks, averaging)
        here = dist.get_rank() in ranks
        self.worker = ZooWorker(ranks.index(dist.get_rank()), tiny(), RECIPE, CPU) if here else None
        self.states: list[Tensor] = []

    def train(self) -> list[Tensor]:
        return train_together([self])[0] if self.worker else []

    def note(self) -> None:
        self.worker.step()
        self.states.append(flat(self.worker.model.parameters()))


def is_same_everywhere(own: Tensor) -> bool:
    """Return whether a tensor has the same numbers in all processes."""
    there = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(there, own)
    return all(torch.equal(own, other) for other in there)


def train_together(jobs: Sequence[Hosted]) -> list[list[Tensor]]:
    """Jobs whose workers share processes: blocks one after the other, transfers of all of them at the same time."""
    with ExitStack() as stack:
        pools = [stack.enter_context(ThreadPoolExecutor(1)) for _ in jobs]
        for turn in zip(*(job.plan for job in jobs), strict=True):
            sent: list[list[Future[None]]] = [[] for _ in jobs]
            for j, levels, p, own in zip(jobs, turn, pools, sent, strict=True):
                transfer = partial(p.submit, j.worker.transfer, levels=levels, exchange=j.exchange)
                block_and_send(j.worker, levels[j.worker.number], lambda b, own=own, send=transfer: own.append(send(b)))
            for job, futures in zip(jobs, sent, strict=True):
                for future in futures:
                    future.result()
                job.note()
    return [job.states for job in jobs]


def rounds(jobs: Sequence[Job], together: Sequence[Job]) -> tuple[list[list[Tensor]], list[list[Tensor]], list[Tensor]]:
    """Parameters of this process's workers after every iteration: of jobs alone, of jobs together, and under DDP."""
    alone = [Hosted(*job).train() for job in jobs]
    shared = train_together([Hosted(*job) for job in together])
    pair = dist.new_group([0, 1])
    return alone, shared, ddp(pair) if dist.get_rank() < 2 else []


def ddp(group: dist.ProcessGroup) -> list[Tensor]:
    own = tiny()
    model = DistributedDataParallel(own.model, process_group=group)
    optimiser = OPTIMISERS[RECIPE.optimiser](model.parameters(), **RECIPE.options)
    states = []
    for iteration in range(STEPS):
        inputs, targets = own.batch(RECIPE.seed, dist.get_rank(), iteration)
        optimiser.zero_grad()
        own.network.loss(model(inputs), targets).backward()
        optimiser.step()
        states.append(flat(own.model.parameters()))
    return states


def emulated(plan: Plan, divisors: Sequence[Sequence[int]]) -> list[Tensor]:
    """The same training in one process, written from the definition: sum over contributors by `divisors`."""
    own = tiny()
    optimiser = OPTIMISERS[RECIPE.optimiser](own.model.parameters(), **RECIPE.options)
    states = []
    for iteration, levels in enumerate(plan):
        optimiser.zero_grad()
        for worker, level in enumerate(levels):
            own.model.backpropagate(own.batch(RECIPE.seed, worker, iteration), level)
        for parameters, divisor in zip(own.model.buckets, divisors[iteration], strict=True):
            for parameter in parameters:
                parameter.grad /= divisor
        optimiser.step()
        states.append(flat(own.model.parameters()))
    return states


def failing() -> None:
    """Fail in one process while the other waits for it."""
    if dist.get_rank() == 1:
        raise ZeroDivisionError("on purpose")
    dist.all_reduce(torch.zeros(1))
