"""Shortest remaining time first: the job that would end first alone on its GPUs comes first, with preemption."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision
from jigsaw_opt.scheduling.placement.placing import PLACEMENTS, by_priority, too_wide
from jigsaw_opt.scheduling.plain import Plain, checked, fields
from jigsaw_opt.scheduling.policies import NamedPolicy
from jigsaw_opt.scheduling.policies.aging import AGING, HYSTERESIS, Aging
from jigsaw_opt.scheduling.policy import ClusterSetting, JobState, Observation


@dataclass(slots=True)
class _SrtfScheduler:
    setting: ClusterSetting
    service: bool
    placement: str
    hysteresis: int
    aging: Aging
    alone_us: dict[int, int] = field(default_factory=dict)

    def refuses(self, job: TraceJob) -> str | None:
        return too_wide(self.setting, "srtf", job)

    def decide(self, observation: Observation) -> Decision:
        for index in observation.ended:
            self.alone_us.pop(index, None)  # unless it had ended before the simulation was put aside
        self._note(observation, observation.arrived)

        def in_order(jobs: Iterable[JobState]) -> list[JobState]:
            return self.aging.order(sorted(jobs, key=self._remaining), observation)

        jobs = observation.jobs.values()
        shares = by_priority(self.setting, jobs, in_order, self.placement, observation.down, observation.dead)
        return Decision(shares, self.aging.next_us(observation, shares))

    def state(self) -> Plain:
        return self.aging.plain()

    def restore(self, state: Plain, observation: Observation) -> None:
        checked(state, fields(**self.aging.shape()))
        self.aging.restore(state, observation)
        self._note(observation, observation.known & observation.jobs.keys())

    def _note(self, observation: Observation, jobs: Iterable[int]) -> None:
        for index in jobs:
            job = observation.jobs[index].job
            gpus = job.gpus if self.service else 1
            self.alone_us[index] = gpus * self.setting.performance.alone_us(job)

    def _remaining(self, active: JobState) -> tuple[float, int]:
        """Return the time that a job has left; one that does not run must have so much less to take GPUs."""
        left_us = self.alone_us[active.index] * (active.left / active.work)
        if active.share is None and self.hysteresis:
            gpus = active.job.gpus if self.service else 1
            left_us += self.hysteresis * gpus * self.setting.restart_of(active.job)
        return left_us, active.index


def _start(setting: ClusterSetting, options: Mapping[str, str]) -> _SrtfScheduler:
    service, aging = options["measure"] == "service", Aging(options["aging"])
    return _SrtfScheduler(setting, service, options["placement"], int(options["hysteresis"]), aging)


SRTF = NamedPolicy(
    "srtf",
    "shortest remaining time first, with preemption; by choice the least remaining time x GPUs",
    _start,
    {"measure": ("time", "service"), "placement": PLACEMENTS, "hysteresis": HYSTERESIS, "aging": AGING},
)
