"""Local steps of `PartialBackprop`: parameters averaged in place of gradients, in three processes."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from distributed_training import is_same_everywhere
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import jigsaw_opt
from jigsaw_opt.executor.partial.turns import Turns, set_turns
from jigsaw_opt.executor.processes import run_group
from tests.refusals import misuse, require_data, told

pytestmark = pytest.mark.xdist_group("local steps")

ROTATION = ((2, 1, 1), (1, 2, 1), (1, 1, 2))
"""Levels by iteration: one worker of three goes to full depth."""
UNEVEN = ((2, 2, 1), (1, 1, 1), (2, 1, 1), (2, 2, 2))


class Slopes(nn.Module):
    """Two numbers whose gradients are the inputs, whatever the numbers are."""

    def __init__(self) -> None:
        super().__init__()
        self.early, self.late = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
        self.register_buffer("batches", torch.zeros(()))
        for layer in (self.early, self.late):
            nn.init.zeros_(layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        self.batches += 1 + dist.get_rank()
        return self.early(x) + self.late(x)


def slope(iteration: int, worker: int) -> float:
    return float(1 + 7 * iteration % 5 + 3 * worker)


def train(model: jigsaw_opt.PartialBackprop, optimiser: torch.optim.Optimizer, iterations: int) -> None:
    for _ in range(iterations):
        model(torch.full((1, 1), slope(model.iteration, dist.get_rank()))).sum().backward()
        optimiser.step()
        optimiser.zero_grad()


def trained(levels: Sequence[Sequence[int]], every: int, iterations: int, **options: Any) -> tuple[list[float], bool]:
    """The early and the late number in the end, and whether they are the same on all ranks."""
    model = jigsaw_opt.PartialBackprop(
        Slopes(), ["late"], lambda i, worker: levels[i % len(levels)][worker], average_every=every, **options
    )
    for count in (1, iterations - 1):  # a copy goes on where it was made
        model = deepcopy(model)
        train(model, torch.optim.SGD(model.parameters(), 0.5), count)
    model.average_parameters()
    own = torch.cat([p.detach().flatten() for p in (*model.parameters(), *model.buffers())])
    return own[:2].tolist(), is_same_everywhere(own)


def accumulated() -> list[float]:
    """Numbers after two iterations of two batches each, the first of which is in `no_sync`."""
    model = jigsaw_opt.PartialBackprop(Slopes(), ["late"], "full", average_every=2)
    optimiser = torch.optim.SGD(model.parameters(), 0.5)
    for iteration in range(2):
        x = torch.full((1, 1), slope(iteration, dist.get_rank()))
        with model.no_sync():
            model(x).sum().backward()
        model(x).sum().backward()
        optimiser.step()
        optimiser.zero_grad()
    assert model.iteration == 2
    model.average_parameters()
    return [float(p) for p in model.parameters()]


def loaded(waits: bool) -> list[float]:
    """Numbers that are loaded in between, also before a backward pass, are the same everywhere from then on."""
    model = jigsaw_opt.PartialBackprop(Slopes(), ["late"], lambda i, worker: ROTATION[i % 3][worker], average_every=3)
    loss = model(torch.ones(1, 1)).sum()
    if not waits:
        loss.backward()
    state = {name: torch.full_like(value, 8.0) for name, value in model.state_dict().items()}
    model.load_state_dict(state)
    optimiser = torch.optim.SGD(model.parameters(), 0.5)
    optimiser.zero_grad()
    train(model, optimiser, 1)
    model.average_parameters()
    return [float(p) for p in model.parameters()]


def set_back() -> list[Any]:
    """What is told of another iteration and of a pickled wrapper within local steps, and numbers after an average."""
    model = jigsaw_opt.PartialBackprop(Slopes(), ["late"], "full", average_every=4)
    optimiser = torch.optim.SGD(model.parameters(), 0.5)
    train(model, optimiser, 6)
    told_of = [told(lambda number=number: setattr(model, "iteration", number)) for number in (0, 5, 9)]
    told_of.append(told(lambda: pickle.dumps(model)))
    model.iteration = 6
    model.average_parameters()
    assert pickle.loads(pickle.dumps(model)).iteration == 6
    model.iteration = 0
    train(model, optimiser, 3)
    model.average_parameters()
    return [*told_of, [float(p) for p in model.parameters()]]


def loaded_once() -> None:
    """Load parameters on one rank alone."""
    model = jigsaw_opt.PartialBackprop(Slopes(), ["late"], "full", average_every=3)
    for _ in range(2):
        model(torch.ones(1, 1)).sum().backward()
        if dist.get_rank() == 1 and model.iteration == 1:
            model.load_state_dict(model.state_dict())
    model.average_parameters()


def sharded() -> None:
    model = jigsaw_opt.PartialBackprop(Slopes(), ["late"], average_every=2)
    fully_shard(model, mesh=init_device_mesh("cpu", (3,)))(torch.ones(1, 1))


def peers() -> dict[str, Any]:
    torch.set_num_threads(1)
    return {
        "rotation": [trained(ROTATION, every, 6) for every in (1, 3)],
        "uneven": [trained(UNEVEN, every, 7, debug=1) for every in (2, 4)],
        "accumulated": accumulated(),
        "loaded": [loaded(waits) for waits in (False, True)],
        "set back": set_back(),
        "loaded once": told(loaded_once),
        "sharded": told(sharded),
        "other": told(lambda: trained(ROTATION, 2 + dist.get_rank() // 2, 6)),
    }


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    """By rank, what was found."""
    return run_group(peers, 3)


def with_averaged_gradients(levels: Sequence[Sequence[int]], iterations: int) -> list[float]:
    numbers = [0.0, 0.0]
    for iteration in range(iterations):
        own = levels[iteration % len(levels)]
        for at, bucket in enumerate((2, 1)):
            slopes = [slope(iteration, worker) for worker in range(3) if own[worker] >= bucket]
            numbers[at] -= 0.5 * sum(slopes) / len(slopes) if slopes else 0
    return numbers


def test_constant_contributors_give_what_averaged_gradients_give(found: list[dict[str, Any]]) -> None:
    """Gradients do not depend on the parameters, so that the first order of the learning rate is all there is."""
    for rank in found:
        for numbers, same in rank["rotation"]:
            assert numbers == pytest.approx(with_averaged_gradients(ROTATION, 6), rel=1e-5) and same


def test_other_contributors_are_weighed_by_their_mean_number(found: list[dict[str, Any]]) -> None:
    """The early number: sums over stretches of iterations, over the mean of the numbers above 0 of contributors."""
    for rank in found:
        for every, (numbers, same) in zip((2, 4), rank["uneven"], strict=True):
            early = 0.0
            for first in range(0, 7, every):
                rows = [(i, UNEVEN[i % 4]) for i in range(first, min(first + every, 7))]
                counts = [n for _, row in rows if (n := row.count(2))]
                total = sum(slope(i, worker) for i, row in rows for worker in range(3) if row[worker] == 2)
                early -= 0.5 * total / (sum(counts) / len(counts)) if counts else 0
            assert numbers == pytest.approx([early, with_averaged_gradients(UNEVEN, 7)[1]], rel=1e-5) and same


def test_batches_of_an_iteration_add_up(found: list[dict[str, Any]]) -> None:
    for rank in found:
        expected = 2 * with_averaged_gradients(((2, 2, 2),), 2)[0]
        assert rank["accumulated"] == pytest.approx([expected, expected])


def test_parameters_that_are_loaded_are_those_in_common(found: list[dict[str, Any]]) -> None:
    """One worker reaches the early number: of the iteration with number 1, or 0, it is the second, or the first one."""
    for rank in found:
        for numbers, iteration in zip(rank["loaded"], (1, 0), strict=True):
            mean = sum(slope(iteration, worker) for worker in range(3)) / 3
            assert numbers == pytest.approx([8 - slope(iteration, iteration) / 2, 8 - mean / 2])


def test_training_is_set_back_on_all_ranks_and_to_parameters_in_common(found: list[dict[str, Any]]) -> None:
    numbers = with_averaged_gradients(((2, 2, 2),), 6)[0] + with_averaged_gradients(((2, 2, 2),), 3)[0]
    for rank in found:
        *told_of, there = rank["set back"]
        assert all("average_parameters()" in text for text in told_of) and there == pytest.approx([numbers, numbers])
        require_data(rank["loaded once"], "at iteration 0 on ranks 0, 2; at iteration 1 on rank 1")


def test_processes_with_other_numbers_of_local_steps_raise(found: list[dict[str, Any]]) -> None:
    for rank in found:
        require_data(rank["other"], "average_every: 2 on ranks 0, 1; 3 on rank 2")


def test_sharded_parameters_are_refused(found: list[dict[str, Any]]) -> None:
    assert all("average_every" in rank["sharded"] for rank in found)


def test_what_does_not_go_with_local_steps_is_refused() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with misuse("out-of-range average_every"):
        jigsaw_opt.PartialBackprop(network, ["1"], average_every=0)
    with misuse("not-together efficiency_every"):
        jigsaw_opt.PartialBackprop(network, ["1"], average_every=2, efficiency_every=1)
    model = jigsaw_opt.PartialBackprop(network, ["1"], average_every=2)
    with misuse("not-together hook", naming=("leave out a communication hook",)):
        model.register_comm_hook(None, jigsaw_opt.EightBit())
    with misuse("not-together join", naming=("leave out join",)), model.join():
        pass


class EveryTurn:
    """Turns of a plan that whoever asks has to follow."""

    def follows(self, _: object) -> bool:
        return True


def test_local_steps_neither_adapt_nor_weigh_nor_follow_a_plan() -> None:
    model = jigsaw_opt.PartialBackprop(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), ["1"], average_every=2)
    model(torch.ones(1, 2)).sum().backward()
    optimiser = torch.optim.SGD(model.parameter_groups(), 0.1)
    with misuse("not-together adapt"):
        model.adapt(optimiser)
        optimiser.step()
    model.samples = 3
    with misuse("not-together samples"):
        model(torch.ones(1, 2))
    model.samples = None
    before = set_turns(cast(Turns, EveryTurn()))
    try:
        with misuse("not-together levels"):
            model(torch.ones(1, 2))
    finally:
        set_turns(before)
