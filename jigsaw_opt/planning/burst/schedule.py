"""What each process does of a burst."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.task_graph import BurstFamily


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
    for number, shape in instance.task_graph_of.items():
        if isinstance(shape.family, BurstFamily):
            return BurstSchedule(shape.family.gpus_per_layer, {name: name for name in shape.operations}, number)
    return None
