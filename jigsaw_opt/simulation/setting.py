"""What is simulated: a cluster, and everything that happens there."""

from __future__ import annotations

from dataclasses import dataclass

from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.workload import Workload
from jigsaw_opt.scheduling.performance import Contention, Performance
from jigsaw_opt.scheduling.policy import RESTART_US, ROUND_US, ClusterSetting, PolicySetting
from jigsaw_opt.simulation.outages import Failures

__all__ = ["Setting"]


@dataclass(frozen=True)
class Setting(ClusterSetting):
    """Everything about a simulation that does not change while it runs.

    Parameters
    ----------
    cluster, performance, round_us, restart_us, seed
        See `ClusterSetting`.
    workload
        The jobs, numbered from 0 in order of submission.
    contention
        How jobs that span servers slow each other down; None for not at all.
    failures
        What fails and when; None for nothing.
    """

    cluster: Cluster
    workload: Workload
    performance: Performance
    contention: Contention | None = None
    round_us: int = ROUND_US
    restart_us: int = RESTART_US
    seed: int = 0
    failures: Failures | None = None

    @property
    def for_policy(self) -> PolicySetting:
        """What a policy may know of it."""
        return PolicySetting(self.cluster, self.performance, self.round_us, self.restart_us, self.seed)
