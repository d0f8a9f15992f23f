"""The parts of a model between its cuts: their parameters, which outputs need gradients, and what levels reach."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from jigsaw_opt.errors import Problem, UsageError, mismatch, out_of_range, unsupported
from jigsaw_opt.executor.partial.forward_order import ForwardOrder, eager, undisturbed_outputs
from jigsaw_opt.executor.partial.outputs import mapped, placed

NEARLY = 1.25
"""How much longer the longest part may get by cuts between repeated blocks alone."""


@dataclass(frozen=True)
class ModelParts:
    """A cut model: its cuts, buckets and costs.

    `cuts`: names of modules in the order of the forward pass; level ``d`` begins at the ``d``-th from the output.
    `buckets`: bucket of each parameter, 1 at the output side to ``len(cuts) + 1``, in the order of the forward pass.
    Those that no operation was seen to use belong to the last one, and come first. `backward_us`: time of each part in
    a backward pass, from the input to the output; zeros where none could be timed. `unused`: parameters that no
    operation was seen to use.
    """

    cuts: tuple[str, ...]
    buckets: dict[nn.Parameter, int]
    backward_us: tuple[int, ...]
    unused: frozenset[nn.Parameter] = frozenset()

    @property
    def depth(self) -> int:
        """Number of levels, ``D``."""
        return len(self.cuts) + 1

    def beyond(self, level: int) -> list[nn.Parameter]:
        """Return trained parameters that a backward pass to `level` does not reach."""
        return [p for p, bucket in self.buckets.items() if bucket > level and p.requires_grad]

    def require_same_parameters(self, model: nn.Module) -> None:
        """Raise `UsageError` if the model has other parameters than when it was cut."""
        if self.buckets.keys() != set(model.parameters()):
            raise mismatch(
                "module",
                "parameters have been replaced or added since the first pass or prepare(): wrap the module anew, and "
                "shard it before",
            )


def are_cuts(cuts: Any) -> bool:
    """Return whether these are names, whatever they are, or a number of cuts."""
    return cuts >= 0 if isinstance(cuts, int) else isinstance(cuts, Collection) and not isinstance(cuts, str)


def require_modules(model: nn.Module, cuts: Sequence[str]) -> None:
    """Refuse cuts that are no modules of a model, or that are named twice."""
    known = dict(eager(model).named_modules(remove_duplicate=False))
    wrong = []
    for name in dict.fromkeys(cuts):
        if not isinstance(name, str) or not name or name not in known:
            near = get_close_matches(str(name), known, 1)
            hint = f"is {near[0]!r} meant?" if near else ""
            wrong.append(Problem("cuts", f"{name!r} is no module of the model", hint, "unknown-name"))
        elif list(cuts).count(name) > 1:
            wrong.append(Problem("cuts", f"{name!r} is named twice", code="duplicate-name"))
    if wrong:
        raise UsageError(*wrong)


def split(model: nn.Module, order: ForwardOrder, cuts: Sequence[str] | int) -> ModelParts:
    """Cut a model.

    The cuts in the order of the forward pass, and the bucket of each trained parameter.

    `cuts`: names of modules in any order, or how many to find so that the parts take about equal time.
    """
    if order.is_reentrant and cuts:
        message = "checkpointing with use_reentrant=True loses gradients behind a cut: use use_reentrant=False"
        raise unsupported("checkpointing", message)
    named = _found(model, order, cuts) if isinstance(cuts, int) else _in_order(model, order, cuts)
    moments = [order.calls[name] for name in named]
    depth = len(named) + 1
    parameters = list(eager(model).parameters())
    unused = {p: depth for p in parameters if p not in order.uses}
    buckets = unused | {p: depth - bisect_left(moments, moment) for p, moment in order.uses.items()}
    return ModelParts(tuple(named), buckets, _backward_us(order, named), frozenset(unused))


def _in_order(model: nn.Module, order: ForwardOrder, cuts: Sequence[str]) -> list[str]:
    """Return the cuts in the order of the forward pass; a module with several names is known by its first one."""
    first = {module: name for name, module in eager(model).named_modules()}
    named = {cut: first[eager(model).get_submodule(cut)] for cut in cuts}
    missing = [cut for cut, name in named.items() if name not in order.calls]
    if missing:
        listed = ", ".join(map(repr, missing))
        message = f"the forward pass never calls {listed}; a cut is a module that is called, no container"
        raise UsageError(message, code="unknown-name", path="cuts")
    if len(set(named.values())) < len(named):
        alike = [cut for cut, name in named.items() if list(named.values()).count(name) > 1]
        raise UsageError(
            f"cuts: {' and '.join(map(repr, alike))} are names of one module", code="duplicate-name", path="cuts"
        )
    return sorted(named.values(), key=order.calls.__getitem__)


def _backward_us(order: ForwardOrder, cuts: Sequence[str]) -> tuple[int, ...]:
    """Return times of the parts between some cuts in a backward pass, from the input to the output."""
    used = [(order.uses[p], us) for p, us in order.gradients_us.items() if p in order.uses]
    ends = [max((us for moment, us in used if moment > order.calls[cut]), default=0.0) for cut in cuts]
    return tuple(round(later - end) for later, end in pairwise([order.end_us, *ends, 0.0]))


def _found(model: nn.Module, order: ForwardOrder, count: int) -> list[str]:
    """Return names of the `count` cuts that share the time about evenly, with trained parameters in every part.

    Modules whose names differ in numbers alone stand at the same place of a repeated block. They are taken, the largest
    such blocks first, where the longest part is at most `NEARLY` times as long as with cuts anywhere.
    """
    modules = dict(eager(model).named_modules())
    moments = sorted(moment for p, moment in order.uses.items() if p.requires_grad)
    places: dict[int, list[str]] = {}
    for name, moment in order.calls.items():
        if any(p.requires_grad for p in modules[name].parameters()):
            places.setdefault(bisect_left(moments, moment), []).append(name)
    within = [places[k] for k in sorted(places) if 0 < k < len(moments)]
    if count > len(within):
        raise out_of_range("cuts", f"the forward pass can be cut at {len(within)} modules, not at {count}")
    if count and not order.end_us:
        raise unsupported("cuts", "no output has a graph, so no backward pass can be timed to find cuts: name them")
    anywhere = _even(order, [min(names, key=lambda name: name.count(".")) for names in within], count)
    alike: dict[str, dict[int, str]] = {}
    for at, names in enumerate(within):
        for name in names:
            alike.setdefault(re.sub(r"\d+", "*", name), {}).setdefault(at, name)
    repeated = {
        pattern: _even(order, list(names.values()), count)
        for pattern, names in alike.items()
        if len(names) >= max(2, count)
    }
    longest = {pattern: max(_backward_us(order, cuts)) for pattern, cuts in repeated.items()}
    limit_us = NEARLY * max(_backward_us(order, anywhere))
    near = [pattern for pattern, us in longest.items() if us <= limit_us]
    return repeated[min(near, key=lambda pattern: (pattern.count("."), longest[pattern]))] if near else anywhere


def _even(order: ForwardOrder, candidates: Sequence[str], count: int) -> list[str]:
    """Return `count` of the `candidates`, which are in the order of the forward pass, that share the time evenly."""
    from jigsaw_opt.instances.profiles import even_bounds

    bounds = even_bounds([max(1, us) for us in _backward_us(order, candidates)], count + 1)
    return [candidates[bound - 1] for bound in bounds[1:-1]]


def split_alike(
    model: nn.Module, order: ForwardOrder, cuts: Sequence[str] | int, group: dist.ProcessGroup | None
) -> ModelParts:
    """Cut a model alike in all processes, for what a pass does may depend on its batch; raises as `split`.

    Cuts, times and buckets are those of the first process. A parameter that its pass did not use is where that of
    another one used it, nearest the input.

    `group`: the processes; None for all.
    """
    own = split(model, order, cuts)
    parameters = list(eager(model).parameters())
    place = {p: at for at, p in enumerate(parameters)}
    used = [(place[p], 0 if p in own.unused else bucket) for p, bucket in own.buckets.items()]
    told: list[Any] = [own.cuts, own.backward_us, used]
    dist.broadcast_object_list(told, group_src=0, group=group, device=parameters[0].device)
    found, backward_us, used = told
    parts = split(model, order, found) if order.calls.keys() >= set(found) else None
    seen = torch.tensor(
        [0 if parts is None or p in parts.unused else parts.buckets[p] for p in parameters], device=parameters[0].device
    )
    dist.all_reduce(seen, dist.ReduceOp.MAX, group)
    elsewhere = seen.tolist()
    buckets = {parameters[at]: bucket or elsewhere[at] for at, bucket in used}
    unused = frozenset(p for p, bucket in buckets.items() if not bucket)
    return ModelParts(found, {p: bucket or own.depth for p, bucket in buckets.items()}, backward_us, unused)


_Places = frozenset[tuple[Any, ...]]


class GradientNeeds:
    """What is known of the outputs of one module; metrics and detached features require no gradient in any pass.

    Outputs at the same places, of inputs that require gradients alike, are taken to be alike.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, _Places] = {}

    def learn(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        """Note which outputs of a whole forward pass require a gradient."""
        self._known[_kind(module, inputs, outputs)] = frozenset(at for at, out in placed(outputs) if out.requires_grad)

    def anchored(self, module: nn.Module, inputs: Any, outputs: Any, hook: Callable[[Tensor], None]) -> Any:
        """Return outputs from which a backward pass can start wherever it can at full depth.

        What requires a gradient in a whole pass alone gets an anchor: a leaf of its own that changes no bit of it.
        """
        numbers = (
            (place, value) for place, value in placed(outputs) if value.is_floating_point() or value.is_complex()
        )
        lacking = {place: value for place, value in numbers if not value.requires_grad}
        if not lacking:
            return outputs
        places = self._places(module, inputs, outputs)
        needing = {id(value) for place, value in lacking.items() if place in places}

        def anchored(value: Tensor) -> Tensor:
            if id(value) not in needing:
                return value
            anchor = torch.full((), -0.0, dtype=value.dtype, device=value.device, requires_grad=True)
            anchor.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
            return value + anchor  # minus zero changes no bit of it

        return mapped(outputs, anchored)

    def _places(self, module: nn.Module, inputs: Any, outputs: Any) -> _Places:
        """Return the places of outputs that require a gradient in a whole forward pass; run it if none was."""
        kind = _kind(module, inputs, outputs)
        if kind not in self._known:
            self.learn(module, inputs, undisturbed_outputs(module, *inputs))
            # A pass that gives other outputs says nothing of these: all of them may require a gradient.
            self._known.setdefault(kind, frozenset(at for at, _ in placed(outputs)))
        return self._known[kind]


def _kind(module: nn.Module, inputs: Any, outputs: Any) -> Hashable:
    return (
        module.training,
        tuple(value.requires_grad for _, value in placed(inputs)),
        tuple(at for at, _ in placed(outputs)),
    )


@dataclass(frozen=True, slots=True)
class LevelReach:
    """The reach of a backward pass to a level.

    `cut`: module at whose first call the level begins; None for full depth. `share`: share of the time of the whole
    backward pass; None where none could be timed, for no output has a graph.
    """

    level: int
    cut: str | None
    parameters: int
    gradient_bytes: int
    share: float | None


@dataclass(frozen=True, slots=True)
class Description:
    """The levels of a model, from the output on; as text it is a table.

    `levels`: what each level reaches, from level 1. `unused`: trained numbers that no first pass used, so that they
    belong to the deepest level alone.
    """

    levels: tuple[LevelReach, ...]
    unused: int = 0

    def __str__(self) -> str:
        rows = [("level", "from", "parameters", "bytes", "share")]
        for own in self.levels:
            share = "?" if own.share is None else f"{own.share:.0%}"
            sizes = f"{own.parameters:,}", f"{own.gradient_bytes:,}"
            rows.append((str(own.level), own.cut or "the input", *sizes, share))
        lines = aligned(rows, left=1)
        if self.unused:
            lines.append(f"the first pass did not use {self.unused:,} of these parameters: they are in the last level")
        return "\n".join(lines)


def aligned(rows: Sequence[Sequence[str]], left: int = -1) -> list[str]:
    """Return the lines of a table; cells stand at the right, those of the column `left` at the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) if at == left else cell.rjust(width) for at, (cell, width) in enumerate(pairs))
        for pairs in (zip(row, widths, strict=True) for row in rows)
    ]


def describe(parts: ModelParts) -> Description:
    """Return what the levels reach."""
    trained = [(bucket, p) for p, bucket in parts.buckets.items() if p.requires_grad]
    total_us = sum(parts.backward_us)
    rows = []
    for level in range(1, parts.depth + 1):
        own = [p for bucket, p in trained if bucket <= level]
        cut = parts.cuts[-level] if level < parts.depth else None
        share = sum(parts.backward_us[-level:]) / total_us if total_us else None
        rows.append(LevelReach(level, cut, sum(p.numel() for p in own), sum(p.nbytes for p in own), share))
    return Description(tuple(rows), sum(p.numel() for p in parts.unused if p.requires_grad))
