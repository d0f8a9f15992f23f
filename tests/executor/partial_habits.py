"""Training loops with habits of their own, run in three processes: what `PartialBackprop` must bear."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
import torch.distributed as dist
from partial_networks import CASES, Sometimes, built, loss_of
from partial_training import difference, gradients
from torch import Tensor, nn

from jigsaw_opt.errors import JigsawError, UsageError
from jigsaw_opt.executor.partial import PartialBackprop
from jigsaw_opt.problem.depth import FreeDepth
from tests.refusals import refused

CASE = CASES["skips"]


def wrapped(levels: Any = "rotation", **options: Any) -> PartialBackprop:
    return PartialBackprop(built(CASE), CASE.cuts, levels, **options)


def whole(state: dict[str, Tensor], worker: int, batches: range) -> dict[str, Tensor | None]:
    """The sum of a worker's whole gradients over some batches."""
    network = built(CASE)
    network.load_state_dict(state)
    for batch in batches:
        loss_of(CASE, network, worker, batch).backward()
    return gradients(network)


def mean(model: PartialBackprop, levels: tuple[int, ...], batches: range) -> dict[str, Any]:
    assert model._parts is not None
    own = [whole(model.state_dict(), worker, batches) for worker in range(model.workers)]
    wanted = {}
    for name, parameter in model.named_parameters():
        bucket = model._parts.buckets[parameter]
        those = [found[name] for found, level in zip(own, levels, strict=True) if level >= bucket]
        wanted[name] = sum(those) / len(those)  # type: ignore[arg-type]
    return wanted


def accumulation(rank: int) -> float:
    """Three batches an iteration, two of them under `no_sync`, over iterations of all levels."""
    model, worst = wrapped(), 0.0
    for iteration in range(3):
        levels = model._rule(iteration)
        with model.no_sync():
            for batch in (0, 1):
                loss_of(CASE, model, rank, batch).backward()
        loss_of(CASE, model, rank, 2).backward()
        worst = max(worst, difference(gradients(model), mean(model, levels, range(3))))
        assert model.iteration == iteration + 1
        model.zero_grad(set_to_none=iteration == 0)
    return worst


def two_backward_passes(rank: int) -> float:
    """Two losses of one forward pass, each with a backward pass: the gradients add up on all ranks alike."""
    model, worst = wrapped(), 0.0
    for iteration in range(3):
        levels = model._rule(iteration)
        loss = loss_of(CASE, model, rank, 0)
        (loss / 4).backward(retain_graph=True)
        (loss * 3 / 4).backward()
        worst = max(worst, difference(gradients(model), mean(model, levels, range(1))))
        assert model.iteration == iteration + 1
        model.zero_grad()
    return worst


def careless(rank: int, fused: bool) -> dict[str, Tensor]:
    """New gradient tensors, scaled ones, zeros in place of none, and an optimiser in one piece."""
    model = wrapped("permutation")
    optimiser = torch.optim.AdamW(model.parameters(), 1e-2, fused=fused, foreach=not fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for iteration in range(9):
        scaler.scale(loss_of(CASE, model, rank, iteration)).backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad = parameter.grad.clone()
        scaler.unscale_(optimiser)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimiser)
        scaler.update()
        optimiser.zero_grad(set_to_none=iteration % 2 == 0)
    return dict(model.state_dict())


def unused(rank: int) -> list[bool]:
    """Who has a gradient where one of three workers uses a part, and nobody another one."""
    model = PartialBackprop(Sometimes(), ("dense",), "full")
    model.prepare(torch.zeros(1, 6, dtype=torch.int64))
    tokens = torch.full((1, 6), 1 if rank else 0)
    tokens[0, 0] += rank == 1
    model(tokens)[0].sum().backward()
    return [parameter.grad is not None for parameter in model.parameters()]


def drawn(rank: int) -> list[tuple[int, ...]]:
    """Levels of free workers while they train."""
    model = wrapped(FreeDepth(min_contributors=2, mean_depth="8/9"), warm_up=1, granularity=2, seed=3)
    seen = []
    for iteration in range(12):
        seen.append(model._rule(model.iteration))
        loss_of(CASE, model, rank, iteration).backward()
    return seen


