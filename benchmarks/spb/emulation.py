"""A job whose workers take turns on one replica in one process, with the arithmetic of blocks and exchange.

After each exchange all workers have the same gradients, so their parameters and optimisers stay equal and one
replica stands for all: what many workers would learn can be found with one, and a gradient of each worker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from jigsaw_opt.executor.exchange.buckets import GradientBuckets
from jigsaw_opt.executor.exchange.by_bucket import Averaging
from jigsaw_opt.executor.exchange.compression import BLOCK, CompressedExchange, EightBit, TopK
from jigsaw_opt.executor.exchange.local_steps import contributor_mean
from jigsaw_opt.executor.models.building import SegmentedModel
from jigsaw_opt.executor.models.zoo.network import Batch
from jigsaw_opt.executor.partial.averaging import contributor_share
from jigsaw_opt.executor.partial.steps import AdaptedSteps


class Emulation:
    """The workers of one job; sums are rounded in another order than in an exchange, nothing else differs.

    Running statistics of batch normalisation, which no gradient depends on, see the batches of all workers, while
    in separate processes each worker keeps its own. `average_every` stands for the option of `PartialBackprop`.
    """

    def __init__(
        self,
        model: SegmentedModel,
        optimiser: torch.optim.Optimizer,
        averaging: Averaging = Averaging.AVG_W_COUNT,
        hook: CompressedExchange | None = None,
        average_every: int = 1,
    ) -> None:
        if average_every > 1 and (hook is not None or averaging is Averaging.AVG):
            raise ValueError("local steps go with neither hooks nor means over all workers")
        self.model, self.optimiser, self.averaging = model, optimiser, averaging
        self.buckets = GradientBuckets(model)
        self._levels: Sequence[int] = ()
        self._samples: Sequence[int] = ()
        self._hook = None if hook is None else EmulatedHook(hook)
        self._local = LocalWorkers(model, optimiser, average_every) if average_every > 1 else None

    def adapt(self, rate_power: float) -> None:
        """Have the optimiser's steps depend on contributors, as `PartialBackprop.adapt`; a group has one bucket."""
        of = {p: bucket for bucket, own in enumerate(self.model.buckets, 1) for p in own}
        AdaptedSteps(self.optimiser, of, self._share, rate_power)

    def _share(self, bucket: int) -> float:
        return contributor_share(self._levels, self._samples, bucket)

    def iterate(self, levels: Sequence[int], batches: Sequence[Batch], samples: Sequence[int] | None = None) -> Tensor:
        """Return each worker's loss, ``(workers,)``, after one iteration of all and the optimiser's step.

        What nobody reaches has no gradient, so the optimiser leaves it as it is.

        `samples`: of which the gradient of each worker is a mean; None where they count alike.
        """
        assert samples is None or self._local is None, "local steps count no samples"
        self._levels, self._samples = levels, samples or [1] * len(levels)
        if self._local is not None:
            return self._local_steps(self._local, levels, batches)
        losses, parts = self._backpropagated(batches)
        for bucket, own in parts.items():
            mean = reduce(Tensor.add_, own.values()) if self._hook is None else self._hook.total(bucket, own)
            parameters = self.model.buckets[bucket - 1][::-1]
            for parameter, piece in zip(parameters, mean.split([p.numel() for p in parameters]), strict=True):
                _gradient(parameter).copy_(piece.view_as(parameter))
        self._step(max(levels))
        return torch.stack(losses)

    def _step(self, level: int) -> None:
        unreached = {p: p.grad for p in self.model.beyond(level)}
        for parameter in unreached:
            parameter.grad = None
        self.optimiser.step()
        for parameter, gradient in unreached.items():
            parameter.grad = gradient

    def _backpropagated(self, batches: Sequence[Batch]) -> tuple[list[Tensor], dict[int, dict[int, Tensor]]]:
        """Return losses, and by bucket and contributor the part of the mean gradient, from the output to the input."""
        losses: list[Tensor] = []
        parts: defaultdict[int, dict[int, Tensor]] = defaultdict(dict)
        for worker, (level, batch) in enumerate(zip(self._levels, batches, strict=True)):
            self.buckets.begin(self.model.depth, _nobody)
            losses.append(self.model.backpropagate(batch, level))
            for bucket, parameters in enumerate(self.model.buckets[:level], 1):
                if parameters:
                    weight = self._samples[worker] / self._divisor(bucket)
                    parts[bucket][worker] = torch.cat([_gradient(p).flatten() for p in parameters[::-1]]).mul_(weight)
        return losses, parts

    def _divisor(self, bucket: int) -> int:
        """Return the number of samples of the contributors, or of all workers."""
        own, is_of_all = zip(self._samples, self._levels, strict=True), self.averaging is Averaging.AVG
        return sum(n for n, level in own if is_of_all or level >= bucket)

    def _local_steps(self, local: LocalWorkers, levels: Sequence[int], batches: Sequence[Batch]) -> Tensor:
        losses = []
        for worker, (level, batch) in enumerate(zip(levels, batches, strict=True)):
            local.enter(worker)
            self.buckets.begin(self.model.depth, _nobody)
            losses.append(self.model.backpropagate(batch, level))
            self._step(level)
            local.leave(worker)
        local.note(levels)
        return torch.stack(losses)

    def average_parameters(self) -> None:
        """Give all workers the same parameters, as `PartialBackprop.average_parameters` does."""
        if self._local is not None:
            self._local.average()


