"""First in, first out: jobs start in order of submission and run to their end; a job that does not fit holds all
behind it that could have the same GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.placement.placing import PLACEMENTS, FreeGpus, HeldPools, too_wide
from jigsaw_opt.scheduling.policies import NamedPolicy
from jigsaw_opt.scheduling.policy import NEVER_STOPS, ClusterSetting, Observation, Stateless


@dataclass(slots=True)
class _FifoScheduler(Stateless):
    setting: ClusterSetting
    placement: str

    def refuses(self, job: TraceJob) -> str | None:
        return too_wide(self.setting, "fifo", job)

    def decide(self, observation: Observation) -> Decision:
        shares = list(observation.shares)
        free = FreeGpus(self.setting, shares, observation.down, observation.dead)
        held = HeldPools(self.setting)
        for active in observation.jobs.values():
            if active.share is not None:
                continue
            gpus = free.place(active.job, self.placement, held.numbers)
            if gpus is not None:
                shares.append(Share((active.index,), gpus))
            elif held.hold(active.job):
                break
        return Decision(tuple(shares))


def _start(setting: ClusterSetting, options: Mapping[str, str]) -> _FifoScheduler:
    return _FifoScheduler(setting, options["placement"])


_WORDS = "first in, first out: in order of submission, without preemption"
FIFO = NamedPolicy("fifo", _WORDS, _start, {"placement": PLACEMENTS}, NEVER_STOPS)
