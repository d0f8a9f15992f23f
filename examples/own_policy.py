"""A policy of one's own: whoever needs the least GPU time runs first, without preemption.

Run it as it stands: ``python examples/own_policy.py``. With the entry point

    [project.entry-points."jigsaw_opt.policies"]
    smallest = "own_policy:SMALLEST"

in the ``pyproject.toml`` of a package, ``jigsaw simulate --policy smallest`` finds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jigsaw_opt import Cluster, Server, TraceJob, Workload, simulate
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.placement.placing import FreeGpus, HeldPools, too_wide
from jigsaw_opt.scheduling.policy import NEVER_STOPS, ClusterSetting, Observation, Stateless


@dataclass(slots=True)
class _Scheduler(Stateless):
    setting: ClusterSetting

    def refuses(self, job: TraceJob) -> str | None:
        """Jobs of more GPUs than there are."""
        return too_wide(self.setting, "smallest", job)

    def decide(self, observation: Observation) -> Decision:
        """Leave alone what runs; start the smallest jobs for which there is room, and none before a smaller.

        A job that waits holds the types of GPU that it may have for itself.
        """
        shares = list(observation.shares)
        free, held = FreeGpus(self.setting, shares, observation.down, observation.dead), HeldPools(self.setting)
        waiting = [active for active in observation.jobs.values() if active.share is None]
        for active in sorted(
            waiting, key=lambda active: self.setting.performance.alone_us(active.job) * active.job.gpus
        ):
            gpus = free.place(active.job, "packed", held.numbers)
            if gpus is not None:
                shares.append(Share((active.index,), gpus))
            elif held.hold(active.job):
                break
        return Decision(tuple(shares))


@dataclass(frozen=True, slots=True)
class SmallestFirst:
    """Least GPU time first, without preemption."""

    name: str = "smallest"
    display_name: str = "least GPU time first, without preemption"
    reads: frozenset[str] = NEVER_STOPS
    """Jobs that ask for more, such as a priority, are told that it is not read."""

    @property
    def options(self) -> Mapping[str, Sequence[str]]:
        """Nothing to choose."""
        return {}

    def start(self, setting: ClusterSetting, options: Mapping[str, str]) -> _Scheduler:
        """Begin with an empty cluster."""
        return _Scheduler(setting)


SMALLEST = SmallestFirst()


def _example() -> tuple[Workload, Cluster]:
    """Jobs of one to eight GPUs that arrive within an hour, and two servers of four GPUs."""
    jobs = tuple(
        TraceJob(f"j{k}", k * 120 * 10**6, "net", gpus=2 ** (k % 4), iterations=600 + 900 * (k % 3)) for k in range(30)
    )
    return Workload("hour", jobs), Cluster(tuple(Server(f"s{k}", "gpu", 4, 10**9, 10**9) for k in range(2)))


if __name__ == "__main__":
    for policy in ("fifo", SMALLEST):
        found = simulate(*_example(), policy)
        name, hours = found.setting.words["policy"], found.summary
        print(f"{name}: mean completion {hours.mean_completion_h:.2f} h, makespan {hours.makespan_h:.2f} h")
