"""Passes that fail, run again or differ between processes give right gradients or an error, and never wrong ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from partial_networks import Sometimes
from partial_training import difference, gradients, mean_of
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from jigsaw_opt.errors import JigsawError, UsageError
from jigsaw_opt.executor.partial import PartialBackprop
from jigsaw_opt.executor.partial.transfers import own_group
from jigsaw_opt.executor.processes import run_group
from tests.refusals import refused as refused_by
from tests.refusals import told

pytestmark = pytest.mark.xdist_group("mishaps of partial backpropagation")
Loss = Callable[[nn.Module, int], Tensor]


class Experts(nn.Module):
    """Four dense layers, and two of which a pass takes one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.early, self.late = (nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)) for _ in range(2))
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))
        self.taken, self.fails, self.sends = 0, False, False

    def forward(self, x: Tensor) -> Tensor:
        x = self.early(x)
        if self.fails:
            x.register_hook(lambda gradient: 1 / 0)
        if self.sends:
            x.register_hook(total)
        return self.late(self.experts[self.taken](x))


def total(gradient: Tensor) -> Tensor:
    whole = gradient.clone()
    dist.all_reduce(whole)
    return whole


def wrapped(levels: Any = "rotation") -> PartialBackprop:
    model = PartialBackprop(Experts(), ["experts.0", "late"], levels)
    model.prepare(rows(0, 0))
    return model


def rows(worker: int, iteration: int) -> Tensor:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(10 * iteration + worker))


def apart(model: PartialBackprop, levels: tuple[int, ...], loss: Loss) -> float:
    """Largest difference of gradients to the mean over contributors of whole gradients of `loss`."""
    own = []
    for worker in range(2):
        network = Experts().to(next(model.parameters()).dtype)
        network.load_state_dict(model.state_dict())
        loss(network, worker).backward()
        own.append(gradients(network))
    return difference(gradients(model), mean_of(model, levels, own))


def experts_that_differ(rank: int) -> list[float]:
    """Each worker takes an expert of its own."""
    model, found = wrapped(), []
    for iteration in range(4):

        def loss(network: nn.Module, worker: int, iteration: int = iteration) -> Tensor:
            (network.module if isinstance(network, PartialBackprop) else network).taken = (iteration + worker) % 2
            return network(rows(worker, iteration)).square().sum()

        levels = model._rule(iteration)
        loss(model, rank).backward()
        found.append(apart(model, levels, loss))
        model.zero_grad()
    return found


def plain(iteration: int) -> Loss:
    return lambda network, worker: network(rows(worker, iteration)).square().sum()


def checkpointed_from_outside(rank: int) -> list[float]:
    """All of the wrapped model runs again in the backward pass."""
    model, found = wrapped(), []
    for iteration in range(2):
        levels = model._rule(iteration)
        checkpoint(model, rows(rank, iteration), use_reentrant=False).square().sum().backward()
        found.append(apart(model, levels, plain(iteration)))
        model.zero_grad()
    assert model.iteration == 2
    return found


def two_models(rank: int) -> list[float]:
    """Two wrapped models in one backward pass, where no pass uses an expert of the second one."""
    first, second, found = wrapped(), wrapped(), []
    for iteration in range(2):
        levels = first._rule(iteration)
        second(first(rows(rank, iteration))).square().sum().backward()

        def loss(network: nn.Module, worker: int, iteration: int = iteration) -> Tensor:
            return network(rows(worker, iteration)).square().sum()

        found.append(apart(first, levels, lambda network, worker: loss(nn.Sequential(network, Experts()), worker)))
        found.append(apart(second, levels, lambda network, worker: loss(nn.Sequential(Experts(), network), worker)))
        first.zero_grad()
        second.zero_grad()
    return found


def after_a_failure_of_one(rank: int) -> list[float | str]:
    """In one process a backward pass fails after exchanges have begun, and training goes on."""
    model, found = wrapped("full"), []
    for iteration in range(3):
        model.zero_grad()
        model.module.fails = iteration == rank == 1
        try:
            plain(iteration)(model, rank).backward()
        except (ZeroDivisionError, JigsawError) as error:
            found.append(str(error))
        else:
            found.append(apart(model, (3, 3), plain(iteration)))
    assert model.iteration == 2
    return found


