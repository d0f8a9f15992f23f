"""What each process of a burst does, by the names of its operations."""

from __future__ import annotations

from dataclasses import dataclass

from jigsaw_opt.planning.burst.recognising import gpus_per_layer
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.shape import ShapedJob

__all__ = ["BurstSchedule", "burst_schedule"]


@dataclass(frozen=True, slots=True)
class BurstSchedule:
    """A burst that is carried out.

    Parameters
    ----------
    gpus
        By layer, how many processes have it, the first ones.
    planned
        Names of its operations, each under its own name.
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


def burst_schedule(instance: Instance) -> BurstSchedule | None:
    """Return what is carried out of an instance with a burst alone; None of others."""
    [job, *others] = instance.jobs
    gpus = gpus_per_layer(job.shape) if isinstance(job, ShapedJob) and not others else ""
    if isinstance(gpus, str):
        return None
    assert isinstance(job, ShapedJob), "it has a shape"
    return BurstSchedule(gpus, {name: name for name in job.shape.operations})
