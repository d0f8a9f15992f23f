"""Averages of gradients over contributors, exchanged while the backward pass runs.

All workers take part in one all-reduce a run of parameters; those that do not contribute add zeros. Every worker gets
the same bits, and no process group is needed for each set of contributors. The volume is that of full depth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count, groupby
from typing import Any
from weakref import WeakValueDictionary

import torch
import torch.distributed as dist
from torch import Tensor, nn

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.costs import contributors

__all__ = ["GradientAverage", "ParameterRun", "broadcast", "runs_of"]

RUN_BYTES = 25 * 2**20
"""Most gradient bytes of one all-reduce, if it has more than one parameter: as in `DistributedDataParallel`."""


class ParameterRun:
    """Parameters of one bucket, type and device, whose gradients are exchanged in one piece.

    Parameters
    ----------
    bucket
        1 at the output side.
    parameters
        About in the order in which their gradients get ready.
    """

    def __init__(self, bucket: int, parameters: Sequence[nn.Parameter]) -> None:
        self.bucket, self.parameters = bucket, tuple(parameters)
        sizes = [p.numel() for p in parameters]
        # A mark a parameter follows the gradients: whether anybody has one. The last mark is for this worker's share.
        marks = len(sizes) + 1
        self.flat = torch.zeros(sum(sizes) + marks, dtype=parameters[0].dtype, device=parameters[0].device)
        *pieces, self._marks = torch.split(self.flat, [*sizes, marks])
        self._views = [piece.view(p.shape) for piece, p in zip(pieces, parameters, strict=True)]

    def fill(self, divisor: int) -> None:
        """Write a share of this worker's gradients, that is divided by `divisor`."""
        own = [p.grad for p in self.parameters]
        there = [(view, grad) for view, grad in zip(self._views, own, strict=True) if grad is not None]
        if any(grad.layout is not torch.strided for _, grad in there):
            raise UsageError("sparse gradients cannot be averaged: build embeddings with sparse=False")
        if len(there) < len(own):
            self.flat.zero_()
        if there:
            torch._foreach_copy_([view for view, _ in there], [grad for _, grad in there])
        self._marks.copy_(torch.tensor([*(grad is not None for grad in own), True]))
        self.flat.div_(divisor)

    def clear(self) -> None:
        """Write zeros, the share of a worker that does not contribute."""
        self.flat.zero_()

    def give_back(self, levels: Sequence[int]) -> None:
        """Make the sum of all shares the gradients; where nobody has a gradient there is none.

        Raises
        ------
        UsageError
            The shares do not add up, for some process has other levels than `levels`.
        """
        *marks, share = self._marks.tolist()
        whole = 1 if contributors(levels, self.bucket) else 0
        if abs(share - whole) > len(levels) * torch.finfo(self.flat.dtype).eps:
            raise UsageError(
                f"the processes have other levels than these: {tuple(levels)}; "
                "a function of levels gives the same in all of them, and their `iteration` is the same"
            )
        copied: list[tuple[Tensor, Tensor]] = []
        for parameter, view, mark in zip(self.parameters, self._views, marks, strict=True):
            if not mark:
                parameter.grad = None
                continue
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            copied.append((parameter.grad, view))
        if copied:
            torch._foreach_copy_([grad for grad, _ in copied], [view for _, view in copied])


def runs_of(buckets: Mapping[nn.Parameter, int]) -> list[ParameterRun]:
    """Return the trained parameters in runs, from the output to the input.

    Parameters
    ----------
    buckets
        Bucket of each parameter, in the order of the forward pass.
    """
    backwards = [p for p in reversed(list(buckets)) if p.requires_grad]
    backwards.sort(key=buckets.__getitem__)
    runs = []
    for bucket, parameters in groupby(backwards, buckets.__getitem__):
        alike: dict[tuple[torch.dtype, torch.device], list[list[nn.Parameter]]] = {}
        for parameter in parameters:
            own = alike.setdefault((parameter.dtype, parameter.device), [[]])
            if own[-1] and sum(p.nbytes for p in own[-1]) + parameter.nbytes > RUN_BYTES:
                own.append([])
            own[-1].append(parameter)
        runs += [ParameterRun(bucket, run) for own in alike.values() for run in own]
    return runs


