"""Loops that accumulate, replace gradients or use parts now and then train alike on all ranks."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
import torch.distributed as dist
from partial_networks import CASES, Sometimes, built, loss_of
from partial_training import difference, gradients, mean_of, whole
from torch import Tensor, nn

from jigsaw_opt.errors import UsageError
from jigsaw_opt.executor.partial import PartialBackprop
from jigsaw_opt.executor.processes import run_group
from tests.refusals import refused, require_data, told

pytestmark = pytest.mark.xdist_group("habits of partial backpropagation")
CASE = CASES["skips"]


def wrapped(levels: Any = "rotation", **options: Any) -> PartialBackprop:
    return PartialBackprop(built(CASE), CASE.cuts, levels, **options)


def mean(model: PartialBackprop, levels: tuple[int, ...], batches: range) -> dict[str, Any]:
    own = [whole(CASE, model.state_dict(), worker, batches) for worker in range(model.workers)]
    return mean_of(model, levels, own)


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


def drifted(rank: int) -> list[str]:
    """What is said of ranks that drifted apart, and of models that differ."""
    said = []
    model = wrapped(debug=2)
    for iteration in range(3):
        if iteration == 1 and rank == 2:
            with torch.no_grad():
                model.late.bias += 1
        said.append(told(lambda iteration=iteration: loss_of(CASE, model, rank, iteration).backward()))
    return [*said, told(lambda: PartialBackprop(nn.Linear(3, 3 if rank else 4), 0))]


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
        "function": of_a_function(rank),
        "behind": behind_the_last_layer(rank),
        "uncleared": uncleared(rank),
        "told": drifted(rank),
        "begins": begins_alike(rank),
        "part": in_a_part_of_all(rank),
    }


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    """By rank, what each loop came to."""
    return run_group(habits, 3)


@pytest.mark.parametrize("loop", ["accumulation", "two backward passes"])
def test_sums_of_gradients_are_averaged_over_contributors(found: list[dict[str, Any]], loop: str) -> None:
    assert all(rank[loop] <= 1e-6 for rank in found)


def test_replaced_gradients_and_scaled_losses_do_not_drive_ranks_apart(found: list[dict[str, Any]]) -> None:
    for rank in found:
        for own, first in zip(rank["careless"], found[0]["careless"], strict=True):
            assert all(torch.equal(own[key], first[key]) for key in first)


def test_a_gradient_that_one_worker_has_is_there_on_all_and_one_that_nobody_has_on_none(
    found: list[dict[str, Any]],
) -> None:
    used, rare, never = [True], [True, True], [False, False]
    assert [rank["unused"] for rank in found] == [[*used, *used, *used, *rare, *never, *used, *used]] * 3


def test_what_no_worker_reaches_has_a_gradient_nowhere_and_is_not_stepped(found: list[dict[str, Any]]) -> None:
    for rank in found:
        worst, there = rank["function"]
        assert worst <= 1e-6 and there == found[0]["function"][1]
        assert [not all(own) and any(own) for own in there] == [True, False, True, False]


def test_gradients_add_up_until_they_are_cleared_whatever_the_levels(found: list[dict[str, Any]]) -> None:
    """Inputs are 1, 2 and 3 times 1, 10, 100 and 1000: the mean is 2 of all workers, and 2 of the first and third."""
    for rank in found:
        added, said = rank["uncleared"]
        assert added == pytest.approx([15 * 2, 10 * 202, 6 * 2222])
        require_data(said, "earlier passes", "0.weight, 1.weight on ranks 0, 2", "1.weight on rank 1")


def test_workers_whose_level_reaches_no_parameter_take_part(found: list[dict[str, Any]]) -> None:
    """Only the third one contributes, with inputs of 3."""
    assert [rank["behind"] for rank in found] == [[3.0] * 4] * 3


def test_ranks_that_differ_are_named(found: list[dict[str, Any]]) -> None:
    drifted = "after 2 iterations late.bias differs from that of rank 0 on ranks 2"
    other = "ranks 1, 2 hold parameters of other names, shapes or types than rank 0"
    assert [rank["told"] for rank in found] == [["", "", drifted, other]] * 3


def test_some_processes_train_in_a_group_of_theirs(found: list[dict[str, Any]]) -> None:
    for rank in found:
        worst, refusal = rank["part"]
        assert worst <= 1e-6 and refusal == "unsupported group"


def test_all_begin_with_the_parameters_of_the_first(found: list[dict[str, Any]]) -> None:
    for rank in found:
        assert all(torch.equal(rank["begins"][key], found[0]["begins"][key]) for key in rank["begins"])
