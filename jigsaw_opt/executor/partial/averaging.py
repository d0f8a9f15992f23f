"""Averages of gradients over contributors, exchanged run by run while the backward pass goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import count, groupby
from typing import Any
from weakref import WeakValueDictionary

import torch
import torch.distributed as dist
from torch import Tensor, nn

from jigsaw_opt.errors import RunFailedError, unsupported, wrong_order
from jigsaw_opt.executor.exchange.buckets import alike, flat_gradients
from jigsaw_opt.executor.exchange.by_bucket import GradientExchange
from jigsaw_opt.executor.exchange.compression import CompressedExchange
from jigsaw_opt.executor.exchange.transfer_stream import TransferStream, transfer_stream
from jigsaw_opt.executor.partial.noise import squared_length
from jigsaw_opt.executor.partial.transfers import send
from jigsaw_opt.problem.costs import contributors

Turn = Callable[[int, bool, bool], AbstractContextManager[None]]
"""Makes the turn of the exchange of a run: from its bucket, and whether it is the bucket's first and last one."""

Factor = Callable[[int, Sequence[int]], float]
"""Returns by what this worker multiplies its gradient of a bucket before the exchange, at the workers' levels."""

RUN_BYTES = 25 * 2**20
"""Most gradient bytes of one exchange, if it has more than one parameter: as in `DistributedDataParallel`."""


@dataclass(frozen=True)
class CommunicationHook:
    """A hook with its state.

    `state`: the first argument of the hook, such as a process group. `hook`: takes state and bucket, and returns a
    future of the mean over all workers.
    """

    state: Any
    hook: Callable[[Any, Any], Any]

    @property
    def name(self) -> str:
        """What processes compare."""
        return str(getattr(self.hook, "__qualname__", type(self.hook).__name__))

    def run(self, bucket: ParameterRun, ranks: Sequence[int], exchange: GradientExchange) -> None:
        """Write the mean over contributors, which have these ranks, into the bucket; other workers give zeros."""
        if isinstance(self.hook, CompressedExchange):
            self.hook.average(bucket.buffer(), bucket.parameters(), bucket.has_gradient(), ranks, exchange.group)
            return
        if dist.get_rank() not in ranks:
            bucket.buffer().zero_()
        found = self.hook(self.state, bucket)
        if isinstance(found, torch._C.Future):
            found = found.wait()
        mean = found[0] if isinstance(found, (list, tuple)) else found
        bucket.buffer().copy_(mean)
        if len(ranks) != len(exchange.ranks):
            bucket.buffer().mul_(len(exchange.ranks) / len(ranks))


class ParameterRun:
    """Parameters of one bucket, type and device, whose gradients are exchanged in one piece.

    A communication hook gets it, so it has the methods of `torch.distributed.GradBucket`.

    `parameters`: about in the order in which their gradients get ready. `number, count`: its place among all runs of a
    backward pass, from 0, and how many there are.
    """

    def __init__(
        self, bucket: int, parameters: Sequence[nn.Parameter], stream: TransferStream, number: int, count: int
    ) -> None:
        self.bucket, self.stream = bucket, stream
        self._parameters, self._number, self._count = list(parameters), number, count
        # Behind the gradients are a mark a parameter, whether anybody has one, and the squared length of all of them,
        # of which the exchange makes the mean over the contributors as well.
        marks = len(self._parameters) + 1
        self.flat, self._views = flat_gradients(self._parameters, marks)
        self._numbers, self._marks = self.flat[:-marks], self.flat[-marks:]
        self.own_square = 0.0

    def index(self) -> int:
        """Return the number of the piece in this backward pass, from 0."""
        return self._number

    def buffer(self) -> Tensor:
        """Return the flat gradients; zeros where this worker has none to give."""
        return self._numbers

    def gradients(self) -> list[Tensor]:
        """Return the gradient of each parameter, within the flat ones."""
        return self._views

    def parameters(self) -> list[nn.Parameter]:
        """Return the parameters."""
        return self._parameters

    def is_last(self) -> bool:
        """Return whether no other piece follows in this backward pass."""
        return self._number + 1 == self._count

    def has_gradient(self) -> list[bool]:
        """Return of each parameter whether a worker has a gradient of it, once that has been exchanged."""
        return [bool(mark) for mark in self._marks[: len(self._parameters)].tolist()]

    def set_buffer(self, buffer: Tensor) -> None:
        """Overwrite the flat gradients."""
        self._numbers.copy_(buffer)

    def fill(self, is_measured: bool) -> None:
        """Write this worker's gradients, and on request their squared length."""
        own = [p.grad for p in self._parameters]
        there = [(view, grad) for view, grad in zip(self._views, own, strict=True) if grad is not None]
        if any(grad.layout is not torch.strided for _, grad in there):
            raise unsupported("module", "sparse gradients cannot be averaged: build embeddings with sparse=False")
        if len(there) < len(own):
            self.flat.zero_()
        if there:
            torch._foreach_copy_([view for view, _ in there], [grad for _, grad in there])
        length = squared_length(self._numbers) if is_measured else 0.0
        self._marks.copy_(torch.tensor([*(grad is not None for grad in own), length]))

    def exchange(self, exchange: GradientExchange, levels: Sequence[int], hook: CommunicationHook | None) -> None:
        """Exchange what is written, with the other workers, or write zeros; in the thread of transfers.

        `hook`: what exchanges gradients in its place, if there is one; marks go by the exchange all the same.
        """
        ranks = sorted(rank for rank, level in zip(exchange.ranks, levels, strict=True) if level >= self.bucket)
        if not ranks:
            self.flat.zero_()
        elif hook is None:
            exchange.run(self.bucket, levels, self.flat)
        else:
            exchange.run(self.bucket, levels, self._marks)
            hook.run(self, ranks, exchange)

    def give_back(self) -> None:
        """Make what was exchanged the gradients; where nobody has a gradient there is none."""
        *marks, own_square = self._marks.tolist()
        self.own_square = own_square.real
        if any(mark != mark for mark in marks):
            raise RunFailedError("the backward pass failed in another process, so gradients are not averaged")
        copied: list[tuple[Tensor, Tensor]] = []
        for parameter, view, mark in zip(self._parameters, self._views, marks, strict=True):
            if not mark:
                parameter.grad = None
                continue
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            copied.append((parameter.grad, view))
        if copied:
            torch._foreach_copy_([grad for grad, _ in copied], [view for _, view in copied])


