"""What the tests of the exchange run in three processes, and what they should find."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from jigsaw_opt.executor.building import Replica, build_network, even_segments, replica
from jigsaw_opt.executor.exchange import Averaging, Exchange
from jigsaw_opt.executor.worker import OPTIMISERS, Recipe, Worker, train_iteration

RECIPE = Recipe("sgd", {"lr": 0.1, "momentum": 0.9})
CPU = torch.device("cpu")
DEPTH, STEPS = 4, 20
Plan = Sequence[Sequence[int]]


def tiny() -> Replica:
    network = build_network("gpt", {"layers": 2, "width": 16, "rows": 8}, seed=3)
    return replica(network, even_segments(network, DEPTH), batch_size=4)


def flat(parameters: Iterable[Tensor]) -> Tensor:
    return torch.cat([p.detach().flatten() for p in parameters])


def rounds(plans: Sequence[tuple[Sequence[int], Plan, Averaging]]) -> tuple[list[list[Tensor]], list[Tensor]]:
    """Parameters of this process's worker after every iteration of each job, and those under DDP."""
    states = [spb(*plan) for plan in plans]
    pair = dist.new_group([0, 1])
    return states, ddp(pair) if dist.get_rank() < 2 else []


def spb(ranks: Sequence[int], plan: Plan, averaging: Averaging) -> list[Tensor]:
    exchange = Exchange(ranks, averaging)
    exchange.prepare(plan, DEPTH)
    if dist.get_rank() not in ranks:
        return []
    worker = Worker(ranks.index(dist.get_rank()), tiny(), RECIPE, CPU)
    states = []
    with ThreadPoolExecutor(1) as transfers:
        for levels in plan:
            train_iteration(worker, levels, exchange, transfers)
            worker.step()
            states.append(flat(worker.model.parameters()))
    return states


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
        for parameters, divisor in zip(own.model.bucket_parameters(), divisors[iteration], strict=True):
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
