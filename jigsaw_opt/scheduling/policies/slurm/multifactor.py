"""Slurm's priority/multifactor: a weighted sum of factors from 0 to 1 orders the queue, and backfill starts the jobs.

Source: "Multifactor Priority Plugin", slurm.schedmd.com. Described in docs/simulation.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jigsaw_opt.errors import missing_option
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision
from jigsaw_opt.scheduling.option_values import OpenValues, file_names, slurm_times, whole_numbers
from jigsaw_opt.scheduling.plain import Plain, checked, fields, listed, number, rows, whole
from jigsaw_opt.scheduling.policies import NamedPolicy
from jigsaw_opt.scheduling.policies.slurm.backfill import BACKFILL_OPTIONS, BackfillScheduler
from jigsaw_opt.scheduling.policies.slurm.fair_share import ShareTree, UserKey
from jigsaw_opt.scheduling.policies.slurm.priority import (
    DEFAULTS,
    FLAGS,
    MINUTE_US,
    NONE,
    WEIGHTS,
    JobPriority,
    PrioritySettings,
    decayed,
    option_name,
    settings_of,
)
from jigsaw_opt.scheduling.policy import NEVER_STOPS, ClusterSetting, JobState, Observation

_TEXT = {"type": "string"}
_MOST_USAGE = 1e30
_NEEDS = {"shares": "account", "qos": "qos", "priority_weight_qos": "qos", "priority_weight_partition": "queue"}
"""Options that have no effect where no job states a field."""


@dataclass(slots=True)
class _MultifactorScheduler(BackfillScheduler):
    policy = "multifactor"
    keeps_reservations = False  # Slurm makes them anew each time
    priorities: PrioritySettings = field(default_factory=PrioritySettings)
    since_us: int = 0
    usage: dict[UserKey, float] = field(default_factory=dict)
    holding: dict[int, tuple[int, UserKey]] = field(default_factory=dict)
    eligible: dict[int, int] = field(default_factory=dict)
    """Since when jobs could run that had to wait for others."""
    tree: ShareTree = field(init=False)
    priority: JobPriority = field(init=False)

    def __post_init__(self) -> None:
        BackfillScheduler.__post_init__(self)
        self.tree = ShareTree(self.priorities.associations)
        self.priority = JobPriority(self.priorities, (server.gpus for server in self.setting.cluster.servers))

    def decide(self, observation: Observation) -> Decision:
        self._charge(observation)
        decision = BackfillScheduler.decide(self, observation)
        self.holding = {
            index: (len(share.gpus), _user_of(observation.jobs[index].job))
            for share in decision.shares
            for index in share.jobs
        }
        if len(self.holding) == len(observation.jobs):
            return decision
        soon_us = observation.now_us + max(MINUTE_US, self.priorities.time_us("PriorityCalcPeriod"))
        wake_us = soon_us if decision.wake_us is None else min(soon_us, decision.wake_us)
        return Decision(decision.shares, wake_us)

    def in_order(self, waiting: list[JobState], observation: Observation) -> list[JobState]:
        shares = dict[UserKey, float]()
        if self.priorities.number("PriorityWeightFairshare"):
            if self.priorities.has_flag("NO_FAIR_TREE"):
                shares = self.tree.classic(self.usage, max(1, self.priorities.number("FairShareDampeningFactor")))
            else:
                shares = self.tree.fair_tree(self.usage)

        def rank(active: JobState) -> tuple[int, int]:
            job = active.job
            tier = self.priorities.tiers.get(job.queue or "", 1)
            waited_us = observation.now_us - self.eligible.get(active.index, job.submit_us)
            return -tier, -self.priority.of(job, waited_us, shares.get(_user_of(job), 0.0), self.limit_us(job) or 0)

        return sorted(waiting, key=rank)

    def limit_us(self, job: TraceJob) -> int | None:
        stated_us = BackfillScheduler.limit_us(self, job)
        return self.priorities.limits_us.get(job.queue or "") if stated_us is None else stated_us

    def _charge(self, observation: Observation) -> None:
        """Bring the usage of all users up to now; what has ended held its GPUs until now."""
        for index in observation.arrived:
            job = observation.jobs[index].job
            if job.after and not self.priorities.has_flag("ACCRUE_ALWAYS"):
                self.eligible[index] = observation.now_us
            key = _user_of(job)
            self.usage.setdefault(key, 0.0)
            self.tree.include(key)
        for index in self.eligible.keys() - observation.jobs.keys():
            del self.eligible[index]
        held = dict.fromkeys(self.usage, 0)
        for gpus, key in self.holding.values():
            held[key] += gpus
        half_life_us, passed_us = self.priorities.time_us("PriorityDecayHalfLife"), observation.now_us - self.since_us
        self.usage = {key: decayed(used, held[key], passed_us, half_life_us) for key, used in self.usage.items()}
        self.since_us = observation.now_us

    def state(self) -> Plain:
        return {
            "backfill": BackfillScheduler.state(self),
            "since_us": self.since_us,
            "eligible": list(map(list, self.eligible.items())),
            "usage": [{"account": a, "user": u, "used": used} for (a, u), used in self.usage.items()],
            "holding": [
                {"job": index, "gpus": gpus, "account": a, "user": u} for index, (gpus, (a, u)) in self.holding.items()
            ],
        }

    def restore(self, state: Plain, observation: Observation) -> None:
        used = fields(account=_TEXT, user=_TEXT, used=number(0, _MOST_USAGE))
        held = fields(job=whole(), gpus=whole(self.setting.gpu_count, 1), account=_TEXT, user=_TEXT)
        shape = {"backfill": {"type": "object"}, "since_us": whole(observation.now_us), "eligible": rows(2, whole())}
        checked(state, fields(**shape, usage=listed(used), holding=listed(held)))
        BackfillScheduler.restore(self, state["backfill"], observation)
        self.since_us, self.eligible = state["since_us"], dict(state["eligible"])
        self.usage = {(one["account"], one["user"]): float(one["used"]) for one in state["usage"]}
        self.holding = {one["job"]: (one["gpus"], (one["account"], one["user"])) for one in state["holding"]}
        users = {_user_of(observation.jobs[index].job) for index in observation.known & observation.jobs.keys()}
        if not self.usage.keys() >= users | {key for _, key in self.holding.values()}:
            raise ValueError("every user has a usage")
        for key in self.usage:
            self.tree.include(key)


def _are_flags(text: str) -> bool:
    """Return whether a text is flags joined by ``+``."""
    return set(text.split("+")) <= set(FLAGS)


def _user_of(job: TraceJob) -> UserKey:
    return job.account or "", job.user or ""


def _reads(options: Mapping[str, str]) -> frozenset[str]:
    by_file = {"queue": options["conf"], "qos": options["qos"]}
    return NEVER_STOPS | {"account", *(name for name, path in by_file.items() if path != NONE)}


def _needs(stated: Mapping[str, str]) -> frozenset[str]:
    return frozenset(name for option, name in _NEEDS.items() if stated.get(option, NONE) not in (NONE, "0"))


def _start(setting: ClusterSetting, options: Mapping[str, str]) -> _MultifactorScheduler:
    priorities = settings_of(options)
    for weight, file, known in (("Partition", "conf", priorities.partitions), ("QOS", "qos", priorities.qos)):
        name = f"PriorityWeight{weight}"
        if priorities.number(name) and not known:
            message = f"{option_name(name)} weighs priorities that no file states: give multifactor:{file}=FILE"
            raise missing_option("policy", message)
    return _MultifactorScheduler(setting, options, priorities=priorities)


MULTIFACTOR = NamedPolicy(
    "multifactor",
    "Slurm's priorities by age, fair share, size, QOS and partition, with backfill",
    _start,
    {
        **dict.fromkeys(("conf", "shares", "qos"), file_names()),
        **{option_name(name): WEIGHTS for name in DEFAULTS if name.startswith("PriorityWeight")},
        "priority_max_age": slurm_times(NONE, "1-0"),
        "priority_decay_half_life": slurm_times(NONE, "1-0", "0"),
        "priority_calc_period": whole_numbers(NONE),
        "priority_favor_small": (NONE, "no", "yes"),
        "priority_flags": OpenValues((NONE, *FLAGS), f"some of {', '.join(FLAGS)}, joined by +", _are_flags),
        "fairshare_dampening_factor": whole_numbers(NONE, most=65_535),
        **BACKFILL_OPTIONS,
    },
    _reads,
    _needs,
)