def runs_of(buckets: Mapping[nn.Parameter, int]) -> list[ParameterRun]:
    """Return the trained parameters in runs, from the output to the input."""
    backwards = [p for p in reversed(list(buckets)) if p.requires_grad]
    backwards.sort(key=buckets.__getitem__)
    streams = {device: transfer_stream(device) for device in {p.device for p in backwards}}
    found: list[tuple[int, list[nn.Parameter], TransferStream]] = []
    for bucket, parameters in groupby(backwards, buckets.__getitem__):
        groups: dict[tuple[torch.dtype, torch.device], list[list[nn.Parameter]]] = {}
        for parameter in parameters:
            own = groups.setdefault((parameter.dtype, parameter.device), [[]])
            if own[-1] and sum(p.nbytes for p in own[-1]) + parameter.nbytes > RUN_BYTES:
                own.append([])
            own[-1].append(parameter)
        found += [(bucket, run, streams[device]) for (_, device), own in groups.items() for run in own]
    return [ParameterRun(*run, number, len(found)) for number, run in enumerate(found)]


_begun: WeakValueDictionary[int, GradientAverage] = WeakValueDictionary()
"""Averages in the order in which they have begun."""
_numbers = count()


@dataclass(eq=False)
class GradientAverage:
    """The exchange in one backward pass; all workers make one at the same time, with the same runs and levels.

    Where a backward pass goes through several models, one that begins later sends after those before it, for which
    gradients arrive late or never may differ between workers.

    `runs`: runs of parameters from the output to the input. `agree`: called first in the thread of transfers; returns
    the ranks that have no batch left, which count as if their level were 0. Raises where the processes do not do the
    same, and nothing is sent. `turn`: what the exchange of each run waits for; None for nothing. `hook`: what exchanges
    gradients in place of the exchange; None for none. `is_measured`: whether the lengths of gradients are exchanged as
    well. `factor`: of this worker's gradients; None for 1.
    """

    runs: Sequence[ParameterRun]
    exchange: GradientExchange
    levels: Sequence[int]
    level: int
    agree: Callable[[], frozenset[int]]
    turn: Turn | None = None
    hook: CommunicationHook | None = None
    is_measured: bool = False
    factor: Factor | None = None

    def __post_init__(self) -> None:
        # Of buckets that its backward pass does not reach, this worker only receives: it waits for no gradient of them.
        self._missing: list[set[Tensor]] = [
            set(run.parameters()) if run.bucket <= self.level else set() for run in self.runs
        ]
        self._run_of: dict[Tensor, int] = {p: at for at, run in enumerate(self.runs) for p in run.parameters()}
        self._agreed: Future[frozenset[int]] | None = None
        self._sent: list[Future[None]] = []
        self._arrived: list[Tensor] = []
        self._has_ended = self._has_failed = False
        self._pass = torch._C._current_graph_task_id()
        _begun[next(_numbers)] = self

    @property
    def ended(self) -> frozenset[int]:
        """Ranks that have no batch left; known once the processes have agreed."""
        assert self._agreed is not None
        return self._agreed.result()

    def arrived(self, parameter: Tensor) -> None:
        """Note that the gradient of `parameter` is complete, and send what may be sent."""
        at = self._run_of.get(parameter)
        if at is not None and self.runs[at].bucket <= self.level:
            if at < len(self._sent):
                raise unsupported(
                    "checkpointing",
                    "a parameter got a second gradient in one backward pass, after the first one was sent; "
                    "with activation checkpointing use use_reentrant=False",
                )
            self._arrived.append(parameter)
            self._missing[at].discard(parameter)
        self._send_in_order()

    def finish(self) -> None:
        """Send what is left, wait for all of it, and write the averages into the gradients."""
        is_taken = any(parameter.grad is None for parameter in self._arrived)
        self._send_in_order(is_over=True)
        assert self._agreed is not None
        self._agreed.result()
        if is_taken:
            message = "a hook took gradients before they were averaged: optimisers step after backward()"
            raise wrong_order("optimiser", message)
        for run, sent in zip(self.runs, self._sent, strict=True):
            sent.result()
            run.give_back()
        self._has_ended = True

    def abandon(self) -> bool:
        """Return whether the backward pass has failed; what is left is sent all the same, for others wait for it."""
        if not self._has_ended:
            for average in list(_begun.values()):
                average._has_failed |= average._pass == self._pass
            self._send_in_order(is_over=True)
        return not self._has_ended

    def _send_in_order(self, is_over: bool = False) -> None:
        """Send what is complete, of this average and of others in this backward pass; if that is over, all is."""
        for average in list(_begun.values()):
            if average._pass != self._pass:
                continue
            if average._agreed is None:
                average._agreed = send(average.agree, average.runs[0].stream)
            runs, sent = average.runs, average._sent
            while len(sent) < len(runs) and (is_over or not average._missing[len(sent)]):
                average._send()
            if len(sent) < len(runs):
                break

    @torch.no_grad()
    def _send(self) -> None:
        at = len(self._sent)
        run = self.runs[at]
        if run.bucket <= self.level:
            # Others learn by it that gradients never come.
            run.flat.fill_(torch.nan) if self._has_failed else run.fill(self.is_measured)
        elif not contributors(self.levels, run.bucket):
            run.flat.zero_()
        self._sent.append(send(partial(self._transfer, at), run.stream))

    def _transfer(self, at: int) -> None:
        """Exchange a run, if what stands before it has gone well; in the thread of transfers."""
        if at:
            self._sent[at - 1].result()
        levels = without(self.levels, self.ended)
        own = self.runs[at].bucket
        is_first = not at or self.runs[at - 1].bucket < own
        is_last = at + 1 == len(self.runs) or self.runs[at + 1].bucket > own
        with nullcontext() if self.turn is None else self.turn(own, is_first, is_last):
            if self.factor is not None and own <= self.level:
                self.runs[at].buffer().mul_(self.factor(own, levels))
            self.runs[at].exchange(self.exchange, levels, self.hook)


