"""Slurm's priority/multifactor: a weighted sum of factors from 0 to 1 orders the queue, and backfill starts the jobs.

Source: "Multifactor Priority Plugin", slurm.schedmd.com. Factors are the age of a job, the fair share of its user, its
size, its QOS and its partition; weights come from options and the files of a cluster. Described in docs/simulation.md.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import expm1, log

from jigsaw_opt.documents.file_bytes import read_text
from jigsaw_opt.documents.readers.slurm.priorities import Association, SlurmConf, read_qos, read_shares, read_slurm_conf
from jigsaw_opt.documents.readers.times import slurm_time_s
from jigsaw_opt.errors import InvalidInputError, Problem, missing_option
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision
from jigsaw_opt.scheduling.option_values import OpenValues, file_names, slurm_times, whole_numbers
from jigsaw_opt.scheduling.plain import TEXT, Plain, checked, fields, listed, number, rows, whole
from jigsaw_opt.scheduling.policies import NamedPolicy
from jigsaw_opt.scheduling.policies.slurm.backfill import BACKFILL_OPTIONS, BackfillScheduler
from jigsaw_opt.scheduling.policies.slurm.fair_share import ShareTree, UserKey
from jigsaw_opt.scheduling.policy import NEVER_STOPS, ClusterSetting, JobState, Observation
from jigsaw_opt.text import agreeing, named

_LOGGER = logging.getLogger(__name__)
_NONE = "none"
_NULL = "(null)"
_SECOND_US = 1_000_000
_MINUTE_US = 60 * _SECOND_US
_WITHOUT_FILE = {"priorityweightfairshare": "5000", "priorityweightage": "1000", "priorityweightjobsize": "1000"}
"""The example of Slurm's page; Slurm's own weights are all 0."""
_FLAGS = ("NO_FAIR_TREE", "SMALL_RELATIVE_TO_TIME", "ACCRUE_ALWAYS")
_WEIGHTS = whole_numbers(_NONE, "0", "10000")
_FACTORS = ("Age", "Fairshare", "JobSize", "Partition", "QOS")
_PARAMETERS: Mapping[str, tuple[str, Sequence[str]]] = {
    **{f"PriorityWeight{factor}": ("0", _WEIGHTS) for factor in _FACTORS},
    "PriorityMaxAge": ("7-0", slurm_times(_NONE, "1-0")),
    "PriorityDecayHalfLife": ("7-0", slurm_times(_NONE, "1-0", "0")),
    "PriorityCalcPeriod": ("5", whole_numbers(_NONE)),
    "PriorityFavorSmall": ("no", (_NONE, "no", "yes")),
    "PriorityFlags": (
        "",
        OpenValues(
            (_NONE, *_FLAGS), f"some of {', '.join(_FLAGS)}, joined by +", lambda text: {*text.split("+")} <= {*_FLAGS}
        ),
    ),
    "FairShareDampeningFactor": ("1", whole_numbers(_NONE, most=65_535)),
}
"""What Slurm takes where slurm.conf states nothing, and the values of the option of that name."""
_HARMLESS_FLAGS = frozenset({"CALCULATE_RUNNING", "MAX_TRES", "MAX_TRES_GRES", "INCR_ONLY"})
_NOT_SIMULATED = {
    "priorityweightassoc": "0",
    "priorityweighttres": "",
    "prioritysitefactorplugin": "",
    "priorityusageresetperiod": "none",
}
"""Parameters that are not read, with the values that say nothing."""
_OF_PARTITIONS_NOT_SIMULATED = {
    **dict.fromkeys(("nodes", "allowaccounts", "allowgroups", "allowqos"), ("all",)),
    **dict.fromkeys(("maxtime", "maxnodes"), ("unlimited", "infinite")),
    **dict.fromkeys(("denyaccounts", "denyqos", "qos"), ("", "n/a", "none", _NULL)),
    "minnodes": ("0", "1"),
    "state": ("up",),
}
"""Parameters of partitions that keep no job from GPUs here, with the values that say nothing."""


_MOST_USAGE = 1e30
_NEEDS = {"shares": "account", "qos": "qos", "priority_weight_qos": "qos", "priority_weight_partition": "queue"}
"""Options that have no effect where no job states a field."""


@dataclass(frozen=True, slots=True)
class PrioritySettings:
    """Settings of priorities, with values as slurm.conf has them.

    `values`: by the name of the parameter. `partitions, tiers, qos`: priorities of partitions (``PriorityJobFactor``),
    which of them come first (``PriorityTier``), and priorities of QOS. `limits_us`: what jobs of a partition may take
    that state no limit (``DefaultTime``, or else ``MaxTime``). `associations`: accounts and users with their shares.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, int] = field(default_factory=dict)
    tiers: Mapping[str, int] = field(default_factory=dict)
    qos: Mapping[str, int] = field(default_factory=dict)
    limits_us: Mapping[str, int] = field(default_factory=dict)
    associations: tuple[Association, ...] = ()

    def number(self, name: str) -> int:
        """Return a parameter that is a whole number."""
        return int(self.values.get(name, _PARAMETERS[name][0]))

    def time_us(self, name: str) -> int:
        """Return a parameter that is a time, in microseconds."""
        return (slurm_time_s(self.values.get(name, _PARAMETERS[name][0])) or 0) * _SECOND_US

    def has_flag(self, flag: str) -> bool:
        """Return whether ``PriorityFlags`` has a flag."""
        return flag in self.values.get("PriorityFlags", "").upper().replace("+", ",").split(",")


