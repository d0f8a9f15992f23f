"""The modules of each stage of a pipeline, by the partition that the pipeline was made of."""

from __future__ import annotations

from jigsaw_opt.planning.partition.result import Partition
from jigsaw_opt.problem.measured.layers import LayerGraph
from jigsaw_opt.problem.rules.report import Report, quoted
from jigsaw_opt.problem.task_graph import TaskGraph

__all__ = ["ModelParts", "model_parts"]

ModelParts = tuple[tuple[str, ...], ...]
"""By stage, names of its modules in the order of the forward pass."""


def model_parts(
    partition: Partition, shape: TaskGraph, stages: int, layers: LayerGraph | None = None, source: str = "$"
) -> ModelParts:
    """Return the modules of each stage.

    `layers`: the layer profile that was cut, which may say of what modules a layer is made; None where a layer's name
    is the path of its module.
    """
    report, lengths = Report(), {block.name: block.duration_us.values() for block in shape.blocks}
    modules = {} if layers is None else {layer.name: layer.modules for layer in layers.layers}
    if len(partition.stages) != stages:
        report.add(
            f"{source}: $.stages",
            f"there are {len(partition.stages)}, and the pipeline has {stages} stages",
            code="mismatch",
        )
    for number, stage in enumerate(partition.stages):
        place = (f"{source}: $.stages", number)
        planned = lengths.get(f"F0.{number}")
        if planned is not None and max(1, stage.forward_us) not in planned:
            told = ", ".join(map(str, sorted(planned)))
            report.add(
                (place, "forward_us"), f"is {stage.forward_us}, and in the pipeline it takes {told} us", code="mismatch"
            )
        for at, name in enumerate(stage.nodes):
            if layers is not None and name not in modules:
                report.add(
                    ((place, "nodes"), at), f"the layer profile has no layer {quoted(name)}", code="unknown-name"
                )
    report.raise_if_any()
    return tuple(
        tuple(path for name in each.nodes for path in modules.get(name) or (name,)) for each in partition.stages
    )