def without(levels: Sequence[int], ended: frozenset[int]) -> list[int]:
    """Return levels of workers, 0 of those that have no batch left."""
    return [0 if rank in ended else level for rank, level in enumerate(levels)]


def contributor_share(levels: Sequence[int], samples: Sequence[int], bucket: int) -> float:
    """Return the share of the samples whose workers reach a bucket; a worker without a batch has level 0.

    `levels, samples`: of each worker.
    """
    total = sum(n for n, level in zip(samples, levels, strict=True) if level)
    return sum(n for n, level in zip(samples, levels, strict=True) if level >= bucket) / total


def sample_factor(levels: Sequence[int], samples: Sequence[int], bucket: int, worker: int) -> float:
    """Return by what a contributor multiplies its gradient, so that the mean over contributors is one over samples.

    `levels, samples`: of each worker.
    """
    reached = [n for n, level in zip(samples, levels, strict=True) if level >= bucket]
    return samples[worker] * len(reached) / sum(reached)


@torch.no_grad()
def broadcast(tensors: Iterable[Tensor], group: dist.ProcessGroup | None, source: int = 0) -> None:
    """Overwrite tensors with those of one process of the group, in one message for each type and device.

    `group`: the processes; None for all.
    """
    for own in alike(tensors):
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in own])
        dist.broadcast(flat.view(torch.uint8), group_src=source, group=group)  # Gloo knows not all types
        pieces = torch.split(flat, [tensor.numel() for tensor in own])
        for tensor, piece in zip(own, pieces, strict=True):
            tensor.data.copy_(piece.view(tensor.shape))
