"""Gavel (OSDI 2020): shares of time on each GPU type by a linear program, and rounds that follow them.

A job's priority on a GPU type is its share of time by the program over the fraction of the type's time that it has had;
the highest run first, each on as many GPUs as it asks for (section 5 of the paper). GPUs are handed out by type:
a job that ran on this type keeps its GPUs where it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jigsaw_opt.errors import argument, missing_option
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.performance.protocol import ByType
from jigsaw_opt.scheduling.plain import Plain, checked, fields, listed, number, optional, whole
from jigsaw_opt.scheduling.policies import NamedPolicy
from jigsaw_opt.scheduling.policy import ClusterSetting, JobState, Observation

if TYPE_CHECKING:
    from jigsaw_opt.formulations.linear import Floats

_ROUND_US = 360_000_000
"""Time between decisions where the simulation has no rounds."""
_DIGITS = 5
"""Decimals of a share of time; further ones are the engine's noise."""


@dataclass(slots=True)
class _GavelScheduler:
    setting: ClusterSetting
    performance: ByType
    objective: str
    types: tuple[str, ...]
    decided_us: int = 0
    job_us: dict[int, list[float]] = field(default_factory=dict)
    type_us: list[float] = field(init=False)
    held: dict[int, int] = field(default_factory=dict)
    """Number of the type that each job runs on."""

    def __post_init__(self) -> None:
        self.type_us = [0.0] * len(self.types)

    def refuses(self, job: TraceJob) -> str | None:
        restart_us = self.setting.restart_of(job)
        if restart_us >= (self.setting.round_us or _ROUND_US):
            longer = argument("round_s", -(-2 * restart_us // 1_000_000))
            return (
                f"job {job.name!r} takes {restart_us / 1_000_000:g} s to start on other GPUs, and policy 'gavel' may"
                f" move it every round: the rounds must be longer, as in {longer}"
            )
        if not any(self._throughput(job, gpu_type) > 0 for gpu_type in self.types):
            return f"job {job.name!r} runs on no single type of GPU: it asks for {job.gpus} of them"
        return None

    def decide(self, observation: Observation) -> Decision:
        self._count(observation)
        placed = [self._place(observation, *one) for one in zip(self.types, self._choose(observation), strict=True)]
        self.held = {index: k for k, own in enumerate(placed) for share in own for index in share.jobs}
        self.decided_us = observation.now_us
        return Decision(
            tuple(share for own in placed for share in own),
            observation.now_us + (1 if self.setting.round_us else _ROUND_US),
        )

    def state(self) -> Plain:
        """Return the state: times are rows in the order of the types."""
        jobs = [{"job": k, "times_us": list(times), "held": self.held.get(k)} for k, times in self.job_us.items()]
        return {"decided_us": self.decided_us, "jobs": jobs, "times_us": list(self.type_us)}

    def restore(self, state: Plain, observation: Observation) -> None:
        count, jobs = len(self.types), 1 + max(observation.known, default=-1)
        half = (self.setting.round_us or _ROUND_US) / 2
        of_job = listed(number(half, half + observation.now_us), count, count)
        of_type = listed(number(0, jobs * (half + observation.now_us)), count, count)
        job = fields(job=whole(), times_us=of_job, held=optional(whole(count - 1)))
        checked(state, fields(decided_us=whole(observation.now_us), jobs=listed(job), times_us=of_type))
        if sorted(tree["job"] for tree in state["jobs"]) != sorted(observation.known):
            raise ValueError("the jobs are not those that there are, each once")
        self.decided_us = state["decided_us"]
        self.job_us = {tree["job"]: list(map(float, tree["times_us"])) for tree in state["jobs"]}
        self.held = {tree["job"]: tree["held"] for tree in state["jobs"] if tree["held"] is not None}
        self.type_us = list(map(float, state["times_us"]))

    def _count(self, observation: Observation) -> None:
        """Add the time since the last decision; a new job begins with half a round on every type.

        While jobs are active no two decisions are further apart than a round; beyond that nothing ran.
        """
        elapsed = min(observation.now_us - self.decided_us, self.setting.round_us or _ROUND_US)
        for index, k in self.held.items():
            self.job_us[index][k] += elapsed
            self.type_us[k] += elapsed
        half = (self.setting.round_us or _ROUND_US) / 2
        for index in observation.jobs:
            if index not in self.job_us:
                self.job_us[index] = [half] * len(self.types)
                self.type_us = [time_us + half for time_us in self.type_us]
        self.job_us = {index: self.job_us[index] for index in observation.jobs}

    def _choose(self, observation: Observation) -> list[list[int]]:
        """Return the jobs that run on each type of GPU."""
        left = {gpu_type: self.setting.gpus_up(gpu_type, observation.down) for gpu_type in self.types}
        most = self.setting.most_joined(observation.down, observation.dead)
        jobs = [  # of which so many GPUs of a type that they run on are up and joined
            active
            for active in observation.jobs.values()
            if any(count >= active.job.gpus and self._throughput(active.job, name) > 0 for name, count in most.items())
        ]
        chosen: list[list[int]] = [[] for _ in self.types]
        if not jobs:
            return chosen
        allocation = self._allocation(jobs, left)
        queue = [
            (-(float(share) * self.type_us[k] / self.job_us[active.index][k]), -float(share), k, active.index)
            for k in range(len(self.types))
            for active, share in zip(jobs, allocation[:, k])
        ]
        taken: set[int] = set()
        for _, _, k, index in sorted(queue):
            job, gpu_type = observation.jobs[index].job, self.types[k]
            if index in taken or job.gpus > min(left[gpu_type], most[gpu_type]) or self._throughput(job, gpu_type) == 0:
                continue
            taken.add(index)
            left[gpu_type] -= job.gpus
            chosen[k].append(index)
        return chosen

    def _throughput(self, job: TraceJob, gpu_type: str) -> float:
        """Return iterations a second of a job on a type; 0 where it cannot run, or may not."""
        may_run = gpu_type in self.setting.pool_choice.types_of(job)
        return self.performance.throughput(job, gpu_type) if may_run else 0.0

    def _allocation(self, jobs: Sequence[JobState], capacity: Mapping[str, int]) -> Floats:
        """Return shares of time of the jobs on the types, of which so many GPUs are up."""
        import numpy as np

        from jigsaw_opt.formulations.gavel import SharedCluster
        from jigsaw_opt.solvers.allocation.gavel import solve_gavel

        cluster = SharedCluster(
            throughput=np.array([[self._throughput(one.job, name) for name in self.types] for one in jobs]),
            gpus=np.array([one.job.gpus for one in jobs]),
            capacity=np.array([capacity[name] for name in self.types]),
            steps=np.array([self.performance.iterations_left(one.job, one.done) for one in jobs]),
            priority=np.array([one.job.weight for one in jobs], dtype=float),
        )
        return solve_gavel(cluster, self.objective, centre=True).allocation.round(_DIGITS)

    def _place(self, observation: Observation, gpu_type: str, chosen: Sequence[int]) -> list[Share]:
        """Return shares of one type, placed largest job first; of equal ones, those that can keep their GPUs.

        Others take the next free GPUs in the order of the servers, as Gavel does, in a part of the cluster that has so
        many; where none has, they wait.
        """
        types = enumerate(self.setting.cluster.gpus.types)
        free = {gpu for gpu, name in types if name == gpu_type and gpu not in observation.down}
        part_of, shares = self.setting.part_of(observation.dead), list[Share]()
        for size in sorted({observation.jobs[index].job.gpus for index in chosen}, reverse=True):
            group = [observation.jobs[index] for index in chosen if observation.jobs[index].job.gpus == size]
            before = {active.index: active.share for active in group}
            kept = {index: share for index, share in before.items() if share and free.issuperset(share.gpus)}
            for share in kept.values():
                free.difference_update(share.gpus)
            shares += kept.values()
            for index in (k for k in before if k not in kept):
                parts: dict[int, list[int]] = {}
                for gpu in sorted(free):
                    parts.setdefault(part_of[self.setting.server_of[gpu]], []).append(gpu)
                gpus = next((tuple(own[:size]) for own in parts.values() if len(own) >= size), None)
                if gpus is not None:
                    free.difference_update(gpus)
                    shares.append(Share((index,), gpus))
        return shares


def _start(setting: ClusterSetting, options: Mapping[str, str]) -> _GavelScheduler:
    if not isinstance(setting.performance, ByType):
        raise missing_option(
            "performance",
            "policy 'gavel' needs a performance model that knows every type of GPU ('goodput', 'table',"
            f" and 'seconds' where there are several types), not {setting.performance.name!r}",
        )
    types = tuple(dict.fromkeys(server.gpu_type for server in setting.cluster.servers))
    return _GavelScheduler(setting, setting.performance, options["objective"], types)


GAVEL = NamedPolicy(
    "gavel",
    "shares of each job's time on each type of GPU, by a linear program (Gavel)",
    _start,
    {"objective": ("max_sum", "max_min", "makespan")},
    frozenset({"weight"}),
)
