"""First in, first out: jobs start in order of submission and run to their end; a job that does not fit holds all
behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.policy import ClusterSetting, Moment, Stateless
from jigsaw_opt.simulation.placing import PLACEMENTS, FreeGpus, require_equal_gpus, too_wide

__all__ = ["FIFO"]


@dataclass(slots=True)
class _FifoScheduler(Stateless):
    setting: ClusterSetting
    placement: str

    def refuses(self, job: TraceJob) -> str | None:
        return too_wide(self.setting, "fifo", job)

    def decide(self, moment: Moment) -> Decision:
        shares = list(moment.shares)
        free = FreeGpus(self.setting, shares, moment.down)
        widest = max(sum(len(self.setting.gpus_of[k]) for k in part) for part in self.setting.parts)
        for active in moment.jobs.values():
            if active.share is not None or active.job.gpus > widest:  # no link joins so many, whatever ends
                continue
            gpus = free.find(active.job.gpus, self.placement)
            if gpus is None:
                break
            shares.append(Share((active.index,), gpus))
        return Decision(tuple(shares))


@dataclass(frozen=True, slots=True)
class _Fifo:
    name: str = "fifo"
    display_name: str = "first in, first out: in order of submission, without preemption"
    reads: frozenset[str] = frozenset()

    @property
    def options(self) -> Mapping[str, Sequence[str]]:
        return {"placement": PLACEMENTS}

    def start(self, setting: ClusterSetting, options: Mapping[str, str]) -> _FifoScheduler:
        require_equal_gpus(setting, self.name)
        return _FifoScheduler(setting, options["placement"])


FIFO = _Fifo()
