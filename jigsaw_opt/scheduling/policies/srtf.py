"""Shortest remaining time first: the job that would end first alone on its GPUs comes first, with preemption."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from jigsaw_opt.scheduling.allocation import Decision
from jigsaw_opt.scheduling.placement.placing import PLACEMENTS, by_priority
from jigsaw_opt.scheduling.plain import Plain, checked, fields
from jigsaw_opt.scheduling.policies import NamedPolicy, RigidScheduler
from jigsaw_opt.scheduling.policies.aging import AGING, HYSTERESIS, Aging
from jigsaw_opt.scheduling.policy import JobState, Observation


@dataclass(slots=True)
class _SrtfScheduler(RigidScheduler):
    policy = "srtf"
    service: bool = field(init=False)
    hysteresis: int = field(init=False)
    aging: Aging = field(init=False)
    alone_us: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.service, self.hysteresis = self.options["measure"] == "service", int(self.options["hysteresis"])
        self.aging = Aging(self.options["aging"])

    def decide(self, observation: Observation) -> Decision:
        known, alone_us = self.alone_us, self.setting.performance.alone_us
        self.alone_us = {k: known[k] if k in known else alone_us(one.job) for k, one in observation.jobs.items()}

        def in_order(jobs: Iterable[JobState]) -> list[JobState]:
            return self.aging.order(sorted(jobs, key=self._remaining), observation)

        jobs, placement = observation.jobs.values(), self.options["placement"]
        shares = by_priority(self.setting, jobs, in_order, placement, observation.down, observation.dead)
        return Decision(shares, self.aging.next_us(observation, shares))

    def state(self) -> Plain:
        return self.aging.plain()

    def restore(self, state: Plain, observation: Observation) -> None:
        checked(state, fields(**self.aging.shape()))
        self.aging.restore(state, observation)

    def _remaining(self, active: JobState) -> tuple[float, int]:
        """Return the time that a job has left; one that does not run must have so much less to take GPUs."""
        gpus = active.job.gpus if self.service else 1
        left_us = gpus * self.alone_us[active.index] * (active.left / active.work)
        if active.share is None and self.hysteresis:
            left_us += self.hysteresis * gpus * self.setting.restart_of(active.job)
        return left_us, active.index


SRTF = NamedPolicy(
    "srtf",
    "shortest remaining time first, with preemption; by choice the least remaining time x GPUs",
    _SrtfScheduler,
    {"measure": ("time", "service"), "placement": PLACEMENTS, "hysteresis": HYSTERESIS, "aging": AGING},
)
