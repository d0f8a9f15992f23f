"""Costs of a pipeline from a partition, and stages of PipeDream's steady state from either."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from jigsaw_opt.errors import argument, unsupported
from jigsaw_opt.planning.partition.result import Partition
from jigsaw_opt.planning.pipeline.asynchronous import AsyncStage
from jigsaw_opt.planning.pipeline.stages import PipelineCosts


def costs_of(partition: Partition) -> PipelineCosts:
    """Return costs of a pipeline with a GPU a stage; weights and state are always held, activations until backward."""
    stages = partition.stages
    if any(stage.replicas > 1 for stage in stages):
        raise unsupported(
            "source",
            f"a stage of the partition has several copies; only {argument('schedule', 'async')} takes such ones, and "
            "partitions without replication have none",
        )
    weights = [stage.weight_us for stage in stages if stage.weight_us is not None]
    parts = tuple(weights) if len(weights) == len(stages) else ()
    again = [stage.recompute for stage in stages]
    sent = [0, *(stage.output_bytes for stage in stages[:-1])]
    given = [received + (stage.input_bytes or 0) for stage, received in zip(stages, sent, strict=True)]
    return PipelineCosts(
        tuple(stage.forward_us for stage in stages),
        tuple(
            # A stage that recomputes repeats its forward pass when the backward pass begins, and until then holds its
            # input alone.
            stage.backward_us - part + stage.forward_us * stage.recompute
            for stage, part in zip(stages, parts or [0] * len(stages), strict=True)
        ),
        parts,
        tuple(_transfer_us(partition, number) for number in range(len(stages) - 1)),
        tuple(stage.output_bytes for stage in stages[:-1]),
        tuple(stage.parameter_bytes + stage.state_bytes for stage in stages),
        tuple(
            received if stage.recompute else stage.activation_bytes
            for stage, received in zip(stages, given, strict=True)
        ),
        recomputed_bytes=tuple(max(1, stage.activation_bytes) * stage.recompute for stage in stages)
        if any(again)
        else (),
    )


def async_stages(partition: Partition) -> list[AsyncStage]:
    """Return stages of PipeDream's steady state: a minibatch takes each copy as long as the partition says.

    What the partition adds to the compute, such as exchanges of gradients on any level, lengthens the backward pass.
    """
    found = []
    for number, stage in enumerate(partition.stages):
        # The time is of the stage with all copies, which take turns. A nanosecond is taken off before rounding up, so
        # that an error of floating point adds no microsecond. Both passes take at least one.
        time_s = max([stage.time_s, *(each / copies for each, copies in _outer(partition, number))])
        whole = max(ceil(time_s * stage.replicas * 1e6 - 1e-3), stage.forward_us + stage.backward_us, 2)
        forward = min(max(1, stage.forward_us), whole - 1)
        last = number == len(partition.stages) - 1
        found.append(
            AsyncStage(
                forward,
                whole - forward,
                stage.replicas,
                stage.parameter_bytes,
                stage.activation_bytes,
                0 if last else _transfer_us(partition, number),
                stage.state_bytes,
            )
        )
    return found


def _outer(partition: Partition, number: int) -> Iterator[tuple[float, int]]:
    """Yield times of the stages of each level that have a stage, outermost first, with the copies around each."""
    copies = 1
    for outer in sorted(partition.outer, key=lambda outer: -outer.level):
        if outer.stages[0] <= number < outer.stages[1]:
            yield outer.time_s, copies
            copies *= outer.replicas


def stages_of(costs: PipelineCosts) -> list[AsyncStage]:
    """Return stages of PipeDream's steady state with a GPU each and whole backward passes."""
    whole, zero = costs.combined(), (0,) * len(costs.forward_us)
    columns = zip(
        whole.forward_us,
        whole.backward_us,
        whole.static_bytes or zero,
        whole.activation_bytes or zero,
        (*whole.transfer_us, 0) if whole.transfer_us else zero,
        strict=True,
    )
    return [
        AsyncStage(max(1, forward), max(1, backward), 1, static, activation, transfer)
        for forward, backward, static, activation, transfer in columns
    ]


def _transfer_us(partition: Partition, number: int) -> int:
    """Return how long the output of a stage takes to the next one, by the innermost level that has GPUs of both.

    The latency alone where the partition does not pay for bytes.
    """
    if not partition.activations:
        return partition.latency_us
    # Copies are numbered stage by stage; `first` is the last one of this stage, and the next one is of the next stage.
    first = sum(stage.replicas for stage in partition.stages[: number + 1]) - 1
    size = 1
    for level in partition.levels:
        size *= level.machines
        if first // size == (first + 1) // size:
            break
    return partition.latency_us + ceil(partition.stages[number].output_bytes * 1e6 / level.bandwidth)