_begun: WeakValueDictionary[int, GradientAverage] = WeakValueDictionary()
"""Averages in the order in which they have begun."""
_numbers = count()


class GradientAverage:
    """The exchange in one backward pass; all workers make one at the same time, with the same runs and levels.

    Where a backward pass goes through several models, one that begins later sends after those before it, for which
    gradients arrive late or never may differ between workers.

    Parameters
    ----------
    runs
        From the output to the input.
    levels
        Of all workers.
    rank
        Of this one.
    send
        Begins the exchange of a run that is filled, and returns what can be waited for.
    """

    def __init__(
        self, runs: Sequence[ParameterRun], levels: Sequence[int], rank: int, send: Callable[[ParameterRun], Any]
    ) -> None:
        self._runs, self._levels, self._level, self._begin = runs, levels, levels[rank], send
        self._missing: list[set[Tensor]] = [set(run.parameters) if run.bucket <= self._level else set() for run in runs]
        self._run_of: dict[Tensor, int] = {p: at for at, run in enumerate(runs) for p in run.parameters}
        self._works: list[Any] = []
        self._arrived: list[Tensor] = []
        self.has_ended = False
        self._pass = torch._C._current_graph_task_id()
        _begun[next(_numbers)] = self

    def arrived(self, parameter: Tensor) -> None:
        """Note that the gradient of `parameter` is complete, and send what may be sent.

        Raises
        ------
        UsageError
            It had been complete before, so that a part of it has been sent.
        """
        at = self._run_of.get(parameter)
        if at is None or self._runs[at].bucket > self._level:
            return
        if at < len(self._works):
            raise UsageError(
                "a parameter got a second gradient in one backward pass, after the first one was sent; "
                "with activation checkpointing use use_reentrant=False"
            )
        self._arrived.append(parameter)
        self._missing[at].discard(parameter)
        self._send_in_order()

    def finish(self) -> None:
        """Send what is left, wait for all of it, and write the averages into the gradients.

        Raises
        ------
        UsageError
            Gradients were taken before they were averaged, or the processes have levels that differ.
        """
        if any(parameter.grad is None for parameter in self._arrived):
            raise UsageError("a hook took gradients before they were averaged: optimisers step after backward()")
        self._send_in_order(is_over=True)
        for run, work in zip(self._runs, self._works, strict=True):
            work.wait()
            run.give_back(self._levels)
        self.has_ended = True

    def _send_in_order(self, is_over: bool = False) -> None:
        """Send what is complete, of this average and of others in this backward pass; if that is over, all is."""
        for average in list(_begun.values()):
            if average._pass != self._pass:
                continue
            runs, works = average._runs, average._works
            while len(works) < len(runs) and (is_over or not average._missing[len(works)]):
                average._send()
            if len(works) < len(runs):
                break

    @torch.no_grad()
    def _send(self) -> None:
        run = self._runs[len(self._works)]
        if run.bucket <= self._level:
            run.fill(contributors(self._levels, run.bucket))
        else:
            run.clear()
        self._works.append(self._begin(run))


@torch.no_grad()
def broadcast(tensors: Iterable[Tensor], group: dist.ProcessGroup | None) -> None:
    """Overwrite tensors with those of the group's first process, in one message for each type and device."""
    alike: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for tensor in tensors:
        alike.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    for own in alike.values():
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in own])
        dist.broadcast(flat.view(torch.uint8), group_src=0, group=group)  # Gloo knows not all types
        pieces = torch.split(flat, [tensor.numel() for tensor in own])
        for tensor, piece in zip(own, pieces, strict=True):
            tensor.data.copy_(piece.view(tensor.shape))