def _settings_of(options: Mapping[str, str]) -> PrioritySettings:
    """Return what the options and their files say; an option goes before the file."""
    stated = {name: options[_option_name(name)] for name in _PARAMETERS if options[_option_name(name)] != _NONE}
    problems: list[Problem] = []
    conf, associations, qos = SlurmConf(_WITHOUT_FILE, {}, 0), tuple[Association, ...](), dict[str, int]()
    partitions, tiers = dict[str, int](), dict[str, int]()
    try:
        if (path := options["conf"]) != _NONE:
            conf = read_slurm_conf(read_text(path), path)
            problems += _conf_problems(conf, path)
            partitions, tiers = (conf.of_partitions(key, path) for key in ("PriorityJobFactor", "PriorityTier"))
        if (path := options["shares"]) != _NONE:
            associations = read_shares(read_text(path), path)
        if (path := options["qos"]) != _NONE:
            qos = dict(read_qos(read_text(path), path))
    except InvalidInputError as error:
        problems += error.problems
    if problems:
        raise InvalidInputError(problems)
    values = {name: conf.parameters[name.lower()] for name in _PARAMETERS if name.lower() in conf.parameters}
    return PrioritySettings({**values, **stated}, partitions, tiers, qos, _limits_us(conf), associations)


def _limits_us(conf: SlurmConf) -> dict[str, int]:
    """Return the limit of jobs of each partition that state none; a partition may have none either."""
    words = {
        name: own.get("maxtime", "") if (stated := own.get("defaulttime", "NONE")) == "NONE" else stated
        for name, own in conf.partitions.items()
    }
    return {name: seconds * _SECOND_US for name, word in words.items() if (seconds := slurm_time_s(word))}


def _conf_problems(conf: SlurmConf, source: str) -> Iterable[Problem]:
    """Yield what is wrong with the values of slurm.conf, and tell what of them is not simulated."""
    for name in _PARAMETERS:
        value = conf.parameters.get(name.lower())
        time = name in ("PriorityMaxAge", "PriorityDecayHalfLife", "PriorityCalcPeriod")
        if value is None or name in ("PriorityFavorSmall", "PriorityFlags"):
            continue
        if time and slurm_time_s(value) is None:
            yield Problem(source, f"{name} is a time as in 7-0, not {value[:40]!r}", code="malformed")
        elif not time and value not in _WEIGHTS:
            yield Problem(source, f"{name} is a whole number below 2^32, not {value[:40]!r}", code="out-of-range")
    others = [name for name, nothing in _NOT_SIMULATED.items() if conf.parameters.get(name, nothing).lower() != nothing]
    flags = (flag.strip().upper() for flag in conf.parameters.get("priorityflags", "").split(","))
    others += [f"priorityflags={flag}" for flag in flags if flag and flag not in {*_FLAGS, *_HARMLESS_FLAGS}]
    others += ["include"] * bool(conf.includes)
    for name, nothing in _OF_PARTITIONS_NOT_SIMULATED.items():
        limited = [
            partition for partition, own in conf.partitions.items() if own.get(name, nothing[0]).lower() not in nothing
        ]
        if limited:
            others.append(f"{name} of {agreeing(len(limited), 'partition', 'partitions')} {named(limited)}")
    if others:
        _LOGGER.warning("%s: not simulated: %s", source, ", ".join(others))


def _option_name(name: str) -> str:
    """Return how an option is called whose parameter has a name as ``PriorityWeightQOS``."""
    text = name.replace("QOS", "Qos").replace("FairShare", "Fairshare")
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in text).removeprefix("_")


