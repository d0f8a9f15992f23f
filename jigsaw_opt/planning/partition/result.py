"""The partition of a model: its stages, what bounds their throughput, and its document `jigsaw-partition/1`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil, inf, prod
from typing import Any

from jigsaw_opt.documents.decoding import made
from jigsaw_opt.documents.parsing import parsed
from jigsaw_opt.documents.recognising import expecting
from jigsaw_opt.errors import InfeasibleError, Problem, UsageError, argument
from jigsaw_opt.planning.partition.costs import Level, Variant
from jigsaw_opt.planning.partition.dynamic import LevelStage, LevelTable, compute_s, partition_levels, time_of_stages
from jigsaw_opt.planning.partition.positions import CutPositions, positions_of
from jigsaw_opt.problem.measured.layers import LayerGraph, input_bytes_of
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.problem.rules.structure import structure
from jigsaw_opt.problem.workload import LARGEST


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the pipeline on GPUs.

    `nodes`: names of its layers, each behind those that it reads from. `replicas`: GPUs that have a copy, over all
    levels. `compute_s`: seconds of its forward and backward pass on one GPU. `forward_us, backward_us`: the same in
    microseconds, pass by pass. `output_bytes`: what the next stages read of it and of those before; 0 for the last one.
    `time_s`: seconds a minibatch that it takes with its copies, on the innermost level. `state_bytes`: gradients and
    optimiser state; 0 where nothing is known of them. `weight_us`: the part of `backward_us` for the gradients of the
    weights; None where it is not known of all layers. `recompute`: whether it computes its activations again before its
    backward pass, which takes `forward_us` more. `input_bytes`: what its layers read of the model's own input; None
    where that is not known, or nothing.
    """

    nodes: tuple[str, ...]
    replicas: int
    compute_s: float
    forward_us: int
    backward_us: int
    parameter_bytes: int
    activation_bytes: int
    output_bytes: int
    time_s: float
    state_bytes: int = 0
    weight_us: int | None = None
    recompute: bool = False
    input_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class OuterStage:
    """A stage of one level of the machines.

    `level`: number of the level, 1 for the innermost one. `stages`: numbers of the first stage on GPUs that it has, and
    of the one behind its last. `replicas`: machines of the level that have a copy.
    """

    level: int
    stages: tuple[int, int]
    replicas: int
    time_s: float


@dataclass(frozen=True, slots=True)
class Partition:
    """Stages of a pipeline for a model; times are seconds a minibatch.

    `variant`: whose costs. `activations`: whether outputs sent between stages are paid for. `levels`: the machines,
    innermost first. `time_s`: in steady state. `data_parallel_s, single_worker_s`: with the whole model on all GPUs,
    and on one. `stages`: on GPUs, first to last. `outer`: stages of each level, innermost level first. `noam`:
    minibatches to be kept in flight (the paper's NOAM). `prefixes`: in how many ways the model can be cut.
    `latency_us`: part of sending a stage's output that does not depend on its size. `time_range_s`: `time_s` of the
    same stages where each layer takes its least time, and where each takes its greatest; None where no layer has a
    range. `gpu_type`: the type of GPU that the times hold for; None where that is not known.
    """

    variant: Variant
    activations: bool
    levels: tuple[Level, ...]
    time_s: float
    data_parallel_s: float
    single_worker_s: float
    stages: tuple[Stage, ...]
    outer: tuple[OuterStage, ...]
    noam: int
    prefixes: int
    latency_us: int = 0
    time_range_s: tuple[float, float] | None = None
    gpu_type: str | None = None


