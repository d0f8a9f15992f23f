"""Orders of passes by list scheduling: a free device takes a backward pass, else a forward one, else weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from math import ceil
from typing import NamedTuple

from jigsaw_opt.errors import WrongPlanError
from jigsaw_opt.planning.pipeline.orders import Kind, Orders, Pass
from jigsaw_opt.planning.pipeline.stages import PipelineProblem

_MORE = (4, 2, 1, 0)
"""Micro-batches in flight beside those that a stage needs so that the slowest device never waits."""

RULES = 2 * (1 + len(_MORE))
"""How many rules there are for a pipeline."""


class ListRule(NamedTuple):
    """A rule that chooses what a free device takes.

    `limits`: for each stage, micro-batches whose forward pass is done and whose backward pass is not, at most.
    `forward_first`: whether a forward pass within its limit goes before a backward pass, or behind it.
    """

    limits: tuple[int, ...]
    forward_first: bool


def rules_of(pipeline: PipelineProblem) -> list[ListRule]:
    """Return rules with fewer and fewer micro-batches in flight, from all to those that 1F1B would have."""
    layout = pipeline.layout
    trips = [
        pipeline.duration_us("F", stage) + pipeline.duration_us("B", stage) + 2 * pipeline.sending[stage]
        for stage in range(layout.stages)
    ]
    behind = list(accumulate(reversed(trips)))[::-1]
    interval = max(pipeline.work_us) / layout.micro_batches
    # Little's law: with a micro-batch every `interval`, so many are under way in a round trip of this length.
    needed = [ceil(trip / interval) for trip in behind]
    # The first rule has no limit but memory.
    limits = [(layout.micro_batches,) * layout.stages]
    limits += [tuple(min(layout.micro_batches, least + more) for least in needed) for more in _MORE]
    return [ListRule(own, first) for own in limits for first in (True, False)]


class _Device:
    """The state of a device: what it has done, and what it holds."""

    def __init__(self, stages: Sequence[int], room: int) -> None:
        self.stages, self.room = stages, room
        self.free_at = 0
        self.order: list[Pass] = []


def list_schedule(pipeline: PipelineProblem, rule: ListRule) -> tuple[Orders, int] | None:
    """Return orders of passes, and the moment that the last one ends; None where memory does not suffice."""
    return _ByRule(pipeline, rule).run()


def makespan_us(pipeline: PipelineProblem, orders: Orders) -> int:
    """Return the makespan when each pass begins as early as the orders allow, in microseconds.

    `orders`: by GPU, its passes in their order.
    """
    found = _InOrder(pipeline, orders).run()
    if found is None:
        raise WrongPlanError("the orders of the GPUs wait for one another")
    return found[1]


class _Scheduling(ABC):
    """A schedule under way.

    `arrived`: for each kind and stage, by micro-batch, the moment from which the pass may begin.
    """

    def __init__(self, pipeline: PipelineProblem) -> None:
        layout = pipeline.layout
        self.pipeline, self.count, self.last = pipeline, layout.micro_batches, layout.stages - 1
        self.held, self.again, self.sending = pipeline.held, pipeline.again, pipeline.sending
        self.duration = {kind: [pipeline.duration_us(kind, s) for s in range(layout.stages)] for kind in pipeline.kinds}
        self.arrived: dict[Kind, list[dict[int, int]]] = {kind: [{} for _ in self.held] for kind in ("F", "B", "W")}
        self.arrived["F"][0] = dict.fromkeys(range(self.count), 0)
        self.devices = []
        for gpu in range(layout.gpus):
            own = [stage for stage, at in enumerate(layout.gpu_of) if at == gpu]
            room = (
                pipeline.room - sum(pipeline.static[stage] for stage in own) - max(self.again[stage] for stage in own)
            )
            self.devices.append(_Device(own, room))

    @abstractmethod
    def choose(self, gpu: int, now: int) -> Pass | None:
        """Return the next pass of a device; None where it has to wait."""

    def run(self) -> tuple[Orders, int] | None:
        events: list[tuple[int, int]] = [(0, gpu) for gpu in range(len(self.devices))]
        end = 0
        while events:
            now, gpu = heappop(events)
            device = self.devices[gpu]
            # The device has begun something else meanwhile; it is looked at again when that ends.
            if device.free_at > now:
                continue
            chosen = self.choose(gpu, now)
            if chosen is None:
                continue
            device.order.append(chosen)
            device.free_at = now + self.duration[chosen.kind][chosen.stage]
            end = max(end, device.free_at)
            heappush(events, (device.free_at, gpu))
            for at, other in self._begun(chosen, device):
                heappush(events, (at, self.pipeline.layout.gpu_of[other]))
        kinds = len(self.pipeline.kinds)
        if sum(len(device.order) for device in self.devices) < kinds * self.count * (self.last + 1):
            return None
        return [device.order for device in self.devices], end

    def _begun(self, pass_: Pass, device: _Device) -> Iterator[tuple[int, int]]:
        """Yield moments when passes of stages may begin for one that begins."""
        kind, batch, stage = pass_
        split = self.pipeline.layout.split
        if kind == "F":
            device.room -= self.held[stage]
            if stage == self.last:
                yield self._arrives("B", batch, stage, device.free_at)
            else:
                yield self._arrives("F", batch, stage + 1, device.free_at + self._sent_us(stage, stage + 1))
            return
        if kind == "B":
            if stage:
                yield self._arrives("B", batch, stage - 1, device.free_at + self._sent_us(stage - 1, stage))
            if split:
                yield self._arrives("W", batch, stage, device.free_at)
        if kind == ("W" if split else "B"):
            # Held up to its end, and what comes next on this device begins no sooner.
            device.room += self.held[stage]

    def _sent_us(self, stage: int, other: int) -> int:
        gpu_of = self.pipeline.layout.gpu_of
        return 0 if gpu_of[stage] == gpu_of[other] else self.sending[stage]

    def _arrives(self, kind: Kind, batch: int, stage: int, at: int) -> tuple[int, int]:
        self.arrived[kind][stage][batch] = at
        return at, stage


class _InOrder(_Scheduling):
    """Devices take their passes in a given order."""

    def __init__(self, pipeline: PipelineProblem, orders: Orders) -> None:
        super().__init__(pipeline)
        self.orders = orders

    def choose(self, gpu: int, now: int) -> Pass | None:
        """Return the next pass of the order, once it may begin."""
        order, number = self.orders[gpu], len(self.devices[gpu].order)
        if number == len(order):
            return None
        kind, batch, stage = order[number]
        return order[number] if self.arrived[kind][stage].get(batch, now + 1) <= now else None


class _ByRule(_Scheduling):
    """Devices take what a rule chooses; of each stage and kind, micro-batches come in their order.

    `done`: for each kind and stage, how many passes have begun.
    """

    def __init__(self, pipeline: PipelineProblem, rule: ListRule) -> None:
        super().__init__(pipeline)
        self.rule = rule
        self.done: dict[Kind, list[int]] = {kind: [0] * len(self.held) for kind in ("F", "B", "W")}
        # A forward pass leaves room for those of one micro-batch through the later stages of its device.
        self.reserved = [
            sum(self.held[later] for later in self.devices[gpu].stages if later > stage)
            for stage, gpu in enumerate(pipeline.layout.gpu_of)
        ]

    def choose(self, gpu: int, now: int) -> Pass | None:
        """Return the next pass of the stage and kind that the rule chooses."""
        chosen = self._chosen(self.devices[gpu], now)
        if chosen is None:
            return None
        kind, stage = chosen
        self.done[kind][stage] += 1
        return Pass(kind, self.done[kind][stage] - 1, stage)

    def _chosen(self, device: _Device, now: int) -> tuple[Kind, int] | None:
        """Return what a device takes: backward of the oldest micro-batch, else forward of its last stage."""
        for stage in device.stages:
            # What was computed again is held up to here, and there may be room for it but once.
            if self.again[stage] and self._waits("W", stage, now):
                return "W", stage
        kinds: tuple[Kind, ...] = ("F", "B") if self.rule.forward_first else ("B", "F")
        for kind in kinds:
            own = self._backward(device, now) if kind == "B" else self._forward(device, now)
            if own is not None:
                return kind, own
        return next((("W", stage) for stage in device.stages if self._waits("W", stage, now)), None)

    def _backward(self, device: _Device, now: int) -> int | None:
        """Return the stage whose backward pass is of the oldest micro-batch, of these the last."""
        waiting = [(self.done["B"][stage], -stage) for stage in device.stages if self._waits("B", stage, now)]
        # Of equally old micro-batches, the last stage comes first: the others wait for it. Hence the minus.
        return -min(waiting)[1] if waiting else None

    def _forward(self, device: _Device, now: int) -> int | None:
        """Return the last stage that has a forward pass within its limit and the memory."""
        for stage in reversed(device.stages):
            if (
                self.done["F"][stage] - self.done["B"][stage] < self.rule.limits[stage]
                and device.room >= self.held[stage] + self.reserved[stage]
                and self._waits("F", stage, now)
            ):
                return stage
        return None

    def _waits(self, kind: Kind, stage: int, now: int) -> bool:
        number, arrived = self.done[kind][stage], self.arrived[kind][stage]
        return number in arrived and arrived[number] <= now
