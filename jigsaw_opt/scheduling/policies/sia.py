"""Sia (SOSP 2023): every round the configurations that are fairest in goodput, by one program for all jobs.

A job starts on one GPU, may have at most twice as many GPUs as it has had, and knows of GPU types that it has not run
on only the ratio of their speeds on one GPU. Jobs in a restart keep what they have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jigsaw_opt.errors import JigsawError, argument, missing_option
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.performance.goodput import Goodput
from jigsaw_opt.scheduling.performance.profiles import Measured
from jigsaw_opt.scheduling.placement.configurations import Configured, all_configurations, has, place
from jigsaw_opt.scheduling.plain import Plain, Shape, checked, fields, listed, number, optional, whole
from jigsaw_opt.scheduling.policies import NamedPolicy
from jigsaw_opt.scheduling.policy import ClusterSetting, JobState, Observation

_GROWTH = 2
_NEVER_RAN = 1.0
"""Goodput of one GPU of any type for a job that has run on none."""
_SHORTEST_S, _LONGEST_S, _MOST_SAMPLES = 1e-9, 1e9, 10**9
"""Bounds beyond those of any measurement."""


@dataclass(slots=True)
class _Past:
    """The past of a job: its configuration and since when it has it; what it has measured by GPU type."""

    configuration: int | None = None
    since_us: int = 0
    most: int = 0
    seen: dict[str, frozenset[Measured]] = field(default_factory=dict)

    def observe(self, gpu_type: str, measured: Measured) -> None:
        self.seen[gpu_type] = self.seen.get(gpu_type, frozenset()) | {measured}
        self.most = max(self.most, measured.gpus)

    def plain(self) -> Plain:
        """Return what was measured as it stands in a snapshot."""
        seen = {gpu_type: [one._asdict() for one in sorted(own)] for gpu_type, own in self.seen.items()}
        return {"configuration": self.configuration, "since_us": self.since_us, "seen": seen}

    @staticmethod
    def shape(configurations: Sequence[Configured], gpus: int, now_us: int) -> Shape:
        """Return the schema of what `plain` gives."""
        count, samples = whole(gpus, 1), whole(_MOST_SAMPLES, 1)
        step_s, sync_s = number(_SHORTEST_S, _LONGEST_S), number(0, _LONGEST_S)
        measured = fields(servers=count, gpus=count, local=samples, step_s=step_s, sync_s=sync_s)
        seen = dict.fromkeys((one.gpu_type for one in configurations), listed(measured, 1))
        return fields(
            configuration=optional(whole(len(configurations) - 1)),
            since_us=whole(now_us),
            seen={"type": "object", "additionalProperties": False, "properties": seen},
        )

    @classmethod
    def restored(cls, tree: Plain) -> _Past:
        """Return the past that `plain` gave."""
        past = cls(tree["configuration"], tree["since_us"])
        for gpu_type, own in tree["seen"].items():
            for measured in own:
                past.observe(gpu_type, Measured(**measured))
        return past


@dataclass(slots=True)
class _SiaScheduler:
    setting: ClusterSetting
    performance: Goodput
    configurations: tuple[Configured, ...]
    power: float
    past: dict[int, _Past] = field(default_factory=dict)

    def refuses(self, job: TraceJob) -> str | None:
        allowed = self.setting.pool_choice.types_of(job)
        if any(job.fewest <= one.gpus <= job.most and one.gpu_type in allowed for one in self.configurations):
            return None
        return f"job {job.name!r} asks for {job.gpus} GPUs, which no configuration of Sia has"

    def decide(self, observation: Observation) -> Decision:
        self.past = {index: self.past.get(index, _Past()) for index in observation.jobs}
        for index in observation.stopped:
            self.past[index].configuration = None
        for active in observation.jobs.values():
            past = self.past[active.index]
            if active.share is not None and not self._restarting(observation.now_us, active):
                past.observe(*self.performance.measured(active.job, active.share, active.done))
        chosen = self._choose(observation)
        shares = place(self.setting, {k: self.configurations[c] for k, c in chosen.items()}, observation)
        placed = {share.jobs[0]: share for share in shares}
        for index, past in self.past.items():
            if placed.get(index) != observation.jobs[index].share:
                past.since_us = observation.now_us
            past.configuration = chosen[index] if index in placed else None
        return Decision(shares, observation.now_us + 1)

    def state(self) -> Plain:
        return [{"job": index, "past": past.plain()} for index, past in self.past.items()]

    def restore(self, state: Plain, observation: Observation) -> None:
        past = _Past.shape(self.configurations, self.setting.gpu_count, observation.now_us)
        checked(state, listed(fields(job=whole(), past=past)))
        if sorted(tree["job"] for tree in state) != sorted(observation.known):
            raise ValueError("the jobs are not those that there are, each once")
        for tree in state:
            active = observation.jobs.get(tree["job"])
            stopped = tree["job"] in observation.stopped
            if active is not None and not stopped and not self._holds(active.share, tree["past"]["configuration"]):
                raise ValueError(f"job {active.job.name!r} runs in another configuration")
        self.past = {tree["job"]: _Past.restored(tree["past"]) for tree in state}

    def _holds(self, share: Share | None, configuration: int | None) -> bool:
        """Return whether a share is what a job of a configuration has, or of none."""
        return share is None if configuration is None else has(self.setting, share, self.configurations[configuration])

    def _restarting(self, now_us: int, active: JobState) -> bool:
        past = self.past[active.index]
        return past.configuration is not None and now_us - past.since_us < self.setting.restart_of(active.job)

    def _choose(self, observation: Observation) -> dict[int, int]:
        """Return the configuration of each job that gets GPUs."""
        import numpy as np

        from jigsaw_opt.formulations.sia_round import NO_ALLOCATION, build, normalised, restart_factors
        from jigsaw_opt.solvers.allocation.sia_round import solve_round

        jobs = list(observation.jobs.values())
        least = np.array([active.job.fewest for active in jobs])
        widest = self.setting.most_joined(observation.down, observation.dead)
        goodput = normalised(np.array([self._goodputs(active, widest) for active in jobs]), least)
        before = [self.past[active.index].configuration for active in jobs]
        current = np.array([NO_ALLOCATION if one is None else one for one in before])
        age = np.array([observation.now_us - active.job.submit_us for active in jobs], dtype=float)
        lost = np.array([self.setting.restart_of(active.job) for active in jobs], dtype=float)
        factors = restart_factors(age, np.array([max(0, active.starts - 1) for active in jobs]), lost)
        factors[(age < lost) | (current == NO_ALLOCATION)] = 1.0
        types = list(dict.fromkeys(one.gpu_type for one in self.configurations))
        gpus = np.array([[one.gpus * (one.gpu_type == name) for name in types] for one in self.configurations])
        capacity = np.array([self.setting.gpus_up(name, observation.down) for name in types])
        problem = build(goodput, gpus, capacity, power=self.power, factors=factors, current=current)
        kept = np.array([self._restarting(observation.now_us, active) for active in jobs])
        solved = solve_round(problem.keeping(kept, current), seed=self.setting.seed)
        if solved is None:
            raise JigsawError("policy 'sia': a job in a restart has a configuration that it cannot use")
        return {active.index: int(one) for active, one in zip(jobs, solved.choice) if one != NO_ALLOCATION}

    def _goodputs(self, active: JobState, widest: Mapping[str, int]) -> list[float]:
        """Return progress a second that a job expects of each configuration; 0 where it may not or cannot have it.

        So many GPUs of each type are at most up and joined.
        """
        job, past = active.job, self.past[active.index]
        most = min(job.most, self.performance.most_gpus(job), max(job.fewest, _GROWTH * past.most))
        expected = {name: self._expected(active, name) for name in {one.gpu_type for one in self.configurations}}
        return [
            expected[one.gpu_type][one] if job.fewest <= one.gpus <= min(most, widest[one.gpu_type]) else 0.0
            for one in self.configurations
        ]

    def _expected(self, active: JobState, gpu_type: str) -> Mapping[Configured, float]:
        """Return the goodput of the configurations of a type, by what was measured on it or on another known type."""
        job, past, performance = active.job, self.past[active.index], self.performance
        own = [one for one in self.configurations if one.gpu_type == gpu_type]
        if gpu_type not in self.setting.pool_choice.types_of(job) or not performance.runs_on(job, gpu_type):
            return dict.fromkeys(own, 0.0)
        if not past.seen:
            return dict.fromkeys(own, _NEVER_RAN)
        ran = (one.gpu_type for one in self.configurations if one.gpu_type in past.seen)
        known = gpu_type if gpu_type in past.seen else next(ran)
        width = max(one.gpus // one.servers for one in self.configurations if one.gpu_type == known)
        shapes = tuple((-(-one.gpus // width), one.gpus) for one in own)
        values = performance.goodputs(job, known, shapes, active.done, past.seen[known])
        ratio = performance.alone_rate(job, gpu_type) / performance.alone_rate(job, known)
        return {one: ratio * value for one, value in zip(own, values)}


def _start(setting: ClusterSetting, options: Mapping[str, str]) -> _SiaScheduler:
    if not isinstance(setting.performance, Goodput):
        given = argument("performance", "goodput:PROFILES")
        raise missing_option(
            "performance",
            f"policy 'sia' needs performance 'goodput', not {setting.performance.name!r}: {given} has the measured"
            " profiles of its models",
        )
    return _SiaScheduler(setting, setting.performance, all_configurations(setting), float(options["power"]))


_WORDS = "GPUs and batch sizes of all jobs for the most goodput, chosen anew each round (Sia)"
SIA = NamedPolicy("sia", _WORDS, _start, {"power": ("-0.5", "-1", "0.5", "1")})