class EmulatedHook:
    """What a hook does to the gradients of all workers, with what each has held back."""

    def __init__(self, hook: CompressedExchange) -> None:
        self._hook = hook
        self._held: dict[tuple[int, int], Tensor] = {}

    def total(self, bucket: int, parts: Mapping[int, Tensor]) -> Tensor:
        """Return the sum of what the contributors send of their parts of a mean; they hold back the rest."""
        rests = {worker: part + self._held.get((worker, bucket), 0) for worker, part in parts.items()}
        if isinstance(self._hook, TopK):
            own = [*rests.values()]
            found = self._hook._total([self._hook._message(rest, rest) for rest in own], own[0])
        else:
            found = _eight_bit_total(rests)
        if bool(found.isfinite().all()):
            self._held |= {(worker, bucket): rest for worker, rest in rests.items()}
        return found


def _eight_bit_total(rests: dict[int, Tensor]) -> Tensor:
    """Return the sum as `EightBit` makes it, where each contributor adds up one piece, and leave what is lost."""
    size = next(iter(rests.values())).numel()
    padded = {k: nn.functional.pad(rest, (0, -size % BLOCK)).view(-1, BLOCK) for k, rest in rests.items()}
    pieces = [own.tensor_split(len(rests)) for own in padded.values()]
    sums = []
    for owner, piece in enumerate(zip(*pieces, strict=True)):
        for own in piece[:owner] + piece[owner + 1 :]:
            piece[owner].add_(EightBit._numbers(EightBit._message(own), own.dtype))
        sums.append(EightBit._numbers(EightBit._message(piece[owner]), piece[owner].dtype))
    rests |= {worker: own.view(-1)[:size] for worker, own in padded.items()}
    return torch.cat(sums).view(-1)[:size]


class LocalWorkers:
    """Workers that train on their own, with parameters and state of the optimiser of their own, between averages."""

    def __init__(self, model: SegmentedModel, optimiser: torch.optim.Optimizer, every: int) -> None:
        self._parameters = {p: bucket for bucket, own in enumerate(model.buckets, 1) for p in own}
        self._optimiser, self._every, self._iteration = optimiser, every, 0
        self._states: defaultdict[int, Any] = defaultdict(lambda: defaultdict(dict))
        self._own: dict[int, list[Tensor]] = {}
        self._begin()

    def _begin(self) -> None:
        self._levels: list[Sequence[int]] = []
        self._own.clear()
        self._common = [p.detach().clone() for p in self._parameters]

    @torch.no_grad()
    def enter(self, worker: int) -> None:
        """Give model and optimiser the parameters and the state of a worker."""
        for parameter, own in zip(self._parameters, self._own.get(worker, self._common), strict=True):
            parameter.copy_(own)
        self._optimiser.state = self._states[worker]

    def leave(self, worker: int) -> None:
        """Keep the parameters of a worker."""
        self._own[worker] = [p.detach().clone() for p in self._parameters]

    def note(self, levels: Sequence[int]) -> None:
        """Note the levels of an iteration that has ended, and average where that is due."""
        self._levels.append(levels)
        self._iteration += 1
        if self._iteration % self._every == 0:
            self.average()

    @torch.no_grad()
    def average(self) -> None:
        """Average the changes of parameters by bucket."""
        for at, (parameter, bucket) in enumerate(self._parameters.items() if self._own else ()):
            changes = [own[at] - self._common[at] for own in self._own.values()]
            divisor = contributor_mean(self._levels, bucket) or len(changes)
            parameter.copy_(self._common[at] + torch.stack(changes).sum(0) / divisor)
        self._begin()


def _gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def _nobody(_: int) -> None:
    """Take an announcement; gradients of all workers add up in the same buffers, so nothing is sent."""
