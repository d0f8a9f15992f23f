"""Plans that are to be shown or carried out: read with their instances, and checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jigsaw_opt.cli.common.output import note
from jigsaw_opt.text import counted

if TYPE_CHECKING:
    from argparse import Namespace

    from jigsaw_opt.planning.partition.result import Partition
    from jigsaw_opt.planning.pipeline.model_parts import ModelParts
    from jigsaw_opt.problem.instance import Instance
    from jigsaw_opt.problem.measured.layers import LayerGraph
    from jigsaw_opt.problem.measured.replay import Replay
    from jigsaw_opt.problem.plan import Plan
    from jigsaw_opt.views.lanes import Picture


def instance_and_plan(arguments: Namespace) -> tuple[Instance, Plan]:
    """Return the instance and the plan that a command was given."""
    from jigsaw_opt.documents import load_plan
    from jigsaw_opt.instances.sources import instance_from

    return instance_from(arguments.instance), load_plan(arguments.plan)


def checked_plan(source: str, plan_path: Path) -> tuple[Instance, Plan]:
    """Return an instance, and a plan for it that passes the check."""
    from jigsaw_opt.checking.require import require_correct
    from jigsaw_opt.documents import load_plan
    from jigsaw_opt.instances.sources import instance_from

    instance, plan = instance_from(source), load_plan(plan_path)
    require_correct(instance, plan, str(plan_path), f"; all with: jigsaw check {source} {plan_path}")
    return instance, plan


def layer_graph(data: bytes, source: str, gpu_type: str | None) -> LayerGraph:
    """Return the layers that a text states, as `read_layers` does, and tell which sizes it does not know."""
    from jigsaw_opt.documents import read_layers

    graph = read_layers(data, source, gpu_type)
    if unknown := sum(layer.output_bytes is None for layer in graph.layers[:-1]):
        note(f"{source}: bytes sent behind {counted(unknown, 'layer')} are not known: those of activations count")
    return graph


def picture_of(instance: Instance, plan: Plan, replay_path: Path | None = None) -> Picture:
    """Return the lanes of a plan that passes the check, and of a replay of it if there is one; raise as `replay_of`.

    `replay_path`: file of the replay; None for none.
    """
    replay = replay_of(plan, replay_path)
    if replay is None:
        from jigsaw_opt.views.lanes import picture

        return picture(instance, plan)
    from jigsaw_opt.views.replay import replay_picture

    return replay_picture(instance, plan, replay)


def replay_of(plan: Plan, path: Path | None) -> Replay | None:
    """Return the replay of a plan, if one is named.

    `path`: file of the replay; None for none.
    """
    if path is None:
        return None
    from jigsaw_opt.documents import load_replay
    from jigsaw_opt.documents.replay import require_replay_of

    replay = load_replay(path)
    require_replay_of(plan, replay, str(path))
    return replay


def model_parts_of(
    instance: Instance, job: int, stages: int, partition_path: Path, layers_path: Path | None = None
) -> ModelParts:
    """Return the modules of each stage of a pipeline, by the partition that it was made of."""
    return _partition_and_parts(instance, job, stages, partition_path, layers_path)[1]


def partition_of_pipeline(instance: Instance, job: int, stages: int, path: Path) -> Partition:
    """Return the partition that a pipeline was made of; raise as `model_parts_of`."""
    return _partition_and_parts(instance, job, stages, path, None)[0]


def _partition_and_parts(
    instance: Instance, job: int, stages: int, partition_path: Path, layers_path: Path | None
) -> tuple[Partition, ModelParts]:
    from jigsaw_opt.documents import read_layers
    from jigsaw_opt.documents.file_bytes import read_text
    from jigsaw_opt.planning.partition.result import decode_partition
    from jigsaw_opt.planning.pipeline.model_parts import model_parts
    from jigsaw_opt.problem.task_graph import TaskGraphJob

    source = str(partition_path)
    partition = decode_partition(read_text(partition_path), source)
    layers = None if layers_path is None else read_layers(read_text(layers_path), str(layers_path))
    asked = instance.jobs[job]
    assert isinstance(asked, TaskGraphJob), "a pipeline has a task graph"
    return partition, model_parts(partition, asked.shape, stages, layers, source)
