"""One method's attempt at one instance: its limits, its clock, and the best plan with the moments it was found."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from jigsaw_opt.problem import Operations
from jigsaw_opt.problem.compiled.timetable import Timetable, objective_of


@dataclass(slots=True)
class Attempt:
    """What a method is given and what it has found; the clock starts when it is made.

    `time_limit` is for building and searching together.
    """

    operations: Operations
    time_limit: float
    threads: int = 1
    seed: int = 0
    started: float = field(default_factory=time.monotonic)
    best: Timetable | None = None
    objective: int | None = None
    bound: int | None = None
    """A proven lower bound on every plan of the instance; None where the method proves none."""
    trajectory: list[tuple[float, int]] = field(default_factory=list)
    """Seconds and objective of each better plan."""
    note: str = ""
    """What the method has to say about its end."""

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def remaining(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self.time_limit - self.elapsed)

    def offer(self, timetable: Timetable) -> None:
        """Take a plan if it is better than the best one."""
        objective = objective_of(self.operations, timetable.jobs, timetable.period_us, timetable.task_graph_jobs)
        if self.objective is None or objective < self.objective:
            self.best, self.objective = timetable, objective
            self.trajectory.append((self.elapsed, objective))
