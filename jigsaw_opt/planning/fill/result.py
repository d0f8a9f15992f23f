"""What filling comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import JobPlan, Plan
from jigsaw_opt.problem.task_graph import TaskGraphJob

__all__ = ["FillResult", "busy_us"]


@dataclass(frozen=True, slots=True)
class FillResult:
    """Background iterations, and the plan in which they run.

    `status`: ``optimal`` where no numbers of iterations have a better rate within the allowed period, else
    ``feasible``. `iterations`: for each background job, iterations in a period; 0 where it is left out. `instance,
    plan`: foreground jobs with their cycle-time limits, background jobs that have iterations, and a checked plan.
    `value`: weighted background iterations in a period. `rate, bound`: weighted background iterations a second, and
    what no plan within the allowed period beats. `foreground_us, foreground_bound_us`: period of the foreground alone
    as it was found, and what is proven of it. `filled`: share of the GPU time that the foreground's blocks leave in a
    period of the plan, and background blocks take. `interrupted`: whether a signal or the caller ended the search.
    """

    status: Literal["optimal", "feasible"]
    iterations: Mapping[str, int]
    instance: Instance
    plan: Plan
    value: int
    rate: float
    bound: float
    foreground_us: int
    foreground_bound_us: int
    allowed_us: int
    filled: float
    interrupted: bool
    seconds: float

    @property
    def gap(self) -> float:
        """``(bound - rate) / bound``; 0 where nothing can be gained."""
        return (self.bound - self.rate) / self.bound if self.bound > self.rate else 0.0

    @property
    def slowdown(self) -> float:
        """Period of the plan over that of the foreground alone."""
        return self.plan.objective / self.foreground_us

    @property
    def foreground_is_proven(self) -> bool:
        """Whether the foreground alone has no shorter period."""
        return self.foreground_bound_us >= self.foreground_us


def busy_us(instance: Instance, plan: Plan, names: Collection[str]) -> Counter[str]:
    """Return for each GPU (``server/index``) the time of the blocks of some jobs in a period, in microseconds.

    Microseconds by name of a GPU; a GPU without blocks of these jobs counts 0.
    """
    busy: Counter[str] = Counter()
    for job, done in zip(instance.jobs, plan.jobs, strict=True):
        if job.name not in names:
            continue
        if isinstance(done, JobPlan):
            for row in done.iterations:
                for gpu, block in zip(done.gpus, row.blocks, strict=True):
                    busy[gpu] += block.end_us - block.start_us
        elif isinstance(job, TaskGraphJob):
            gpu_of = {slot.name: gpu for slot, gpu in zip(job.shape.slots, done.gpus, strict=True)}
            for iteration in done.iterations:
                for asked, ran in zip(job.shape.blocks, iteration.blocks, strict=True):
                    for slot in asked.slots:
                        busy[gpu_of[slot]] += ran.end_us - ran.start_us
    return busy
