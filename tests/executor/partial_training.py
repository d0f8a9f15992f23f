"""What the tests of `PartialBackprop` run in two or three processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
from partial_networks import Case, built, loss_of
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from jigsaw_opt.executor.partial import PartialBackprop

STEPS, LONG, CHECKED = 20, 50, 9
Optimise = Callable[[nn.Module], tuple[torch.optim.Optimizer, Any]]


def sgd(model: nn.Module) -> tuple[torch.optim.Optimizer, Any]:
    optimiser = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    return optimiser, torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)


def adamw(model: nn.Module) -> tuple[torch.optim.Optimizer, Any]:
    optimiser = torch.optim.AdamW(model.parameters(), 1e-3)
    return optimiser, torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, LONG)


def gradients(model: nn.Module) -> dict[str, Tensor | None]:
    return {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


def difference(found: dict[str, Tensor | None], wanted: dict[str, Tensor | None]) -> float:
    """The largest difference; infinite where one has a gradient and the other has none."""
    assert found.keys() == wanted.keys()
    largest = 0.0
    for name, own in found.items():
        other = wanted[name]
        if (own is None) != (other is None):
            return float("inf")
        if own is not None and other is not None:
            largest = max(largest, float((own - other).abs().max()))
    return largest


def against_ddp(case: Case) -> tuple[float, float, float]:
    """Train twice at full depth: largest difference of gradients from equal parameters, of parameters, and progress."""
    rank = dist.get_rank()
    ours = PartialBackprop(built(case), cuts=case.cuts, levels="full")
    theirs = DistributedDataParallel(built(case), find_unused_parameters=case.unused)
    alone, start = PartialBackprop(built(case), cuts=case.cuts, levels="full"), built(case).state_dict()
    models = [(ours, *sgd(ours)), (theirs, *sgd(theirs)), (alone, *sgd(alone))]
    worst = 0.0
    for iteration in range(STEPS):
        ours.load_state_dict(theirs.module.state_dict())
        for model, _, _ in models:
            loss_of(case, model, rank, iteration).backward()
        worst = max(worst, difference(gradients(ours), gradients(theirs.module)))
        for model, optimiser, schedule in models:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimiser.step()
            schedule.step()
            optimiser.zero_grad()
    there, here = dict(theirs.module.named_parameters()), dict(alone.named_parameters())
    apart = max(float((here[key] - there[key]).abs().max().detach()) for key in there)
    return worst, apart, max(float((here[key] - start[key]).abs().max().detach()) for key in there)


def written_out(case: Case, state: dict[str, Tensor], model: PartialBackprop, iteration: int) -> dict[str, Any]:
    """The mean over each bucket's contributors of the whole gradients of their batches."""
    levels, parts = model._rule(iteration), model._parts
    assert parts is not None
    names = {p: key for key, p in model.named_parameters()}
    bucket = {names[p]: number for p, number in parts.buckets.items()}
    own: list[dict[str, Tensor | None]] = []
    for worker in range(model.workers):
        copy = built(case)
        copy.load_state_dict(state)
        loss_of(case, copy, worker, iteration).backward()
        own.append(gradients(copy))
    wanted: dict[str, Any] = {}
    for key, number in bucket.items():
        those = [found[key] for found, level in zip(own, levels, strict=True) if level >= number]
        there = [gradient for gradient in those if gradient is not None]
        wanted[key] = sum(there) / len(those) if there else None
    return {key: wanted[key] for key in own[0]}


def against_the_mean(
    case: Case, levels: Any, optimise: Optimise, steps: int
) -> tuple[float, list[Any], dict[str, Any]]:
    """Largest difference of gradients to what is written out; levels of this worker; the state after many steps."""
    rank = dist.get_rank()
    model = PartialBackprop(built(case), cuts=case.cuts, levels=levels, debug=7)
    optimiser, schedule = optimise(model)
    worst, seen = 0.0, []
    for iteration in range(steps):
        state = {key: value.clone() for key, value in model.state_dict().items()}
        loss_of(case, model, rank, iteration).backward()
        if iteration < CHECKED:
            worst = max(worst, difference(gradients(model), written_out(case, state, model, iteration)))
        seen.append(model._rule(iteration)[rank])
        assert all(p.requires_grad == q.requires_grad for p, q in zip(model.parameters(), built(case).parameters()))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
    return worst, seen, dict(model.state_dict())


def trainings(names: Sequence[str], module: str = "partial_networks") -> dict[str, Any]:
    """By name, what the trainings of some cases of a module of tests came to."""
    cases: dict[str, Case] = import_module(module).CASES
    return {
        name: (
            against_ddp(cases[name]),
            against_the_mean(cases[name], "rotation", adamw, LONG),
            against_the_mean(cases[name], "permutation", sgd, CHECKED),
        )
        for name in names
    }


def require_the_same_as_ddp(found: list[dict[str, Any]], name: str) -> None:
    """See in what `trainings` found by rank that full depth equals DDP."""
    for rank in found:
        gradients, parameters, progress = rank[name][0]
        assert gradients <= 1e-6
        assert parameters <= 1e-5 < 1e-3 < progress


def require_the_definition(found: list[dict[str, Any]], name: str) -> None:
    """See in what `trainings` found by rank that partial gradients are means, and ranks hold the same bits."""
    for run in (1, 2):
        states = [rank[name][run][2] for rank in found]
        for own in states:
            assert all(torch.equal(own[key], states[0][key]) for key in states[0])
        for rank in found:
            difference, levels, _ = rank[name][run]
            assert difference <= 1e-6
            assert len(set(levels)) > 1
