"""Orders of passes by list scheduling: a free device takes a backward pass, else a forward one, else weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from math import ceil
from typing import NamedTuple

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
    return _Scheduling(pipeline, rule).run()


class _Scheduling:
    """A schedule under way; of each stage and kind, micro-batches come in their order.

    `arrived`: for each kind and stage, moments from which the passes may begin. `done`: for each kind and stage, how
    many passes have begun.
    """

    def __init__(self, pipeline: PipelineProblem, rule: ListRule) -> None:
        layout = pipeline.layout
        self.pipeline, self.rule = pipeline, rule
        self.count, self.last = layout.micro_batches, layout.stages - 1
        self.held, self.again, self.sending = pipeline.held, pipeline.again, pipeline.sending
        self.duration = {kind: [pipeline.duration_us(kind, s) for s in range(layout.stages)] for kind in pipeline.kinds}
        self.arrived: dict[Kind, list[list[int]]] = {kind: [[] for _ in self.held] for kind in ("F", "B", "W")}
        self.arrived["F"][0] = [0] * self.count
        self.done: dict[Kind, list[int]] = {kind: [0] * layout.stages for kind in ("F", "B", "W")}
        self.devices = []
        for gpu in range(layout.gpus):
            own = [stage for stage, at in enumerate(layout.gpu_of) if at == gpu]
            room = (
                pipeline.room - sum(pipeline.static[stage] for stage in own) - max(self.again[stage] for stage in own)
            )
            self.devices.append(_Device(own, room))
        # A forward pass leaves room for those of one micro-batch through the later stages of its device.
        self.reserved = [
            sum(self.held[later] for later in self.devices[gpu].stages if later > stage)
            for stage, gpu in enumerate(layout.gpu_of)
        ]

    def run(self) -> tuple[Orders, int] | None:
        events: list[tuple[int, int]] = [(0, gpu) for gpu in range(len(self.devices))]
        end = 0
        while events:
            now, gpu = heappop(events)
            device = self.devices[gpu]
            # The device has begun something else meanwhile; it is looked at again when that ends.
            if device.free_at > now:
                continue
            chosen = self._choose(device, now)
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

    def _choose(self, device: _Device, now: int) -> Pass | None:
        """Return the next pass of a device: backward of the oldest micro-batch, else forward of its last stage."""
        for stage in device.stages:
            # What was computed again is held up to here, and there may be room for it but once.
            if self.again[stage] and self._waits("W", stage, now):
                return Pass("W", self.done["W"][stage], stage)
        kinds: tuple[Kind, ...] = ("F", "B") if self.rule.forward_first else ("B", "F")
        for kind in kinds:
            chosen = self._backward(device, now) if kind == "B" else self._forward(device, now)
            if chosen is not None:
                return chosen
        for stage in device.stages:
            if self._waits("W", stage, now):
                return Pass("W", self.done["W"][stage], stage)
        return None

    def _backward(self, device: _Device, now: int) -> Pass | None:
        """Return the backward pass of the oldest micro-batch, of the last stage."""
        # Of equally old micro-batches, the last stage comes first: the others wait for it. Hence the minus.
        waiting = [(self.done["B"][stage], -stage) for stage in device.stages if self._waits("B", stage, now)]
        if not waiting:
            return None
        number, stage = min(waiting)
        return Pass("B", number, -stage)

    def _forward(self, device: _Device, now: int) -> Pass | None:
        """Return the forward pass of the last stage that has one within its limit and the memory."""
        for stage in reversed(device.stages):
            number = self.done["F"][stage]
            if (
                number - self.done["B"][stage] < self.rule.limits[stage]
                and device.room >= self.held[stage] + self.reserved[stage]
                and self._waits("F", stage, now)
            ):
                return Pass("F", number, stage)
        return None

    def _waits(self, kind: Kind, stage: int, now: int) -> bool:
        number, arrived = self.done[kind][stage], self.arrived[kind][stage]
        return number < len(arrived) and arrived[number] <= now

    def _begun(self, pass_: Pass, device: _Device) -> Iterator[tuple[int, int]]:
        """Count a pass that begins; moments when passes of stages may begin for it."""
        kind, _, stage = pass_
        self.done[kind][stage] += 1
        split = self.pipeline.layout.split
        if kind == "F":
            device.room -= self.held[stage]
            if stage == self.last:
                yield self._arrives("B", stage, device.free_at)
            else:
                yield self._arrives("F", stage + 1, device.free_at + self._sent_us(stage, stage + 1))
            return
        if kind == "B":
            if stage:
                yield self._arrives("B", stage - 1, device.free_at + self._sent_us(stage - 1, stage))
            if split:
                yield self._arrives("W", stage, device.free_at)
        if kind == ("W" if split else "B"):
            # Held up to its end, and what comes next on this device begins no sooner.
            device.room += self.held[stage]

    def _sent_us(self, stage: int, other: int) -> int:
        gpu_of = self.pipeline.layout.gpu_of
        return 0 if gpu_of[stage] == gpu_of[other] else self.sending[stage]

    def _arrives(self, kind: Kind, stage: int, at: int) -> tuple[int, int]:
        self.arrived[kind][stage].append(at)
        return at, stage
