"""Rates of an optimiser that depend on how many workers contribute to each bucket.

A bucket's share ``s`` is the part of an iteration's samples that its gradient is a mean of: contributors / workers.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from weakref import WeakSet

import torch
from torch import nn

from jigsaw_opt.arguments import typed
from jigsaw_opt.errors import UsageError, mismatch, out_of_range, unsupported
from jigsaw_opt.executor.partial.module_wrapper import ModuleWrapper
from jigsaw_opt.executor.partial.parts import Description, ModelParts, describe
from jigsaw_opt.executor.partial.workers import Workers

_adapted: WeakSet[torch.optim.Optimizer] = WeakSet()


class AdaptedSteps:
    """Hooks of an optimiser that change the rate of each group for one step, and then put it back.

    `buckets`: bucket of each parameter; other parameters are left alone. `share`: the share of a bucket, by its number,
    in the gradients that are there. `rate_power`: the rate is multiplied by ``s ** rate_power``.
    """

    def __init__(
        self,
        optimiser: torch.optim.Optimizer,
        buckets: Mapping[nn.Parameter, int],
        share: Callable[[int], float],
        rate_power: float,
    ) -> None:
        if not 0 <= rate_power <= 1:
            raise out_of_range("rate_power", f"a power of the share is 0 to 1, not {rate_power}")
        if optimiser in _adapted:
            raise UsageError("the optimiser is adapted already", code="duplicate-name", path="optimizer")
        self._buckets, self._share, self._power = buckets, share, rate_power
        self._changed: list[tuple[dict[str, Any], Any]] = []
        list(self._groups(optimiser))
        optimiser.register_step_pre_hook(self._before)
        optimiser.register_step_post_hook(self._put_back)
        _adapted.add(optimiser)

    def _groups(self, optimiser: torch.optim.Optimizer) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield the groups with their buckets; raise `UsageError` where a group has parameters of several."""
        for at, group in enumerate(optimiser.param_groups):
            own = {self._buckets[p] for p in group["params"] if p in self._buckets}
            if len(own) > 1:
                message = f"group {at} has parameters of buckets {min(own)} to {max(own)}: use parameter_groups()"
                raise mismatch("optimizer", message)
            if own:
                yield group, own.pop()

    def _before(self, optimiser: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if any(given is not None for given in (*args[1:], kwargs.get("closure"))):
            raise unsupported("closure", "an adapted optimiser steps with gradients that are there, without a closure")
        self._put_back()  # a step that failed left its changes
        for group, bucket in self._groups(optimiser):
            self._changed.append((group, group["lr"]))
            # Without a contributor there is no gradient, but one that somebody has not cleared.
            group["lr"] = group["lr"] * (self._share(bucket) or 1.0) ** self._power

    def _put_back(self, *_: object) -> None:
        for group, rate in self._changed:
            group["lr"] = rate
        self._changed.clear()


class StepAdapting(ModuleWrapper, ABC):
    """A wrapped module that tells of its parts, and that says to its workers how they train."""

    _parts: ModelParts | None
    _peers: Workers
    _iteration: int
    _begun: int | None
    """The iteration of the last forward pass that may be trained; None where the next one begins an iteration."""

    @property
    def rank(self) -> int:
        """Place of this worker among all, from 0."""
        return self._peers.rank

    @property
    def workers(self) -> int:
        """Number of workers."""
        return self._peers.count

    @property
    def iteration(self) -> int:
        """Backward passes ended, those under `no_sync` not counted.

        Set it, in all processes, where training goes on from a checkpoint. Another number is as good as new: what is
        known of earlier iterations is forgotten. Where workers have taken local steps since the last average, that is
        an error.
        """
        return self._iteration

    @iteration.setter
    @typed
    def iteration(self, iteration: int) -> None:
        if iteration < 0:
            raise out_of_range("iteration", f"iterations are counted from 0, not {iteration!r}")
        if iteration != self._iteration:
            self._peers.require_common(self._iteration)
            self._begin_anew()
            self._iteration = iteration

    def _begin_anew(self) -> None:
        """Know nothing of earlier iterations, for the next one does not follow from them."""
        self._peers.forget()
        self._begun = None

    def _known_parts(self) -> ModelParts:
        """Return the parts; raise `UsageError` before they are known."""
        if self._parts is None:
            raise UsageError(
                "the parts are known after the first forward pass, or after prepare(inputs)", code="wrong-order"
            )
        return self._parts

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load one of the module, the same in all processes."""
        self._begin_anew()
        return super().load_state_dict(*args, **kwargs)

    def describe(self) -> Description:
        """Return a table of the levels: where each begins, its parameters, their bytes, and its share of the time.

        Raises
        ------
        UsageError
            There has been no forward pass yet, nor a call of `prepare`.
        """
        return describe(self._known_parts())

    @property
    def samples(self) -> int | None:
        """Samples of which this worker's gradient is a mean; None where all workers count alike, which is the default.

        Set it before the forward pass, in all processes: averages then are means over samples. It stays until it is
        set again.
        """
        return self._peers.samples

    @samples.setter
    def samples(self, samples: int | None) -> None:
        if samples is not None and (not isinstance(samples, int) or samples is True or not 1 <= samples < 2**63):
            message = f"a gradient is a mean of a whole number of samples, at least 1 and below 2^63, not {samples!r}"
            raise out_of_range("samples", message)
        self._peers.samples = samples

    def register_comm_hook(self, state: Any, hook: Callable[[Any, Any], Any]) -> None:
        """Have a hook exchange gradients, as that of `DistributedDataParallel` does, such as one that compresses them.

        A worker whose level does not reach a gradient gives zeros, and the hook's mean over all workers is scaled to
        the mean over those that reach it. Processes that have other hooks raise an error.

        Parameters
        ----------
        state
            The first argument of the hook, such as a process group or None.
        hook
            Takes the state and a bucket with the methods of `torch.distributed.GradBucket`, and returns a future of
            the mean over all workers.

        Raises
        ------
        UsageError
            It is no function, or there is a hook already.
        """
        self._peers.exchange_by(state, hook)

    def parameter_groups(self) -> list[dict[str, list[nn.Parameter]]]:
        """Return the parameters in groups for an optimiser, one for each bucket, from the output to the input.

        Returns
        -------
        list of dict
            Groups that have ``params`` alone; a bucket without parameters has none.

        Raises
        ------
        UsageError
            There has been no forward pass yet, nor a call of `prepare`.
        """
        parts = self._known_parts()
        groups = [[p for p, own in parts.buckets.items() if own == b + 1] for b in range(parts.depth)]
        return [{"params": group} for group in groups if group]

    @typed
    def adapt(self, optimizer: torch.optim.Optimizer, rate_power: float = 0.5) -> None:
        """Have the rate of each step of an optimiser depend on the share of the workers that contribute to a bucket.

        For the time of a step, the learning rate of a group whose bucket ``c`` of ``w`` workers reach is multiplied by
        ``(c / w) ** rate_power``. Between steps rates are as they were, so schedules go on as without. Where workers
        have `samples`, the share is that of the samples.

        Parameters
        ----------
        optimizer
            An optimiser of this module, no group of which has parameters of two buckets; see `parameter_groups`.
        rate_power
            0 to 1: 0 keeps rates; 1/2 gives a step by SGD the variance that it has at full depth; 1 keeps the ratio of
            rate to samples, so the noise for an equal way.

        Raises
        ------
        UsageError
            The power is no number from 0 to 1, a group has several buckets, the optimiser is adapted already, or the
            parts are not known yet.
        """
        AdaptedSteps(optimizer, self._known_parts().buckets, self._peers.share, rate_power)
