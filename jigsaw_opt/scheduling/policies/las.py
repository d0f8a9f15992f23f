"""Least attained service in two queues (Tiresias, NSDI 2019): jobs that had little GPU time come first.

As in the simulator of Pollux (OSDI 2021): a job begins in the upper queue and falls into the lower one once it has
held GPUs for `threshold` GPU-hours; each queue is first in, first out, a job that does not fit is passed over, and
new jobs go to the servers with the most free GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.placement.placing import by_priority
from jigsaw_opt.scheduling.plain import Plain, checked, fields, listed, whole
from jigsaw_opt.scheduling.policies import NamedPolicy, RigidScheduler
from jigsaw_opt.scheduling.policies.aging import AGING, Aging
from jigsaw_opt.scheduling.policy import JobState, Observation

_HOUR_US = 3_600_000_000


@dataclass(slots=True)
class _LasScheduler(RigidScheduler):
    policy = "las"
    threshold: int = field(init=False)
    aging: Aging = field(init=False)
    upper: list[int] = field(default_factory=list)
    lower: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.threshold, self.aging = int(self.options["threshold"]) * _HOUR_US, Aging(self.options["aging"])

    def decide(self, observation: Observation) -> Decision:
        jobs = observation.jobs
        candidates = [*(k for k in self.upper if k in jobs), *observation.arrived]
        self.upper = [k for k in candidates if jobs[k].gpu_us < self.threshold]
        self.lower = [k for k in self.lower if k in jobs]
        self.lower += [k for k in candidates if jobs[k].gpu_us >= self.threshold]
        order = self.aging.order([jobs[k] for k in (*self.upper, *self.lower)], observation)
        shares = by_priority(self.setting, order, list, self.options["placement"], observation.down, observation.dead)
        times = self._next_fall(observation.now_us, jobs, shares), self.aging.next_us(observation, shares)
        return Decision(shares, min((time_us for time_us in times if time_us is not None), default=None))

    def state(self) -> Plain:
        return {"upper": self.upper, "lower": self.lower, **self.aging.plain()}

    def restore(self, state: Plain, observation: Observation) -> None:
        checked(state, fields(upper=listed(whole()), lower=listed(whole()), **self.aging.shape()))
        self.aging.restore(state, observation)
        self.upper, self.lower = list(state["upper"]), list(state["lower"])
        if sorted((*self.upper, *self.lower)) != sorted(observation.known):
            raise ValueError("every job is in one of the queues")

    def _next_fall(self, now_us: int, jobs: Mapping[int, JobState], shares: Sequence[Share]) -> int | None:
        """Return when the first of the running jobs of the upper queue has had its GPU time."""
        upper = set(self.upper)
        running = [(jobs[k], share) for share in shares for k in share.jobs if k in upper]
        return min(
            (now_us - (active.gpu_us - self.threshold) // len(share.gpus) for active, share in running), default=None
        )


LAS = NamedPolicy(
    "las",
    "least attained service: jobs that had little GPU time so far come first (Tiresias)",
    _LasScheduler,
    {"threshold": ("16", "1", "4", "64"), "placement": ("emptiest", "packed", "consolidated"), "aging": AGING},
)
