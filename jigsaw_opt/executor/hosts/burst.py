"""A process of a burst: it has the layers that are on its GPU, and its share of their samples."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from math import lcm
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from jigsaw_opt.errors import UsageError
from jigsaw_opt.executor.exchange.by_bucket import GradientExchange
from jigsaw_opt.executor.hosts.host import HostSetting, blamed
from jigsaw_opt.executor.hosts.stages import StagesHost
from jigsaw_opt.planning.burst.schedule import BurstSchedule


def rows_of(rank: int, processes: int, samples: int) -> range:
    """Return the samples of a layer that a process has; maybe none."""
    each = samples // processes
    return range(rank * each, (rank + 1) * each) if rank < processes else range(0)


def reshard(
    held: Tensor | None, samples: int, ways: tuple[int, int], row: Tensor, group: dist.ProcessGroup
) -> Tensor | None:
    """Move samples from the first processes of one number to those of another; all processes of either take part.

    The samples that this process is to have; None where there are none.

    `held`: the samples of this process; None where it has none. `group`: the processes of either number.
    """
    mine, wanted = (rows_of(dist.get_rank(), processes, samples) for processes in ways)
    sent, came = (
        [len(_common(own, rows_of(other, processes, samples))) for other in range(max(ways))]
        for own, processes in ((mine, ways[1]), (wanted, ways[0]))
    )
    result = row.new_empty((len(wanted), *row.shape))
    given = row.new_empty((0, *row.shape)) if held is None else held.contiguous()
    dist.all_to_all_single(result, given, came, sent, group)
    return result if wanted else None


def _common(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))


class BurstHost(StagesHost):
    """The layers of a process; fields as of the class that it extends.

    Every process of a layer has the same share of the batch. Gradients of a layer's parameters are added up over its
    processes, so that they are those of the mean loss of the whole batch.
    """

    def __init__(self, setting: HostSetting, job: int, number: int, exchange: GradientExchange | None) -> None:
        super().__init__(setting, job, number, exchange)
        schedule = self.schedule
        assert isinstance(schedule, BurstSchedule)
        self._gpus, self._groups = schedule.gpus, setting.groups
        self._own = {*schedule.actions_of(self.rank, 0)}

    @classmethod
    def takes(cls, setting: HostSetting, job: int) -> bool:
        """Return whether a job is a burst."""
        return isinstance(setting.schedule_of(job), BurstSchedule)

    def prepare(self, times: int, levels: Sequence[tuple[int, ...]]) -> None:
        """Take steps as the class that it extends does, once it is known what layers hand on."""
        self._rows = self._row_of_each()
        super().prepare(times, levels)

    def run_passes(self) -> list[float]:
        """Run both passes of all layers on the next batch; return the loss of the samples here, if there are any."""
        inputs, targets = self.worker.begin(lcm(*self._gpus))
        samples, rows = len(targets), rows_of(self.rank, self._gpus[0], len(targets))
        held: Tensor | None = inputs[0][rows.start : rows.stop] if rows else None
        self._log.begin()
        came: list[Tensor | None] = []
        went: list[Tensor | None] = []
        for layer, gpus in enumerate(self._gpus):
            if layer:
                with self._timed(f"A{layer}"):
                    held = self._moved(held, samples, (self._gpus[layer - 1], gpus), layer)
            came.append(None if held is None else held.detach().requires_grad_(layer > 0))
            with self._timed(f"F{layer}"):
                held = None if came[-1] is None else self.modules[layer](came[-1])
                if held is not None and layer == len(self._gpus) - 1:
                    own = rows_of(self.rank, gpus, samples)
                    held = self.worker.loss(held, targets[own.start : own.stop])
            went.append(held)
            held = None if held is None else held.detach()
        self._back(came, went, samples)
        return [] if went[-1] is None else [float(went[-1].detach())]

    def _back(self, came: list[Tensor | None], went: list[Tensor | None], samples: int) -> None:
        """Run the backward passes, with the exchange of the gradients of each layer behind it."""
        gradient: Tensor | None = None if went[-1] is None else torch.ones_like(went[-1]) / self._gpus[-1]
        for layer in reversed(range(len(self._gpus))):
            gpus, given, output = self._gpus[layer], came[layer], went[layer]
            with self._timed(f"B{layer}"):
                if output is not None:
                    torch.autograd.backward(output, gradient)
            with self._timed(f"S{layer}"):
                for parameter in self.modules[layer].parameters() if output is not None and gpus > 1 else ():
                    if parameter.grad is not None:
                        dist.all_reduce(parameter.grad, group=self._groups[gpus])
            if layer:
                back = None if given is None else given.grad
                with self._timed(f"G{layer}"):
                    gradient = self._moved(back, samples, (gpus, self._gpus[layer - 1]), layer)

    def _moved(self, held: Tensor | None, samples: int, ways: tuple[int, int], layer: int) -> Tensor | None:
        """Move samples of the input of a layer, or of its gradient, to other processes."""
        if self.rank >= max(ways) or ways[0] == ways[1]:
            return held
        return reshard(held, samples, ways, self._rows[layer], self._groups[max(ways)])

    def _timed(self, name: str) -> AbstractContextManager[None]:
        """Note an operation of the plan, if this process takes part in it."""
        return self._log.action(name) if name in self._own else nullcontext()

    def _row_of_each(self) -> list[Tensor]:
        """Return what a sample of each layer's input is like; the first process, which has all layers, finds out."""
        told: list[Any] = [None]
        inputs, _ = self.worker.begin(lcm(*self._gpus))
        if len(inputs) != 1:
            raise UsageError(f"layers of a burst hand on one tensor; a batch has {len(inputs)}", code="unsupported")
        if self.rank == 0:
            kinds, value = [], inputs[0][: len(inputs[0]) // max(self._gpus)]
            with torch.no_grad(), blamed("rank 0, before the clock started"):
                for layer in range(len(self._gpus)):
                    kinds.append((tuple(value.shape[1:]), value.dtype))
                    value = self.modules[layer](value)
            told = [kinds]
        dist.broadcast_object_list(told, 0, self._groups[max(self._gpus)])
        return [torch.empty(shape, dtype=kind, device=self.device) for shape, kind in told[0]]
