"""The parts of a model between its cuts: which parameters each has, and what it costs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn

from jigsaw_opt.errors import UsageError
from jigsaw_opt.executor.partial.forward_order import ForwardOrder, eager

__all__ = ["ModelParts", "agree", "require_modules", "split"]


@dataclass(frozen=True)
class ModelParts:
    """How a model is cut.

    Parameters
    ----------
    cuts
        Names of modules in the order of the forward pass; level ``d`` begins at the ``d``-th from the output.
    buckets
        Bucket of each parameter, 1 at the output side to ``len(cuts) + 1``, in the order of the forward pass.
        Those that no operation was seen to use belong to the last one, and come first.
    forward_us
        Time of each part in a forward pass, from the input to the output.
    """

    cuts: tuple[str, ...]
    buckets: dict[nn.Parameter, int]
    forward_us: tuple[int, ...]

    @property
    def depth(self) -> int:
        """Number of levels, ``D``."""
        return len(self.cuts) + 1

    def beyond(self, level: int) -> list[nn.Parameter]:
        """Trained parameters that a backward pass to `level` does not reach."""
        return [p for p, bucket in self.buckets.items() if bucket > level and p.requires_grad]

    def require_a_trained_end(self) -> None:
        """Raise `UsageError` if a backward pass to level 1 would have nothing to reach."""
        if not any(bucket == 1 and p.requires_grad for p, bucket in self.buckets.items()):
            where = f"behind the cut {self.cuts[-1]!r}" if self.cuts else "in the model"
            raise UsageError(f"there is no trained parameter {where}, so a backward pass to level 1 would have nothing")


def require_modules(model: nn.Module, cuts: Sequence[str]) -> None:
    """Raise `UsageError` that lists the `cuts` that are no modules of `model`, or stand there twice."""
    known = dict(eager(model).named_modules(remove_duplicate=False))
    wrong = []
    for name in dict.fromkeys(cuts):
        if not isinstance(name, str) or not name or name not in known:
            near = get_close_matches(str(name), known, 1)
            wrong.append(f"{name!r} is no module of the model{f'; is {near[0]!r} meant?' if near else ''}")
        elif list(cuts).count(name) > 1:
            wrong.append(f"{name!r} is named twice")
    if wrong:
        raise UsageError("cuts: " + "; ".join(wrong))


def split(model: nn.Module, order: ForwardOrder, cuts: Sequence[str] | int) -> ModelParts:
    """Cut a model.

    Parameters
    ----------
    model
        The model that was observed.
    order
        A forward pass of it.
    cuts
        Names of modules in any order, or how many to find so that the parts take about equal time.

    Raises
    ------
    UsageError
        A module is never called, or there are too few places, or the model checkpoints activations by a backward pass
        within another one.
    """
    if order.is_reentrant and cuts:
        raise UsageError("checkpointing with use_reentrant=True loses gradients behind a cut: use use_reentrant=False")
    named = _found(model, order, cuts) if isinstance(cuts, int) else _in_order(model, order, cuts)
    moments = [order.calls[name] for name in named]
    depth = len(named) + 1
    parameters = list(eager(model).parameters())
    unused = {p: depth for p in parameters if p not in order.uses}
    buckets = unused | {p: depth - bisect_left(moments, moment) for p, moment in order.uses.items()}
    starts = [0.0, *(order.starts_us[name] for name in named), order.end_us]
    return ModelParts(tuple(named), buckets, tuple(round(end - start) for start, end in pairwise(starts)))


def _in_order(model: nn.Module, order: ForwardOrder, cuts: Sequence[str]) -> list[str]:
    """Names of the cuts as the forward pass meets them; a module with several names is known by its first one."""
    first = {module: name for name, module in eager(model).named_modules()}
    named = {cut: first[eager(model).get_submodule(cut)] for cut in cuts}
    missing = [cut for cut, name in named.items() if name not in order.calls]
    if missing:
        listed = ", ".join(map(repr, missing))
        raise UsageError(f"the forward pass never calls {listed}; a cut is a module that is called, no container")
    return sorted(named.values(), key=order.calls.__getitem__)


def _found(model: nn.Module, order: ForwardOrder, count: int) -> list[str]:
    """Names of the `count` cuts that share the time about evenly, with trained parameters in every part."""
    from jigsaw_opt.instances.profiles import even_bounds

    modules = dict(eager(model).named_modules())
    moments = sorted(moment for p, moment in order.uses.items() if p.requires_grad)
    places: dict[int, list[str]] = {}
    for name, moment in order.calls.items():
        if any(p.requires_grad for p in modules[name].parameters()):
            places.setdefault(bisect_left(moments, moment), []).append(name)
    candidates = [min(places[k], key=lambda name: name.count(".")) for k in sorted(places) if 0 < k < len(moments)]
    if count > len(candidates):
        raise UsageError(f"the forward pass can be cut at {len(candidates)} modules, not at {count}")
    starts = [0.0, *(order.starts_us[name] for name in candidates), order.end_us]
    times = [max(1, round(end - start)) for start, end in pairwise(starts)]
    bounds = even_bounds(times, count + 1)
    return [candidates[bound - 1] for bound in bounds[1:-1]]


def agree(parts: ModelParts, model: nn.Module, group: dist.ProcessGroup | None) -> ModelParts:
    """Return the parts of the first process in every process, for what a pass does may depend on its batch."""
    names = [name for name, _ in eager(model).named_modules()]
    parameters = list(eager(model).parameters())
    place = {p: at for at, p in enumerate(parameters)}
    numbers = [*map(names.index, parts.cuts), *parts.forward_us]
    order = [number for p, bucket in parts.buckets.items() for number in (place[p], bucket)]
    device = parameters[0].device
    told = torch.tensor([*numbers, *order], dtype=torch.int64, device=device)
    dist.broadcast(told, group_src=0, group=group)
    said = told.tolist()
    cuts, forward_us = said[: parts.depth - 1], said[parts.depth - 1 : 2 * parts.depth - 1]
    rest = said[2 * parts.depth - 1 :]
    buckets = {parameters[at]: bucket for at, bucket in zip(rest[::2], rest[1::2], strict=True)}
    return ModelParts(tuple(names[at] for at in cuts), buckets, tuple(forward_us))
