"""Plans that are to be shown or carried out: read with their instances, and checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jigsaw_opt.cli.common.output import note
from jigsaw_opt.text import counted

if TYPE_CHECKING:
    from argparse import Namespace

    from jigsaw_opt.problem.instance import Instance
    from jigsaw_opt.problem.measured.layers import LayerGraph
    from jigsaw_opt.problem.plan import Plan


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
