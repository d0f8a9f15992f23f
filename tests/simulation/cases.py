"""Small settings, and policies and performance models that do as the test says."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.performance import UNITS, Contention, Speed, rate_of
from jigsaw_opt.scheduling.performance.seconds import Seconds
from jigsaw_opt.scheduling.policy import ClusterSetting, Observation, Policy
from jigsaw_opt.simulation.engine.records import SimulationOutcome
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.simulation.inputs.cluster_files import grid

SECOND = 1_000_000


def cluster(servers: int = 2, gpus: int = 4) -> Cluster:
    return Cluster(tuple(Server(f"s{k}", "gpu", gpus, 10**9, 10**9) for k in range(servers)))


def types(text: str) -> Cluster:
    """A cluster in words, as in ``2x4:fast+1x4:slow``."""
    made = grid(text)
    assert made is not None
    return made


def job(name: str, submit_s: float, gpus: int, seconds: int, **stated: Any) -> TraceJob:
    return TraceJob(name, round(submit_s * SECOND), "seconds", gpus, seconds, **stated)


def setting(*jobs: TraceJob, contention: Contention | None = None, restart_s: int = 0, **changes: object) -> Setting:
    made = {"cluster": cluster(), "performance": Seconds(), **changes}
    return Setting(workload=Workload("w", jobs), contention=contention, restart_us=restart_s * SECOND, **made)  # type: ignore[arg-type]


def random_jobs(seed: int, count: int, most: int = 8) -> tuple[TraceJob, ...]:
    draw = random.Random(seed)
    sizes = [size for size in (1, 1, 2, 4, 8) if size <= most]
    return tuple(job(f"j{k}", draw.randrange(3000), draw.choice(sizes), draw.randrange(1, 2000)) for k in range(count))


def run(setting: Setting, policy: Policy, **options: str) -> SimulationOutcome:
    simulation = Simulation(setting.under(policy, **options))
    simulation.run()
    return simulation.close()


def finish_s(outcome: SimulationOutcome) -> list[float | None]:
    return [None if record.finish_us is None else record.finish_us / SECOND for record in outcome.jobs]


def starts_s(outcome: SimulationOutcome) -> list[float | None]:
    return [None if record.start_us is None else record.start_us / SECOND for record in outcome.jobs]


def restarts(outcome: SimulationOutcome) -> list[int]:
    return [record.restarts for record in outcome.jobs]


@dataclass
class Watched:
    """Another policy, each of whose decisions the test looks at."""

    policy: Policy
    look: Callable[[Watched, Observation, Decision], object]
    name: str = "watched"
    display_name: str = "another policy, watched"

    @property
    def options(self) -> Mapping[str, Sequence[str]]:
        return self.policy.options

    def start(self, setting: ClusterSetting, options: Mapping[str, str]) -> Watched:
        self.setting, self.scheduler = setting, self.policy.start(setting, options)
        return self

    def decide(self, observation: Observation) -> Decision:
        decision = self.scheduler.decide(observation)
        self.look(self, observation, decision)
        return decision


@dataclass(frozen=True)
class Scripted:
    """A policy that is one function of what it sees."""

    decide: Callable[[Observation], Decision]
    name: str = "scripted"
    display_name: str = "as the test says"

    @property
    def options(self) -> Mapping[str, Sequence[str]]:
        return {}

    def start(self, setting: ClusterSetting, options: Mapping[str, str]) -> Scripted:
        return self


class Shared(Seconds):
    """Jobs that share GPUs slow each other down by their number."""

    def refuses(self, share: Share, jobs: Sequence[TraceJob]) -> str | None:
        return None

    def speeds(self, share: Share, jobs: Sequence[TraceJob], done: Sequence[int]) -> tuple[Speed, ...]:
        return (Speed(rate_of(SECOND * len(jobs)), None, 0.5),) * len(jobs)


class Stepped(Seconds):
    """Ten times faster from the tenth iteration on."""

    def speeds(self, share: Share, jobs: Sequence[TraceJob], done: Sequence[int]) -> tuple[Speed, ...]:
        slow = done[0] < 10 * UNITS
        return (Speed(rate_of(SECOND), 10 * UNITS) if slow else Speed(rate_of(SECOND / 10)),)
