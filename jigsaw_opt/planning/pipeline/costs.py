"""Costs of the stages of a pipeline, as they are stated or as a partition has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from math import ceil

from jigsaw_opt.arguments import require_fields
from jigsaw_opt.errors import Problem, UsageError, argument, unsupported
from jigsaw_opt.planning.partition.result import Partition


@dataclass(frozen=True, slots=True)
class PipelineCosts:
    """Costs of the stages, first to last; times in microseconds.

    `forward_us, backward_us`: times of the passes of each stage. `weight_us`: by stage, the part of the backward pass
    for the gradient of the weights, which `backward_us` does not have then; empty where the backward pass is not split.
    `transfer_us`: by stage but the last, how long sending its output onward takes, and the gradient of it back.
    `transfer_bytes`: by stage but the last, the size of that output; empty where only the times are known.
    `static_bytes`: for each stage, what it holds all the time; empty for nothing. `activation_bytes`: by stage, what a
    micro-batch holds from its forward pass to the end of its last backward one; empty for nothing. `weight_bytes`: by
    stage, the part of these that is held for the gradient of the weights alone: up to its end, where the rest is held
    up to that of the input's; empty for all. `recomputed_bytes`: for each stage, what is computed again when its
    backward pass begins, and held besides up to the end of its last backward pass, at least a byte, and 0 where nothing
    is; the time for it is part of `backward_us`. Empty for nothing.
    """

    forward_us: tuple[int, ...]
    backward_us: tuple[int, ...]
    weight_us: tuple[int, ...] = ()
    transfer_us: tuple[int, ...] = ()
    transfer_bytes: tuple[int, ...] = ()
    static_bytes: tuple[int, ...] = ()
    activation_bytes: tuple[int, ...] = ()
    weight_bytes: tuple[int, ...] = ()
    recomputed_bytes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse lists that do not fit together."""
        require_fields(self)
        count, wrong = len(self.forward_us), list[Problem]()
        for name in (each.name for each in fields(self)):
            wanted, there = count - name.startswith("transfer_"), len(getattr(self, name))
            if there not in (0, wanted):
                told = f"{name} has {there} values; {count} stages have {wanted}"
                wrong.append(Problem(name, told, code="wrong-count"))
        if not self.backward_us:
            wrong.append(Problem("backward_us", "there is no backward pass", code="empty"))
        if self.weight_bytes and (not self.weight_us or not self.activation_bytes):
            told = "weight_bytes are a part of activation_bytes, where the backward pass is split"
            wrong.append(Problem("weight_bytes", told, code="missing-option"))
        elif any(part > whole for part, whole in zip(self.weight_bytes, self.activation_bytes, strict=False)):
            wrong.append(Problem("weight_bytes", "weight_bytes are more than activation_bytes", code="contradiction"))
        if wrong:
            raise UsageError.of(wrong)

    def first_whole(self) -> PipelineCosts:
        """Return the costs where the first stage has its whole backward pass in `W`, as PyTorch carries it out.

        Nobody waits for the gradient of that stage's input. What a profile measured of the first layer is without it.
        """
        if not self.weight_us:
            return self
        whole = self.backward_us[0] + self.weight_us[0]
        # A micro-batch is held up to the end of that pass.
        held = (*self.activation_bytes[:1], *self.weight_bytes[1:]) if self.weight_bytes else ()
        return replace(
            self, backward_us=(0, *self.backward_us[1:]), weight_us=(whole, *self.weight_us[1:]), weight_bytes=held
        )

    def recomputing(self, again: Sequence[bool], given: Sequence[int]) -> PipelineCosts:
        """Return the costs where some stages compute their activations again.

        Such a stage repeats its forward pass when the backward pass begins, and until then holds its input alone.

        Parameters
        ----------
        again
            For each stage, whether it does so.
        given
            For each stage, the bytes of its input for a micro-batch.

        Returns
        -------
        PipelineCosts
            The same ones where no stage does so.
        """
        if not any(again):
            return self
        forward, kept = self.forward_us, self.activation_bytes
        return replace(
            self,
            backward_us=tuple(b + f * more for f, b, more in zip(forward, self.backward_us, again, strict=True)),
            activation_bytes=tuple(own if more else held for own, held, more in zip(given, kept, again, strict=True)),
            recomputed_bytes=tuple(max(1, held) * more for held, more in zip(kept, again, strict=True)),
        )

    def combined(self) -> PipelineCosts:
        """Return the costs of backward passes that are not split: both gradients are there at their end."""
        whole = tuple(map(sum, zip(self.backward_us, self.weight_us, strict=True))) if self.weight_us else ()
        return replace(self, backward_us=whole or self.backward_us, weight_us=(), weight_bytes=())


@dataclass(frozen=True, slots=True)
class AsyncStage:
    """A stage with its copies; times in microseconds.

    `forward_us, backward_us`: passes of a minibatch on one copy, with its share of the exchange of gradients.
    `parameter_bytes, activation_bytes`: bytes of one version of the weights, and of what a minibatch holds from its
    forward to its backward pass. `transfer_us`: how long sending to the next stage takes, and back from it; 0 for the
    last one. `state_bytes`: gradients and optimiser state, which are there once.
    """

    forward_us: int
    backward_us: int
    replicas: int = 1
    parameter_bytes: int = 0
    activation_bytes: int = 0
    transfer_us: int = 0
    state_bytes: int = 0


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
    sent = [0, *(stage.output_bytes for stage in stages[:-1])]
    given = [received + (stage.input_bytes or 0) for stage, received in zip(stages, sent, strict=True)]
    costs = PipelineCosts(
        tuple(stage.forward_us for stage in stages),
        tuple(stage.backward_us - part for stage, part in zip(stages, parts or [0] * len(stages), strict=True)),
        parts,
        tuple(_transfer_us(partition, number) for number in range(len(stages) - 1)),
        tuple(stage.output_bytes for stage in stages[:-1]),
        tuple(stage.parameter_bytes + stage.state_bytes for stage in stages),
        tuple(stage.activation_bytes for stage in stages),
    )
    return costs.recomputing([stage.recompute for stage in stages], given)


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