def in_double_precision(rank: int) -> float:
    """The model gets another type after its first pass."""
    model = wrapped()
    plain(0)(model, rank).backward()
    model.double().zero_grad()
    levels = model._rule(1)

    def loss(network: nn.Module, worker: int) -> Tensor:
        return network(rows(worker, 1).double()).square().sum()

    loss(model, rank).backward()
    return apart(model, levels, loss)


def sending_in_the_backward_pass(rank: int) -> list[float]:
    """The backward pass of the module itself sends something between all processes, as that of `SyncBatchNorm`."""
    ours, theirs, found = wrapped("full"), DistributedDataParallel(Experts(), find_unused_parameters=True), []
    ours.module.sends = theirs.module.sends = True
    for iteration in range(4):
        for model in (ours, theirs):
            plain(iteration)(model, rank).backward()
        found.append(difference(gradients(ours), gradients(theirs.module)))
        ours.zero_grad()
        theirs.zero_grad()
    return found


def told_of(loss: Callable[[], Tensor]) -> tuple[str, str]:
    """What is refused of a pass, which changes no gradient, and what is said of it."""
    try:
        loss().backward()
    except UsageError as error:
        return "; ".join(refused_by(error)), str(error)
    return "nothing", ""


def updates_at_once(parameter: Tensor) -> None:
    with torch.no_grad():
        parameter.sub_(parameter, alpha=0.1)


