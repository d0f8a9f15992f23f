"""The scheduler behind the client, a live one in this process."""

from __future__ import annotations

from collections.abc import Sequence

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.live.events import ClusterEvent
from jigsaw_opt.scheduling.live.plan_change import PlanChange
from jigsaw_opt.scheduling.live.scheduler import LiveScheduler
from jigsaw_opt.scheduling.live.start_prediction import StartPrediction


class LocalScheduler:
    """A live scheduler in this process.

    `live`: the scheduler. `shadow`: whether it decides on a copy, so that only events change what it believes to run.
    `samples`: how many simulations a prediction takes.
    """

    def __init__(self, live: LiveScheduler, shadow: bool, samples: int = 30) -> None:
        self._live, self._shadow, self._samples = live, shadow, samples

    def handle(self, event: ClusterEvent) -> object:
        """Take an event in; raises `UsageError` where it cannot be."""
        return self._live.handle(event)

    def step(self, now_us: int) -> PlanChange:
        """Return what changes now, or what would change."""
        return (self._live.copy() if self._shadow else self._live).step(now_us)

    def expected_start(self, job: str, past: Sequence[TraceJob]) -> StartPrediction:
        """Return when a waiting job will start; `past`: jobs that ended before, in order of submission."""
        return self._live.when(job, past, self._samples)
