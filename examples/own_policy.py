"""A policy of one's own: whoever needs the least GPU time runs first, without preemption.

Run it as it stands: ``python examples/own_policy.py``. With the entry point

    [project.entry-points."jigsaw_opt.policies"]
    smallest = "own_policy:SMALLEST"

in the ``pyproject.toml`` of a package, ``jigsaw simulate --policy smallest`` finds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.performance.seconds import Seconds
from jigsaw_opt.scheduling.policy import ClusterSetting, Moment, Stateless, find
from jigsaw_opt.simulation.engine import Simulation
from jigsaw_opt.simulation.metrics import summarise
from jigsaw_opt.simulation.placing import FreeGpus, require_equal_gpus, too_wide
from jigsaw_opt.simulation.setting import Setting


@dataclass(slots=True)
class _Scheduler(Stateless):
    setting: ClusterSetting

    def refuses(self, job: TraceJob) -> str | None:
        """Jobs of more GPUs than there are."""
        return too_wide(self.setting, "smallest", job)

    def decide(self, moment: Moment) -> Decision:
        """Leave alone what runs; start the smallest jobs for which there is room, and never one before a smaller."""
        shares = list(moment.shares)
        free = FreeGpus(self.setting, shares)
        waiting = [active for active in moment.jobs.values() if active.share is None]
        for active in sorted(
            waiting, key=lambda active: self.setting.performance.alone_us(active.job) * active.job.gpus
        ):
            gpus = free.find(active.job.gpus, "packed")
            if gpus is None:
                break
            shares.append(Share((active.index,), gpus))
        return Decision(tuple(shares))


@dataclass(frozen=True, slots=True)
class SmallestFirst:
    """Least GPU time first, without preemption."""

    name: str = "smallest"
    display_name: str = "least GPU time first, without preemption"

    @property
    def options(self) -> Mapping[str, Sequence[str]]:
        """Nothing to choose."""
        return {}

    def start(self, setting: ClusterSetting, options: Mapping[str, str]) -> _Scheduler:
        """Begin; the policy takes GPUs without looking at them, so they must be alike."""
        require_equal_gpus(setting, self.name)
        return _Scheduler(setting)


SMALLEST = SmallestFirst()


def _example() -> Setting:
    """Two servers of four GPUs, and jobs of one to eight GPUs that arrive within an hour."""
    cluster = Cluster(tuple(Server(f"s{k}", "gpu", 4, 10**9, 10**9) for k in range(2)))
    jobs = tuple(
        TraceJob(f"j{k}", k * 120 * 10**6, "net", gpus=2 ** (k % 4), iterations=600 + 900 * (k % 3)) for k in range(30)
    )
    return Setting(cluster, Workload("hour", jobs), Seconds())


if __name__ == "__main__":
    for policy in (find("fifo"), SMALLEST):
        setting = _example()
        simulation = Simulation(setting, policy, {key: values[0] for key, values in policy.options.items()})
        simulation.run()
        summary = summarise(setting, simulation.close())
        print(f"{policy.name}: mean completion {summary.mean_completion_h:.2f} h, makespan {summary.makespan_h:.2f} h")