def best_partition(
    graph: LayerGraph,
    machines: Sequence[int],
    bandwidth: Sequence[float],
    *,
    variant: Variant = "released",
    activations: bool = False,
    replicate: bool = True,
    memory: int | None = None,
    keeps_own: bool = True,
) -> Partition:
    """Return the stages of a model of which the slowest takes least time; arguments are those of `partition`.

    `keeps_own`: as for `LevelCosts`; without it, the memory is that of the released optimiser.
    """
    wrong = list[Problem]()
    if len(machines) != len(bandwidth) or not machines:
        told = f"{argument('machines')} has {len(machines)} levels and {argument('bandwidth')} {len(bandwidth)}"
        wrong.append(Problem("machines", told + ", and as many are needed, at least 1", code="wrong-count"))
    if (least := min(machines, default=1)) < 1:
        wrong.append(Problem("machines", f"each level has at least 1 machine, not {least}", code="out-of-range"))
    if rates := [rate for rate in bandwidth if not 1 <= rate < inf]:
        told = f"each level has a finite bandwidth of at least 1, not {', '.join(f'{rate:g}' for rate in rates)}"
        wrong.append(Problem("bandwidth", told, code="out-of-range"))
    if memory is not None and not 1 <= memory <= LARGEST:
        told = f"{argument('memory')} is at least 1 and at most {LARGEST}, not {memory}"
        wrong.append(Problem("memory", told, code="out-of-range"))
    if wrong:
        raise UsageError.of(wrong)
    rates_of = (int(rate) if rate == int(rate) else rate for rate in bandwidth)  # Documents have whole numbers.
    levels = [Level(count, rate) for count, rate in zip(machines, rates_of, strict=True)]
    positions = positions_of(graph)
    tables = partition_levels(positions, levels, variant, activations, replicate, memory, keeps_own)
    last = len(positions.layers) - 1
    time = float(tables[-1].best[0][-1, last])
    if time == inf:
        raise InfeasibleError("no partition uses all machines" + (" within the memory" if memory is not None else ""))
    divided = _unfold(last, tables)
    stages, outer = _stages(positions, divided)
    times = [time_of_stages(positions_of(end), levels, variant, activations, divided[::-1]) for end in graph.ends or ()]
    whole = [[[LevelStage(0, last, level.machines, 0.0)]] for level in levels]
    workers = prod(level.machines for level in levels)
    return Partition(
        variant,
        activations or variant == "paper",
        tuple(levels),
        time,
        time_of_stages(positions, levels, variant, activations, whole),
        float(compute_s(positions)[0, last]),
        stages,
        outer,
        ceil(workers / stages[0].replicas),
        last,
        time_range_s=(times[0], times[1]) if times else None,
        gpu_type=graph.gpu_type,
    )


def _unfold(last: int, tables: Sequence[LevelTable]) -> list[list[list[LevelStage]]]:
    """Return for each level, outermost first, the stages of each part that it divides."""
    parts = [LevelStage(0, last, 1, 0.0)]
    by_level: list[list[list[LevelStage]]] = []
    for table in reversed(tables):
        by_level.append([table.stages(part.begin, part.end) for part in parts])
        parts = [stage for stages in by_level[-1] for stage in stages]
    return by_level


def _stages(
    positions: CutPositions, by_level: Sequence[Sequence[Sequence[LevelStage]]]
) -> tuple[tuple[Stage, ...], tuple[OuterStage, ...]]:
    """Return stages on GPUs, and those of all levels, innermost level first."""
    copies = [1]
    for level in by_level:
        copies = [of * stage.replicas for of, stages in zip(copies, level, strict=True) for stage in stages]
    parts = [stage for stages in by_level[-1] for stage in stages]
    stages = tuple(_stage(positions, part, of) for part, of in zip(parts, copies, strict=True))
    ends = [part.end for part in parts]
    begins = [part.begin for part in parts]
    outer = []
    for number, level in enumerate(reversed(by_level), 1):
        for each in (stage for stages in level for stage in stages):
            span = (begins.index(each.begin), ends.index(each.end) + 1)
            outer.append(OuterStage(number, span, each.replicas, each.time_s))
    return stages, tuple(outer)


def _stage(positions: CutPositions, stage: LevelStage, copies: int) -> Stage:
    graph = positions.graph
    own = positions.layers[stage.end] & ~positions.layers[stage.begin]
    numbers = [at for at in range(len(graph.layers)) if own >> at & 1]
    # In the order in which positions have them before.
    numbers.sort(key=lambda at: next(n for n, before in enumerate(positions.layers) if before >> at & 1))
    layers = [graph.layers[at] for at in numbers]
    forward, backward = sum(layer.forward_us for layer in layers), sum(layer.backward_us for layer in layers)
    weights = [layer.weight_us for layer in layers if layer.weight_us is not None]
    parameters = sum(layer.parameter_bytes for layer in layers)
    return Stage(
        tuple(layer.name for layer in layers),
        copies,
        (forward + backward) / 1e6,
        forward,
        backward,
        parameters,
        sum(layer.activation_bytes for layer in layers),
        int(positions.sent_bytes[stage.end]),
        stage.time_s * stage.replicas / copies,
        (graph.state_factor - 1) * parameters,
        sum(weights) if len(weights) == len(layers) else None,
        input_bytes=input_bytes_of(layers),
    )


Json = dict[str, Any]


def partition_tree(partition: Partition) -> Json:
    """Return the document of a partition, as what JSON is made of."""
    return {"format": "jigsaw-partition/1", **asdict(partition)}


def decode_partition(data: bytes | str, source: str = "$") -> Partition:
    """Read a partition document."""
    with expecting(data, source, "partition"):
        tree = parsed(data, source, _check)
    del tree["format"]
    found: Partition = made(Partition, tree)
    return found


def _check(tree: Json, report: Report) -> None:
    structure("partition")(tree, "$", report)
