"""The measured times of a plan's operations on a machine: fields of the timelines in replay documents.

Times are microseconds after the moment when all processes began, or the phase did.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jigsaw_opt.problem.plan import TimedIteration, Transfer


@dataclass(frozen=True, slots=True)
class MeasuredBlock:
    """A worker's block, and the mean loss over its batch."""

    level: int
    start_us: int
    end_us: int
    loss: float


@dataclass(frozen=True, slots=True)
class MeasuredIteration(TimedIteration):
    """Blocks in the order of the workers, transfers in the order of the buckets.

    A transfer starts when the last of the job's workers takes part in it, and ends when the last one has its result.
    """

    blocks: tuple[MeasuredBlock, ...]
    transfers: tuple[Transfer, ...]


@dataclass(frozen=True, slots=True)
class MeasuredOperation:
    """A block or transfer of a pipeline, by its name in the task graph."""

    name: str
    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True)
class MeasuredStep(TimedIteration):
    """An iteration of a pipeline: its blocks and transfers in the order of the task graph, and the mean loss.

    A transfer starts when the pass ends that it has the result of, and ends when the pass that takes the result has it.
    """

    blocks: tuple[MeasuredOperation, ...]
    transfers: tuple[MeasuredOperation, ...]
    loss: float


@dataclass(frozen=True, slots=True)
class MeasuredJob:
    """One job's iterations.

    `name, gpus`: name and GPUs, as in the plan. `first_iteration`: number of the first iteration, from 0; above 0 where
    a run was resumed. `iterations`: one behind the other; where a plan was carried out several times, of all passes.
    `parameters_sha256`: by worker, digest of its parameters at the end; equal where all workers agree to the last bit.
    Of a pipeline by slot, each of which has parameters of its own. Empty where the run was interrupted.
    """

    name: str
    gpus: tuple[str, ...]
    first_iteration: int
    iterations: tuple[MeasuredIteration | MeasuredStep, ...]
    parameters_sha256: tuple[str, ...]

    def numbered(self) -> Iterator[tuple[int, MeasuredIteration]]:
        """Yield the iterations of a data-parallel job with their numbers."""
        for number, iteration in enumerate(self.iterations, self.first_iteration):
            if isinstance(iteration, MeasuredIteration):
                yield number, iteration

    def steps(self) -> Iterator[tuple[int, MeasuredStep]]:
        """Yield the iterations of a pipeline with their numbers."""
        for number, iteration in enumerate(self.iterations, self.first_iteration):
            if isinstance(iteration, MeasuredStep):
                yield number, iteration


@dataclass(frozen=True, slots=True)
class Timeline:
    """The measured times of jobs over some passes.

    `passes`: number of times that the plan was carried out; a pass over a cyclic plan is one period. `origins_us`: when
    each pass of a finite plan began; empty for a cyclic one, whose passes overlap.
    """

    passes: int
    origins_us: tuple[int, ...]
    jobs: tuple[MeasuredJob, ...]
