"""Recognition of the task graph of a burst by the names and the order of its operations."""

from __future__ import annotations

import re
from itertools import pairwise

from jigsaw_opt.problem.task_graph import TaskGraph

__all__ = ["gpus_per_layer"]

_PASS = re.compile(r"F(0|[1-9]\d{0,8})")


def gpus_per_layer(shape: TaskGraph) -> tuple[int, ...] | str:
    """Return on how many slots each layer of a burst is, the first ones, or say what keeps a task graph from being a
    burst.

    Operations follow one another as `burst_instance` has them: for each layer ``A`` and ``F``, then back ``B``, ``S``
    and ``G``, each of which but the passes may be left out.
    """
    slots_of = {block.name: block.slots for block in shape.blocks}
    count = sum(_PASS.fullmatch(name) is not None for name in slots_of)
    order = [f"{kind}{layer}" for layer in range(count) for kind in "AF"]
    order += [f"{kind}{layer}" for layer in reversed(range(count)) for kind in "BSG"]
    there = [name for name in order if name in {*shape.operations}]
    if (
        not count
        or len(there) < len(shape.operations)
        or any(f"{k}{n}" not in slots_of for k in "FB" for n in range(count))
    ):
        return "its operations are not those of layers, as F0, B0 and S0"
    if [(edge.before, edge.after, edge.lag) for edge in shape.edges] != [(a, b, 0) for a, b in pairwise(there)]:
        return "its operations do not follow one another"
    names, found = tuple(slot.name for slot in shape.slots), []
    for layer in range(count):
        own = slots_of[f"F{layer}"]
        if own != names[: len(own)] or slots_of[f"B{layer}"] != own:
            return f"layer {layer} is not on the first slots"
        found.append(len(own))
    return tuple(found)
