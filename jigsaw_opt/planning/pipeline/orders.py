"""Orders in which the GPUs of a pipeline take their passes, by the name of a schedule.

The order is that of a schedule in which each pass takes one unit of time and sending none. With the times of real
stages it is kept, and each pass begins as early as it may.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, product
from typing import Literal, NamedTuple

from jigsaw_opt.errors import argument, missing_option, out_of_range

Kind = Literal["F", "B", "W"]


class Pass(NamedTuple):
    """A pass of one micro-batch through one stage.

    ``F`` is the forward pass; ``B`` the backward pass, or its part for the gradient of the input where ``W`` is the one
    for the gradient of the weights.
    """

    kind: Kind
    micro_batch: int
    stage: int

    @property
    def name(self) -> str:
        """Name of its block, as ``F3.0``."""
        return f"{self.kind}{self.micro_batch}.{self.stage}"


Orders = list[list[Pass]]
"""By GPU, its passes."""


@dataclass(frozen=True, slots=True)
class PipelineLayout:
    """The GPU of each stage, and the number of micro-batches that pass through them.

    `micro_batches`: how many there are in an iteration. `split`: whether the gradient of the weights has a pass of its
    own.
    """

    gpu_of: tuple[int, ...]
    micro_batches: int
    split: bool

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.gpu_of)

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return max(self.gpu_of) + 1

    @property
    def chunks(self) -> int:
        """Stages of each GPU."""
        return self.stages // self.gpus

    def passes(self) -> Iterator[Pass]:
        """Yield all passes of an iteration, by micro-batch and stage."""
        for batch, stage in product(range(self.micro_batches), range(self.stages)):
            yield Pass("F", batch, stage)
            yield from self.backward(batch, stage)

    def backward(self, micro_batch: int, stage: int) -> list[Pass]:
        """Return the backward pass, followed at once by the pass for the weights where that is split off."""
        first = Pass("B", micro_batch, stage)
        return [first, Pass("W", micro_batch, stage)] if self.split else [first]


def gpipe(layout: PipelineLayout) -> Orders:
    """Return all forward passes, then all backward passes in the same order (Huang et al., NeurIPS'19)."""
    batches = range(layout.micro_batches)
    return [
        [Pass("F", batch, stage) for batch in batches]
        + list(chain.from_iterable(layout.backward(batch, stage) for batch in batches))
        for stage in range(layout.stages)
    ]


def one_forward_one_backward(layout: PipelineLayout) -> Orders:
    """Return 1F1B: as many forward passes as stages behind, then one backward pass for each (DAPPLE, PipeDream)."""
    orders: Orders = []
    for stage in range(layout.stages):
        # The first gradient comes back to a stage when its micro-batch has been through all stages behind it. Until
        # then the stage makes one forward pass for each of them.
        ahead = min(layout.micro_batches, layout.stages - 1 - stage)
        order = [Pass("F", batch, stage) for batch in range(ahead)]
        for batch in range(layout.micro_batches):
            if ahead + batch < layout.micro_batches:
                order.append(Pass("F", ahead + batch, stage))
            order += layout.backward(batch, stage)
        orders.append(order)
    return orders


def interleaved(layout: PipelineLayout) -> Orders:
    """Return interleaved 1F1B: each GPU has several chunks of the model (Narayanan et al., SC'21, section 2.2.2)."""
    gpus, chunks, batches = layout.gpus, layout.chunks, layout.micro_batches
    if batches % gpus:
        raise out_of_range(
            "micro_batches", f"interleaved takes a multiple of {gpus} micro-batches, one for each GPU, not {batches}"
        )
    total = batches * chunks

    def at(number: int, backward: bool) -> tuple[int, int]:
        """Return micro-batch and chunk of a GPU's pass number `number`: groups of a micro-batch a GPU, by chunk."""
        group, within = divmod(number, gpus * chunks)
        chunk, batch = divmod(within, gpus)
        return group * gpus + batch, chunks - 1 - chunk if backward else chunk

    orders: Orders = []
    for gpu in range(gpus):
        forward = [Pass("F", batch, chunk * gpus + gpu) for batch, chunk in (at(k, False) for k in range(total))]
        backward = [layout.backward(batch, chunk * gpus + gpu) for batch, chunk in (at(k, True) for k in range(total))]
        # Warm-up passes as in Megatron-LM: all chunks but the last of the first group of micro-batches, and two for
        # each GPU behind, for the way there and back.
        ahead = min(total, 2 * (gpus - 1 - gpu) + (chunks - 1) * gpus)
        order = forward[:ahead]
        for number, passes in enumerate(backward):
            order += forward[ahead + number : ahead + number + 1] + passes
        orders.append(order)
    return orders


def zero_bubble_h1(layout: PipelineLayout) -> Orders:
    """Return ZB-H1: gradients of weights fill the gaps, with the activations of 1F1B (Qi et al., ICLR'24)."""
    return _zero_bubble(layout, [layout.stages - stage for stage in range(layout.stages)], layout.stages)


def zero_bubble_h2(layout: PipelineLayout) -> Orders:
    """Return ZB-H2: more forward passes before the first backward one leave nearly no gap (Qi et al., ICLR'24)."""
    ahead = [2 * (layout.stages - stage) - 1 for stage in range(layout.stages)]
    return _zero_bubble(layout, ahead, 2 * layout.stages - 1)


def _zero_bubble(layout: PipelineLayout, ahead: list[int], most: int) -> Orders:
    """Return orders in unit time: each GPU takes a forward pass within its limits, else a backward one, else weights.

    `ahead`: for each stage, forward passes whose backward pass is still to come, at most. `most`: these and backward
    passes whose gradient of the weights is still to come, at most.
    """
    if not layout.split:
        raise missing_option(
            "weight_us",
            "zero-bubble schedules move the part of the backward pass for the gradient of the weights, and these "
            f"costs have no such part: {argument('weight_us')} states it, without {argument('backward', 'combined')}",
        )
    stages, batches = layout.stages, layout.micro_batches
    orders: Orders = [[] for _ in range(stages)]
    # Passes done so far, by stage. Micro-batches keep their order, so that a count says which one is next.
    forward, backward, weights = [0] * stages, [0] * stages, [0] * stages
    while any(count < batches for count in weights):
        # What others have done before this unit of time.
        # The first stage has all inputs from the beginning; the last one needs no gradient but its own.
        came, returned, own = [batches, *forward[:-1]], [*backward[1:], batches], list(forward)
        for stage, order in enumerate(orders):
            if (
                forward[stage] < came[stage]
                and forward[stage] - backward[stage] < ahead[stage]
                and forward[stage] - weights[stage] < most
            ):
                order.append(Pass("F", forward[stage], stage))
                forward[stage] += 1
            elif backward[stage] < min(returned[stage], own[stage]):
                order.append(Pass("B", backward[stage], stage))
                backward[stage] += 1
            elif weights[stage] < backward[stage]:
                order.append(Pass("W", weights[stage], stage))
                weights[stage] += 1
    return orders


def v_half(layout: PipelineLayout) -> Orders:
    """Return V-Half: two chunks a GPU, the second on the way back, and half of the activations of 1F1B.

    Each micro-batch repeats the same building block every six units of time (Qi et al., NeurIPS'24, "Pipeline
    parallelism with controllable memory", figure 4). Passes for the weights fill what is left.
    """
    gpus, batches = layout.gpus, layout.micro_batches
    # With an even number of GPUs, the second and the fourth pass below would otherwise fall into the same unit of the
    # six.
    shift = 3 if gpus % 2 == 0 else 0
    orders: Orders = []
    for gpu in range(gpus):
        first, second = gpu, 2 * gpus - 1 - gpu
        begins: list[tuple[int, Kind, int]] = [
            (2 * gpu, "F", first),
            (3 * gpus - gpu - 2, "F", second),
            (3 * gpus + shift + 2 * gpu - 1, "B", second),
            (6 * gpus + shift - gpu - 2, "B", first),
        ]
        at = {begin + 6 * batch: Pass(kind, batch, stage) for begin, kind, stage in begins for batch in range(batches)}
        orders.append(_filled(at, layout.split))
    return orders


def _filled(at: Mapping[int, Pass], split: bool) -> list[Pass]:
    """Return passes by time, with those for the weights as soon as there is a free unit."""
    order: list[Pass] = []
    waiting: deque[Pass] = deque()
    # Passes of successive micro-batches are six units apart and never collide, so that each unit has at most one.
    for time in range(max(at) + 1):
        pass_ = at.get(time)
        if pass_ is not None:
            order.append(pass_)
            if pass_.kind == "B" and split:
                waiting.append(Pass("W", pass_.micro_batch, pass_.stage))
        elif waiting:
            order.append(waiting.popleft())
    return [*order, *waiting]


ORDERS: Mapping[str, Callable[[PipelineLayout], Orders]] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "interleaved": interleaved,
    "zb-h1": zero_bubble_h1,
    "zb-h2": zero_bubble_h2,
    "v-half": v_half,
}
"""By name of a schedule, what makes its orders."""