class Growing(nn.Module):
    """A dense layer, and a buffer that is as large as the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(6, 6)
        self.register_buffer("seen", torch.zeros(0))

    def forward(self, x: Tensor) -> Tensor:
        self.seen = torch.zeros(len(x))
        return self.dense(x)


def told_in_turn(rank: int) -> tuple[str, str]:
    """What is said where the processes begin with different ones of two models that are alike."""
    models = [wrapped(), wrapped()]
    return told_of(lambda: plain(0)(models[rank], rank))


def told_of_buffers(rank: int) -> tuple[str, str]:
    model = PartialBackprop(Growing(), 0)
    model.prepare(rows(0, 0))
    return told_of(lambda: model(rows(rank, 0)[rank:]).sum())


def refused(rank: int) -> dict[str, tuple[str, str]]:
    """What is said of passes that differ between processes, and of optimisers in the backward pass."""
    models = {
        "levels": wrapped(lambda iteration, worker: 1 + (rank + worker) % 2),
        "iteration": wrapped("full"),
        "frozen": wrapped("full"),
        "type": wrapped("full"),
        "taken": wrapped(),
        "updated": wrapped(),
        "doubled": wrapped(),
    }
    models["iteration"].iteration = rank
    models["frozen"].module.early[2 * rank].requires_grad_(False)
    if rank:
        models["type"].module.experts[1].double()
    for parameter in models["taken"].parameters():
        parameter.register_post_accumulate_grad_hook(lambda parameter: setattr(parameter, "grad", None))
    for parameter in models["updated"].parameters():
        parameter.register_post_accumulate_grad_hook(updates_at_once)
    passes = models | {"doubled": DistributedDataParallel(models["doubled"])}
    said = {name: told_of(partial(plain(0), model, rank)) for name, model in passes.items()}
    said |= {"turn": told_in_turn(rank), "buffers": told_of_buffers(rank)}
    assert all(model.iteration == (rank if name == "iteration" else 0) for name, model in models.items())
    models["frozen"].requires_grad_(True).zero_grad()
    return said | {"afterwards": told_of(partial(plain(0), models["frozen"], rank))}


def placed_by_all(rank: int) -> tuple[int, list[int]]:
    """Numbers that no process used, and the buckets of a part that the second process alone does."""
    model = PartialBackprop(Sometimes(), ["dense", "head"], "full")
    parts = model.prepare(torch.full((1, 1), rank))
    return model.describe().unused, [parts.buckets[p] for p in model.module.rare.parameters()]


def without_the_other_one(rank: int) -> str:
    """What is said where one process has no backward pass for as long as the group waits; nothing can follow it."""
    model = wrapped("full")
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=0.5), own_group(None))
    said = told(lambda: plain(0)(model, rank).backward()) if rank == 0 else ""
    dist.barrier()
    return said


def mishaps() -> dict[str, Any]:
    rank = dist.get_rank()
    return {
        "experts": experts_that_differ(rank),
        "checkpointed": checkpointed_from_outside(rank),
        "two models": two_models(rank),
        "failure of one": after_a_failure_of_one(rank),
        "double": in_double_precision(rank),
        "placed": placed_by_all(rank),
        "sending": sending_in_the_backward_pass(rank),
        "refused": refused(rank),
        "without the other": without_the_other_one(rank),
    }


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    """By rank, what each loop came to."""
    return run_group(mishaps, 2)


@pytest.mark.parametrize("loop", ["experts", "checkpointed", "two models", "sending"])
def test_gradients_are_means_over_contributors(found: list[dict[str, Any]], loop: str) -> None:
    assert all(len(rank[loop]) >= 2 and max(rank[loop]) <= 1e-5 for rank in found)


def test_a_parameter_is_placed_by_the_first_process_that_uses_it(found: list[dict[str, Any]]) -> None:
    assert [rank["placed"] for rank in found] == [(72, [2, 2])] * 2


def test_gradients_follow_the_type_of_parameters(found: list[dict[str, Any]]) -> None:
    assert all(rank["double"] <= 1e-13 for rank in found)


def test_passes_that_differ_between_processes_are_refused_and_leave_no_trace(found: list[dict[str, Any]]) -> None:
    told = found[0]["refused"]
    zeroth, second = (f"early.{at}.weight, early.{at}.bias" for at in (0, 2))
    for name, fact, values in (
        ("levels", "levels", ("(1, 2)", "(2, 1)")),
        ("iteration", "iteration", ("0", "1")),
        ("frozen", "frozen parameters", (zeroth, second)),
    ):
        refusal, said = told[name]
        assert refusal == f"mismatch {fact}"
        assert said.endswith("; ".join(f"{value} on rank {rank}" for rank, value in enumerate(values)))
    refusal, said = told["type"]
    assert refusal == "mismatch model" and "early.0.weight torch.float32" in said
    assert told["afterwards"] == ("nothing", "")
    differing = ("levels", "iteration", "frozen", "type")
    assert all(rank["refused"][name] == told[name] for rank in found for name in differing)


def test_wrappers_and_buffers_that_differ_between_processes_are_refused(found: list[dict[str, Any]]) -> None:
    for rank in found:
        assert rank["refused"]["turn"][0] == "mismatch wrapper"
        refusal, said = rank["refused"]["buffers"]
        assert refusal == "mismatch broadcast_buffers" and re.findall(r"\(\d,\)", said) == ["(4,)", "(3,)"]


def test_a_failure_of_one_process_ends_the_pass_of_the_other_one(found: list[dict[str, Any]]) -> None:
    told = ["the backward pass failed in another process, so gradients are not averaged", "division by zero"]
    assert [rank["failure of one"][1] for rank in found] == told
    assert all(max(rank["failure of one"][::2]) <= 1e-5 for rank in found)


def test_a_process_that_does_not_come_is_the_named_reason(found: list[dict[str, Any]]) -> None:
    assert found[0]["without the other"].startswith(
        "iteration 0: another process has ended, or has not come to this backward pass within the timeout"
    )


def test_updates_in_the_backward_pass_and_a_second_average_are_refused(found: list[dict[str, Any]]) -> None:
    for rank in found:
        assert rank["refused"]["taken"][0] == "wrong-order optimiser"
        assert rank["refused"]["updated"][0] == "wrong-order parameters"
        assert rank["refused"]["doubled"][0] == "unsupported module"
