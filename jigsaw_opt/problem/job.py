"""Jobs and their depth rules (specification: jobs, depth-rules)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jigsaw_opt.problem.depth import Depth, FullDepth
from jigsaw_opt.problem.rules.part import CheckedPart

_FULL = FullDepth()


@dataclass(frozen=True, slots=True)
class Job(CheckedPart, definition="job"):
    """A data-parallel training job.

    Parameters
    ----------
    name, model
        Its name and the name of its model.
    workers, iterations
        Number of workers ``w`` and of iterations ``n``.
    release_us
        Its first blocks start no earlier.
    weight
        Its weight in `weighted_completion`.
    depth
        Its depth rule.
    deadline_us
        It ends no later; None for no deadline, as on the cyclic horizon.
    pace_us
        Cycle-time limit on the cyclic horizon: an iteration takes no more microseconds on average; None for none.
    route_policy
        Which policy of the cluster its routes keep; None for none.
    restart_us
        In a phased plan it may pause, or go on on other GPUs, so many microseconds later; None for a job that keeps its
        GPUs and its memory (specification: moves).
    licences
        Licences, of each of which it holds one while it is present; None for none (specification: licences).
    """

    name: str
    model: str
    workers: int
    iterations: int
    release_us: int = 0
    weight: int = 1
    depth: Depth = _FULL
    deadline_us: int | None = None
    pace_us: int | None = None
    route_policy: str | None = None
    restart_us: int | None = None
    licences: tuple[str, ...] | None = None

    @property
    def blocks(self) -> int:
        """Number of blocks of an iteration."""
        return self.workers

    def block_slots(self) -> Iterator[tuple[int, ...]]:
        """Yield for each block of an iteration the number of its worker."""
        return ((worker,) for worker in range(self.workers))
