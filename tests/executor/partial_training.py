"""What the tests of `PartialBackprop` run in two or three processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from partial_networks import CASES, Case, built, loss_of
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from jigsaw_opt.executor.partial import PartialBackprop

STEPS, CHECKED = 6, 9
Gradients = Mapping[str, Tensor | None]


def sgd(model: nn.Module) -> tuple[torch.optim.Optimizer, Any]:
    optimiser = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    return optimiser, torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)


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


def mean_of(
    model: PartialBackprop, levels: Sequence[int], own: Sequence[Mapping[str, Tensor | None]]
) -> dict[str, Any]:
    """The mean over each bucket's contributors of whole gradients, which are given by worker."""
    assert model._parts is not None
    buckets = {name: model._parts.buckets[parameter] for name, parameter in model.named_parameters()}
    wanted: dict[str, Any] = {}
    for name in own[0]:
        those = [found[name] for found, level in zip(own, levels, strict=True) if level >= buckets[name]]
        there = [gradient for gradient in those if gradient is not None]
        wanted[name] = torch.stack(there).sum(0) / len(those) if there else None
    return wanted


def whole(case: Case, state: dict[str, Tensor], worker: int, batches: Iterable[int]) -> dict[str, Tensor | None]:
    """The sum of a worker's whole gradients over some batches."""
    network = built(case)
    network.load_state_dict(state)
    for batch in batches:
        loss_of(case, network, worker, batch).backward()
    return gradients(network)


def against_the_mean(case: Case) -> tuple[float, list[int], dict[str, Tensor]]:
    """Largest difference of gradients to what is written out; levels of this worker; the state after all steps."""
    rank = dist.get_rank()
    model = PartialBackprop(built(case), cuts=case.cuts, levels="rotation", debug=7)
    optimiser = torch.optim.AdamW(model.parameters(), 1e-3)
    worst, seen = 0.0, []
    for iteration in range(CHECKED):
        state = {key: value.clone() for key, value in model.state_dict().items()}
        loss_of(case, model, rank, iteration).backward()
        levels = model._rule(iteration)
        own = [whole(case, state, worker, [iteration]) for worker in range(model.workers)]
        worst = max(worst, difference(gradients(model), mean_of(model, levels, own)))
        seen.append(levels[rank])
        assert all(p.requires_grad == q.requires_grad for p, q in zip(model.parameters(), built(case).parameters()))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimiser.step()
        optimiser.zero_grad()
    return worst, seen, dict(model.state_dict())


def trainings(names: Sequence[str]) -> dict[str, Any]:
    """By name, what the trainings of some cases came to."""
    return {name: (against_ddp(CASES[name]), against_the_mean(CASES[name])) for name in names}


def require_the_same_as_ddp(found: list[dict[str, Any]], name: str) -> None:
    """See in what `trainings` found by rank that full depth equals DDP."""
    for rank in found:
        gradients, parameters, progress = rank[name][0]
        assert gradients <= 1e-6
        assert parameters <= 1e-5 < 1e-3 < progress


def require_the_definition(found: list[dict[str, Any]], name: str) -> None:
    """See in what `trainings` found by rank that partial gradients are means, and ranks hold the same bits."""
    first = found[0][name][1][2]
    for rank in found:
        difference, levels, state = rank[name][1]
        assert difference <= 1e-6 and len(set(levels)) > 1
        assert all(torch.equal(state[key], first[key]) for key in first)
