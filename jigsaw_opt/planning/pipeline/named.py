"""Orders in which the GPUs of a pipeline take their passes, by the name of a schedule.

The order is that of a schedule in which each pass takes one unit of time and sending none: of a list schedule, or of
the one that a paper states. With the times of real stages it is kept, and each pass begins as early as it may.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from jigsaw_opt.errors import argument, missing_option, out_of_range
from jigsaw_opt.planning.pipeline.costs import PipelineCosts
from jigsaw_opt.planning.pipeline.list_schedule import ListRule, list_schedule
from jigsaw_opt.planning.pipeline.orders import Kind, Orders, Pass, PipelineLayout
from jigsaw_opt.planning.pipeline.stages import PipelineProblem


def _in_unit_time(
    layout: PipelineLayout, ahead: Iterable[int], forward_first: bool, memory: int | None = None
) -> Orders:
    """Return the list schedule of passes of one unit of time.

    `ahead`: for each stage, forward passes whose backward pass is still to come, at most. `memory`: these and backward
    passes whose gradient of the weights is still to come, at most; None for no limit.
    """
    units = (1,) * layout.stages
    costs = PipelineCosts(units, units, units if layout.split else (), activation_bytes=units)
    found = list_schedule(PipelineProblem(costs, layout, memory), ListRule(tuple(ahead), forward_first))
    assert found is not None, "there is room for one micro-batch"
    return found[0]


def _whole_backward(layout: PipelineLayout, ahead: Iterable[int], forward_first: bool) -> Orders:
    """Return the list schedule in which passes for the weights follow at once."""
    orders = _in_unit_time(replace(layout, split=False), ahead, forward_first)
    return [
        [
            each
            for kind, batch, stage in order
            for each in ([Pass(kind, batch, stage)] if kind == "F" else layout.backward(batch, stage))
        ]
        for order in orders
    ]


def gpipe(layout: PipelineLayout) -> Orders:
    """Return all forward passes, then all backward passes in the same order (Huang et al., NeurIPS'19)."""
    return _whole_backward(layout, (layout.micro_batches,) * layout.stages, forward_first=True)


def one_forward_one_backward(layout: PipelineLayout) -> Orders:
    """Return 1F1B: as many forward passes as stages behind, then one backward pass for each (DAPPLE, PipeDream)."""
    return _whole_backward(layout, range(layout.stages, 0, -1), forward_first=False)


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
    return _zero_bubble(layout, range(layout.stages, 0, -1), layout.stages)


def zero_bubble_h2(layout: PipelineLayout) -> Orders:
    """Return ZB-H2: more forward passes before the first backward one leave nearly no gap (Qi et al., ICLR'24)."""
    return _zero_bubble(layout, range(2 * layout.stages - 1, 0, -2), 2 * layout.stages - 1)


def _zero_bubble(layout: PipelineLayout, ahead: Iterable[int], most: int) -> Orders:
    if not layout.split:
        raise missing_option(
            "weight_us",
            "zero-bubble schedules move the part of the backward pass for the gradient of the weights, and these "
            f"costs have no such part: {argument('weight_us')} states it, without {argument('backward', 'combined')}",
        )
    return _in_unit_time(layout, ahead, True, most)


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
