"""The task graph of a burst, recognised by the names of its operations, and what each process does of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.task_graph import TaskGraph, TaskGraphJob

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


@dataclass(frozen=True, slots=True)
class BurstSchedule:
    """A burst that is carried out.

    `gpus`: for each layer, how many processes have it, the first ones. `planned`: names of its operations, each under
    its own name.
    """

    gpus: tuple[int, ...]
    planned: dict[str, str]
    job: int = 0
    is_split: bool = False

    @property
    def stages(self) -> int:
        """Number of layers."""
        return len(self.gpus)

    @property
    def processes(self) -> int:
        """Number of processes."""
        return max(self.gpus)

    def stages_of(self, rank: int) -> list[int]:
        """Return the layers of a process."""
        return [layer for layer, gpus in enumerate(self.gpus) if rank < gpus]

    def planned_in(self, iteration: int) -> Mapping[str, str]:
        """Return its operations, each under its own name, in any iteration."""
        return self.planned

    def actions_of(self, rank: int, iteration: int) -> list[str]:
        """Return the operations that a process takes part in; samples move between layers by the processes of both."""
        widths = {"A": self.gpus_beside, "G": self.gpus_beside}
        return [name for name in self.planned if rank < widths.get(name[0], self.gpus.__getitem__)(int(name[1:]))]

    def gpus_beside(self, layer: int) -> int:
        """Return how many processes have a layer or the one before it."""
        return max(self.gpus[max(0, layer - 1) : layer + 1])

    @property
    def groups(self) -> tuple[int, ...]:
        """The processes of a layer exchange."""
        return tuple(sorted({*self.gpus}))


def burst_schedule(instance: Instance) -> BurstSchedule | None:
    """Return what is carried out of the first burst of an instance; None where there is none."""
    for number, job in enumerate(instance.jobs):
        gpus = gpus_per_layer(job.shape) if isinstance(job, TaskGraphJob) else ""
        if isinstance(job, TaskGraphJob) and not isinstance(gpus, str):
            return BurstSchedule(gpus, {name: name for name in job.shape.operations}, number)
    return None
