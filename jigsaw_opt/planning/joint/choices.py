"""What may be decided about a pipeline, and one decision of what the bound takes as given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from jigsaw_opt.arguments import require_fields
from jigsaw_opt.errors import InfeasibleError, Problem, UsageError, argument, missing_option
from jigsaw_opt.planning.pipeline.orders import PipelineLayout
from jigsaw_opt.problem.measured.layers import LayerGraph
from jigsaw_opt.problem.workload import LARGEST

FirstStage = Literal["whole", "split"]
"""Whether the first stage has its whole backward pass in `W` where backward passes are split, or both parts."""
StagePlacement = Literal["loop", "v", "any"]
"""Devices of several stages each: in turn again and again, there and back again, or whichever is best."""

Recompute = Literal["none", "all", "auto"]
"""Which stages compute activations again before their backward pass: none, all, or those that it is best for."""


@dataclass(frozen=True, slots=True)
class PipelineChoices:
    """The choices that a plan of a pipeline may make, and the devices.

    `devices`: how many there are; each has at least one stage. `micro_batches`: numbers of micro-batches of a step to
    choose from. `memory`: bytes of a device; None for no limit. `virtual`: numbers of stages a device to choose from.
    `recompute`: which stages may compute their activations again. `first_stage`: how the first stage runs its backward
    pass where that is split; PyTorch has it whole. `bandwidth`: bytes per second between neighbours; None where sending
    takes `latency_us` alone. `latency_us`: part of a transfer that does not depend on its size. `placement`: where the
    stages of a device may be in the model. `batch`: samples of a step, so that a micro-batch has fewer of them the more
    there are; None where each micro-batch is the one that was measured.
    """

    devices: int
    micro_batches: tuple[int, ...]
    memory: int | None = None
    virtual: tuple[int, ...] = (1,)
    recompute: Recompute = "none"
    placement: StagePlacement = "any"
    first_stage: FirstStage = "whole"
    bandwidth: int | None = None
    latency_us: int = 0
    batch: int | None = None

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        require_fields(self)
        wrong = list[Problem]()
        for name, low, high in (
            ("devices", 1, LARGEST),
            ("memory", 1, LARGEST),
            ("bandwidth", 1, None),
            ("latency_us", 0, LARGEST),
            ("batch", 1, LARGEST),
        ):
            value = getattr(self, name)
            if value is not None and not low <= value <= (value if high is None else high):
                path = {"devices": "stages"}.get(name, name)
                told = f"{argument(path)} is at least {low}" + ("" if high is None else f", and at most {high}")
                wrong.append(Problem(path, f"{told}, not {value}", code="out-of-range"))
        for name in ("micro_batches", "virtual"):
            if min(numbers := getattr(self, name), default=0) < 1:
                told = f"numbers of {name} are at least 1, not {', '.join(map(str, numbers)) or 'none'}"
                wrong.append(Problem(name, told, code="out-of-range"))
        if self.batch is None and len(set(self.micro_batches)) > 1:
            told = "a range of micro-batches divides the samples of a step: say how many"
            wrong.append(Problem("batch", f"{told} ({argument('batch')})", code="missing-option"))
        if wrong:
            raise UsageError.of(wrong)


@dataclass(frozen=True, slots=True)
class PipelineConfiguration:
    """A configuration: what is fixed before a model is cut.

    `layout`: devices of the stages, and number of micro-batches. `share`: samples of a micro-batch over those of the
    measured one. `modes`: whether a stage may compute its activations again: False, True, or both.
    """

    layout: PipelineLayout
    share: Fraction
    modes: tuple[bool, ...]


def configurations(choices: PipelineChoices, graph: LayerGraph) -> Iterator[PipelineConfiguration]:
    """Go through all configurations that may be chosen.

    A layout with its number of micro-batches, the share of the profile's samples in one of them, and the modes of
    recomputation.
    """
    if choices.batch is not None and graph.batch is None:
        raise missing_option(
            "profile_batch",
            "the profile does not say of how many samples its micro-batch is: say so "
            "(--profile-batch, batch in Python)",
        )
    most = len(graph.layers) // choices.devices
    if most < min(choices.virtual):
        raise InfeasibleError("the model cannot be cut into so many stages: each has a layer at least")
    numbers = [
        count for count in sorted(set(choices.micro_batches)) if choices.batch is None or choices.batch % count == 0
    ]
    if not numbers:
        raise UsageError(
            f"no number of micro-batches divides the {choices.batch} samples of a step",
            code="contradiction",
            path="micro_batches",
        )
    split = all(layer.weight_us is not None for layer in graph.layers)
    modes = {"none": (False,), "all": (True,), "auto": (False, True)}[choices.recompute]
    for number in numbers:
        share = Fraction(1)
        if choices.batch is not None and graph.batch is not None:
            share = Fraction(choices.batch, number * graph.batch)
        for gpu_of in _placements(choices, most):
            yield PipelineConfiguration(PipelineLayout(gpu_of, number, split), share, modes)


def _placements(choices: PipelineChoices, most: int) -> Iterator[tuple[int, ...]]:
    """Yield devices of the stages.

    `most`: the most stages on each of which there are layers.
    """
    there = tuple(range(choices.devices))
    for count in sorted(number for number in set(choices.virtual) if number <= most):
        loop = there * count
        turning = tuple(gpu for turn in range(count) for gpu in (there[::-1] if turn % 2 else there))
        allowed = {"loop": (loop,), "v": (turning,), "any": (loop, turning)}[choices.placement]
        yield from dict.fromkeys(allowed)