def told(rank: int) -> list[str]:
    """What is said of ranks that drifted apart, and of models that differ."""
    said = []
    model = wrapped(debug=2)
    for iteration in range(3):
        if iteration == 1 and rank == 2:
            with torch.no_grad():
                model.late.bias += 1
        try:
            loss_of(CASE, model, rank, iteration).backward()
        except JigsawError as error:
            said.append(str(error))
    try:
        PartialBackprop(nn.Linear(3, 3 if rank else 4), 0)
    except JigsawError as error:
        said.append(str(error))
    return said


def begins_alike(rank: int) -> dict[str, Tensor]:
    torch.manual_seed(rank)
    return dict(PartialBackprop(CASE.build(), CASE.cuts).state_dict())


def of_a_function(rank: int) -> tuple[float, list[list[bool]]]:
    """Levels of a function by which nobody reaches the first part every other time: differences, who has gradients."""
    model, worst, there = wrapped(lambda iteration, worker: 3 if iteration % 2 else 1 + worker % 2), 0.0, []
    optimiser = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for iteration in range(4):
        levels = model._rule(iteration)
        if iteration % 2 == 0:
            first = model.stem.weight.clone()
            model.stem.weight.grad = torch.zeros_like(first)  # as `zero_grad(set_to_none=False)` leaves it
        loss_of(CASE, model, rank, iteration).backward()
        there.append([parameter.grad is not None for parameter in model.parameters()])
        if iteration % 2:
            wanted = mean(model, levels, range(iteration, iteration + 1))
            worst = max(worst, difference(gradients(model), wanted))
        optimiser.step()
        assert iteration % 2 or torch.equal(first, model.stem.weight)
        optimiser.zero_grad()
    return worst, there


def behind_the_last_layer(rank: int) -> list[float]:
    """Gradients where the levels of two of three workers reach no parameter."""
    network = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Tanh(), nn.Identity())
    nn.init.zeros_(network[0].weight)
    model = PartialBackprop(network, ["1", "2"], "staircase")
    model(torch.full((1, 2), 1.0 + rank)).sum().backward()
    assert model.iteration == 1
    return [float(value) for value in network[0].weight.grad.flatten()]


def in_a_part_of_all(rank: int) -> list[float | str]:
    """Differences where two of the processes train, which belong to different numbers of groups; what pickling says."""
    pair, _ = dist.new_group([0, 1]), dist.new_group([1, 2])
    if rank == 2:
        return [0.0, "unsupported group"]
    model, worst = wrapped(process_group=pair), 0.0
    for iteration in range(4):
        own = model if iteration < 2 else copy.deepcopy(model)
        own.zero_grad()
        loss_of(CASE, own, rank, iteration).backward()
        worst = max(
            worst, difference(gradients(own), mean(own, own._rule(own.iteration - 1), range(iteration, iteration + 1)))
        )
    with pytest.raises(UsageError) as error:
        pickle.dumps(model)
    return [worst, *refused(error.value)]


def uncleared(rank: int) -> tuple[list[float], str]:
    """Gradients over four iterations that nobody clears; what is said where one process has cleared them by itself.

    With y = c b a x of weights 2, 3 and 5, da = 15 x, db = 10 x and dc = 6 x.
    """
    network = nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in range(3)))
    for layer, value in zip(network, (2.0, 3.0, 5.0), strict=True):
        nn.init.constant_(layer.weight, value)
    levels = ((3, 3, 3), (1, 1, 1), (2, 1, 2), (1, 1, 1), (1, 1, 1))
    model = PartialBackprop(network, ["1", "2"], lambda iteration, worker: levels[iteration][worker])
    for x in (1.0, 10.0, 100.0, 1000.0):
        model(torch.full((1, 1), x * (1 + rank))).sum().backward()
    added = [float(layer.weight.grad) for layer in network]
    if rank == 1:
        network[0].zero_grad()
    with pytest.raises(UsageError) as error:
        model(torch.ones(1, 1)).sum().backward()
    return added, str(error.value)


def habits() -> dict[str, Any]:
    rank = dist.get_rank()
    return {
        "accumulation": accumulation(rank),
        "two backward passes": two_backward_passes(rank),
        "careless": [careless(rank, fused) for fused in (False, True)],
        "unused": unused(rank),
        "drawn": drawn(rank),
        "function": of_a_function(rank),
        "behind": behind_the_last_layer(rank),
        "uncleared": uncleared(rank),
        "told": told(rank),
        "begins": begins_alike(rank),
        "part": in_a_part_of_all(rank),
    }