class JobPriority:
    """The priority of jobs by their factors.

    `settings`: weights and what factors are made of. `widths`: numbers of GPUs of the servers.
    """

    def __init__(self, settings: PrioritySettings, widths: Iterable[int]) -> None:
        self._settings = settings
        self._widest = list(accumulate(sorted(widths, reverse=True)))
        """`_widest[k]`: GPUs of the k + 1 widest servers."""
        self._max_age_us = settings.time_us("PriorityMaxAge")
        self._relative_to_time = settings.has_flag("SMALL_RELATIVE_TO_TIME")
        self._weights = {name: settings.number(f"PriorityWeight{name}") for name in _FACTORS}

    def of(self, job: TraceJob, waited_us: int, fair_share: float, limit_us: int) -> int:
        """Return the priority of a job, a whole number as in Slurm."""
        factors = {
            "Age": self.age(waited_us),
            "Fairshare": fair_share,
            "JobSize": self.size(job.gpus, limit_us),
            "Partition": _normalised(self._settings.partitions, job.queue, 1),
            "QOS": _normalised(self._settings.qos, job.qos, 0),
        }
        return int(sum(weight * factors[name] for name, weight in self._weights.items()))

    def age(self, waited_us: int) -> float:
        """Return the factor of the time for which a job has waited."""
        return min(1.0, waited_us / self._max_age_us) if self._max_age_us else 1.0

    def size(self, gpus: int, limit_us: int) -> float:
        """Return the factor of the size of a job, from 0 to 1 (multifactor priority plugin of Slurm)."""
        servers = (bisect_left(self._widest, gpus) + 1) / len(self._widest)
        part = gpus / self._widest[-1]
        part = max(part, servers) / max(1, limit_us // _MINUTE_US) if self._relative_to_time else (part + servers) / 2
        small_first = self._settings.values.get("PriorityFavorSmall", "no").lower() in ("yes", "true", "1", "up")
        return max(0.0, min(1.0, 1.0 - part if small_first else part))


def _normalised(priorities: Mapping[str, int], name: str | None, default: int) -> float:
    """Return the priority of a partition or QOS as a part of the greatest."""
    most = max(priorities.values(), default=0)
    return min(1.0, priorities.get(name or "", default) / most) if most else 0.0


def decayed(usage: float, held: int, passed_us: int, half_life_us: int) -> float:
    """Return usage after some time in which so many GPUs were held, in GPU-microseconds; old usage counts for less."""
    if not half_life_us:
        return usage + held * passed_us
    rate = log(2) / half_life_us
    left = 1 + expm1(-rate * passed_us)
    return usage * left + held * -expm1(-rate * passed_us) / rate


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
        soon_us = observation.now_us + max(_MINUTE_US, self.priorities.time_us("PriorityCalcPeriod"))
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
        used = fields(account=TEXT, user=TEXT, used=number(0, _MOST_USAGE))
        held = fields(job=whole(), gpus=whole(self.setting.gpu_count, 1), account=TEXT, user=TEXT)
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


def _user_of(job: TraceJob) -> UserKey:
    return job.account or "", job.user or ""


def _reads(options: Mapping[str, str]) -> frozenset[str]:
    by_file = {"queue": options["conf"], "qos": options["qos"]}
    return NEVER_STOPS | {"account", *(name for name, path in by_file.items() if path != _NONE)}


def _needs(stated: Mapping[str, str]) -> frozenset[str]:
    return frozenset(name for option, name in _NEEDS.items() if stated.get(option, _NONE) not in (_NONE, "0"))


def _start(setting: ClusterSetting, options: Mapping[str, str]) -> _MultifactorScheduler:
    priorities = _settings_of(options)
    for weight, file, known in (("Partition", "conf", priorities.partitions), ("QOS", "qos", priorities.qos)):
        name = f"PriorityWeight{weight}"
        if priorities.number(name) and not known:
            message = f"{_option_name(name)} weighs priorities that no file states: give multifactor:{file}=FILE"
            raise missing_option("policy", message)
    return _MultifactorScheduler(setting, options, priorities=priorities)


MULTIFACTOR = NamedPolicy(
    "multifactor",
    "Slurm's priorities by age, fair share, size, QOS and partition, with backfill",
    _start,
    {
        **dict.fromkeys(("conf", "shares", "qos"), file_names()),
        **{_option_name(name): values for name, (_, values) in _PARAMETERS.items()},
        **BACKFILL_OPTIONS,
    },
    _reads,
    _needs,
)
