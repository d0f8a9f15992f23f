"""Slurm's priority/multifactor: a weighted sum of factors from 0 to 1 orders the queue, and backfill starts the jobs.

Source: "Multifactor Priority Plugin", slurm.schedmd.com. Factors are the age of a job, the fair share of its user, its
size, its QOS and its partition. Described in docs/simulation.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import expm1, log

from jigsaw_opt.documents.readers.slurm_priorities import (
    Association,
    SlurmConf,
    read_qos,
    read_shares,
    read_slurm_conf,
)
from jigsaw_opt.documents.readers.times import slurm_time_s
from jigsaw_opt.documents.reading import read_file
from jigsaw_opt.errors import InvalidInputError, Problem, UsageError
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision
from jigsaw_opt.scheduling.option_values import OpenValues, file_names, slurm_times, whole_numbers
from jigsaw_opt.scheduling.plain import Plain, checked, fields, listed, number, rows, whole
from jigsaw_opt.scheduling.policy import Active, ClusterSetting, Moment
from jigsaw_opt.simulation.policies.backfill import BACKFILL_OPTIONS, BackfillScheduler
from jigsaw_opt.simulation.policies.fair_share import ShareTree, UserKey

__all__ = ["MULTIFACTOR", "JobPriority", "PrioritySettings", "decayed"]

_LOGGER = logging.getLogger(__name__)
_NONE = "none"
_SECOND_US = 1_000_000
_MINUTE_US = 60 * _SECOND_US
_TEXT = {"type": "string"}
_MOST_USAGE = 1e30
_WITHOUT_FILE = {"PriorityWeightFairshare": "5000", "PriorityWeightAge": "1000", "PriorityWeightJobSize": "1000"}
"""The example of Slurm's page; Slurm's own weights are all 0."""
_DEFAULTS = {
    "PriorityWeightAge": "0",
    "PriorityWeightFairshare": "0",
    "PriorityWeightJobSize": "0",
    "PriorityWeightPartition": "0",
    "PriorityWeightQOS": "0",
    "PriorityMaxAge": "7-0",
    "PriorityDecayHalfLife": "7-0",
    "PriorityCalcPeriod": "5",
    "PriorityFavorSmall": "no",
    "PriorityFlags": "",
    "FairShareDampeningFactor": "1",
}
"""What Slurm takes where slurm.conf states nothing."""
_FLAGS = ("NO_FAIR_TREE", "SMALL_RELATIVE_TO_TIME", "ACCRUE_ALWAYS")
_HARMLESS_FLAGS = frozenset({"CALCULATE_RUNNING", "MAX_TRES", "MAX_TRES_GRES", "INCR_ONLY"})
_NOT_SIMULATED = {
    "priorityweightassoc": "0",
    "priorityweighttres": "",
    "prioritysitefactorplugin": "",
    "priorityusageresetperiod": "none",
}
"""Parameters that are not read, with the values that say nothing."""


@dataclass(frozen=True, slots=True)
class PrioritySettings:
    """What priorities are made of, with values as slurm.conf has them.

    Parameters
    ----------
    values
        By the name of the parameter.
    partitions, tiers, qos
        Priorities of partitions (``PriorityJobFactor``), which of them come first (``PriorityTier``), and priorities
        of QOS.
    associations
        Accounts and users with their shares.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, int] = field(default_factory=dict)
    tiers: Mapping[str, int] = field(default_factory=dict)
    qos: Mapping[str, int] = field(default_factory=dict)
    associations: tuple[Association, ...] = ()

    def number(self, name: str) -> int:
        """Return a parameter that is a whole number."""
        return int(self.values.get(name, _DEFAULTS[name]))

    def time_us(self, name: str) -> int:
        """Return a parameter that is a time, in microseconds."""
        return (slurm_time_s(self.values.get(name, _DEFAULTS[name])) or 0) * _SECOND_US

    @property
    def favors_small(self) -> bool:
        """Whether small jobs come first."""
        return self.values.get("PriorityFavorSmall", "no").lower() in ("yes", "true", "1", "up")

    def has_flag(self, flag: str) -> bool:
        """Whether ``PriorityFlags`` has a flag."""
        return flag in self.values.get("PriorityFlags", "").upper().replace("+", ",").split(",")


def _settings_of(options: Mapping[str, str]) -> PrioritySettings:
    """Return what the options and their files say; an option goes before the file.

    Raises
    ------
    InvalidInputError
        With every problem of the files.
    """
    stated = {name: options[_option(name)] for name in _DEFAULTS if options[_option(name)] != _NONE}
    problems: list[Problem] = []
    conf, associations, qos = SlurmConf(_lower(_WITHOUT_FILE), {}, 0), tuple[Association, ...](), dict[str, int]()
    partitions, tiers = dict[str, int](), dict[str, int]()
    try:
        if (path := options["conf"]) != _NONE:
            conf = read_slurm_conf(read_file(path), path)
            problems += _conf_problems(conf, path)
            partitions, tiers = (conf.of_partitions(it, path) for it in ("PriorityJobFactor", "PriorityTier"))
        if (path := options["shares"]) != _NONE:
            associations = read_shares(read_file(path), path)
        if (path := options["qos"]) != _NONE:
            qos = dict(read_qos(read_file(path), path))
    except InvalidInputError as error:
        problems += error.problems
    if problems:
        raise InvalidInputError(problems)
    values = {name: conf.parameters[name.lower()] for name in _DEFAULTS if name.lower() in conf.parameters}
    return PrioritySettings({**values, **stated}, partitions, tiers, qos, associations)


def _conf_problems(conf: SlurmConf, source: str) -> Iterable[Problem]:
    """Yield what is wrong with the values of slurm.conf, and tell what of them is not simulated."""
    for name in _DEFAULTS:
        value = conf.parameters.get(name.lower())
        time = name in ("PriorityMaxAge", "PriorityDecayHalfLife", "PriorityCalcPeriod")
        if value is None or name in ("PriorityFavorSmall", "PriorityFlags"):
            continue
        if time and slurm_time_s(value) is None:
            yield Problem(source, f"{name} is a time as in 7-0, not {value[:40]!r}")
        elif not time and value not in _WEIGHTS:
            yield Problem(source, f"{name} is a whole number below 2^32, not {value[:40]!r}")
    others = [name for name, nothing in _NOT_SIMULATED.items() if conf.parameters.get(name, nothing).lower() != nothing]
    flags = (flag.strip().upper() for flag in conf.parameters.get("priorityflags", "").split(","))
    others += [f"priorityflags={flag}" for flag in flags if flag and flag not in {*_FLAGS, *_HARMLESS_FLAGS}]
    others += ["include"] * bool(conf.includes)
    if others:
        _LOGGER.warning("%s: not simulated: %s", source, ", ".join(others))


def _option(name: str) -> str:
    """Return how an option is called whose parameter has a name as ``PriorityWeightQOS``."""
    text = name.replace("QOS", "Qos").replace("FairShare", "Fairshare")
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in text).removeprefix("_")


def _lower(named: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in named.items()}


class JobPriority:
    """The priority of jobs by their factors.

    Parameters
    ----------
    settings
        Weights and what factors are made of.
    gpus
        GPUs of the cluster.
    """

    def __init__(self, settings: PrioritySettings, gpus: int) -> None:
        self._settings, self._gpus = settings, gpus
        self._max_age_us = settings.time_us("PriorityMaxAge")
        self._relative_to_time = settings.has_flag("SMALL_RELATIVE_TO_TIME")
        self._weights = {
            name: settings.number(f"PriorityWeight{name}")
            for name in ("Age", "Fairshare", "JobSize", "Partition", "QOS")
        }

    def of(self, job: TraceJob, waited_us: int, fair_share: float, limit_us: int) -> int:
        """Return the priority of a job, a whole number as in Slurm.

        Parameters
        ----------
        job
            The job.
        waited_us
            For how long it could have run.
        fair_share
            The factor of its user.
        limit_us
            For how long it may run.
        """
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
        """Return the factor of the size of a job."""
        part = gpus / self._gpus
        if self._relative_to_time:
            part /= max(1, limit_us // _MINUTE_US)
        return max(0.0, min(1.0, 1.0 - part if self._settings.favors_small else part))


def _normalised(priorities: Mapping[str, int], name: str | None, default: int) -> float:
    """Return the priority of a partition or QOS as a part of the greatest."""
    most = max(priorities.values(), default=0)
    return min(1.0, priorities.get(name or "", default) / most) if most else 0.0


def decayed(usage: float, held: int, passed_us: int, half_life_us: int) -> float:
    """Return usage after some time in which so many GPUs were held, in GPU-microseconds; old usage counts for less.

    Parameters
    ----------
    usage
        The usage at the beginning.
    held
        GPUs held all the time.
    passed_us
        The time.
    half_life_us
        After this time usage counts half; 0 for always the same.
    """
    if not half_life_us:
        return usage + held * passed_us
    rate = log(2) / half_life_us
    left = 1 + expm1(-rate * passed_us)
    return usage * left + held * -expm1(-rate * passed_us) / rate


@dataclass(slots=True)
class _MultifactorScheduler(BackfillScheduler):
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
        self.priority = JobPriority(self.priorities, self.setting.gpu_count)

    def decide(self, moment: Moment) -> Decision:
        self._charge(moment)
        decision = BackfillScheduler.decide(self, moment)
        self.holding = {
            index: (len(share.gpus), _user_of(moment.jobs[index].job))
            for share in decision.shares
            for index in share.jobs
        }
        if len(self.holding) == len(moment.jobs):
            return decision
        soon_us = moment.now_us + max(_MINUTE_US, self.priorities.time_us("PriorityCalcPeriod"))
        wake_us = soon_us if decision.wake_us is None else min(soon_us, decision.wake_us)
        return Decision(decision.shares, wake_us)

    def in_order(self, waiting: list[Active], moment: Moment) -> list[Active]:
        self.reserved = {}  # Slurm makes reservations anew each time
        shares = dict[UserKey, float]()
        if self.priorities.number("PriorityWeightFairshare"):
            if self.priorities.has_flag("NO_FAIR_TREE"):
                shares = self.tree.classic(self.usage, self.priorities.number("FairShareDampeningFactor"))
            else:
                shares = self.tree.fair_tree(self.usage)

        def rank(active: Active) -> tuple[int, int]:
            job = active.job
            tier = self.priorities.tiers.get(job.queue or "", 1)
            waited_us = moment.now_us - self.eligible.get(active.index, job.submit_us)
            return -tier, -self.priority.of(job, waited_us, shares.get(_user_of(job), 0.0), self._limit_us(job))

        return sorted(waiting, key=rank)

    def _limit_us(self, job: TraceJob) -> int:
        return job.time_limit_us or self.default_us or 0

    def _charge(self, moment: Moment) -> None:
        """Bring the usage of all users up to now; what has ended held its GPUs until now."""
        for index in moment.arrived:
            job = moment.jobs[index].job
            if job.after and not self.priorities.has_flag("ACCRUE_ALWAYS"):
                self.eligible[index] = moment.now_us
            key = _user_of(job)
            self.usage.setdefault(key, 0.0)
            self.tree.include(key)
        for index in self.eligible.keys() - moment.jobs.keys():
            del self.eligible[index]
        held = dict.fromkeys(self.usage, 0)
        for gpus, key in self.holding.values():
            held[key] += gpus
        half_life_us, passed_us = self.priorities.time_us("PriorityDecayHalfLife"), moment.now_us - self.since_us
        self.usage = {key: decayed(used, held[key], passed_us, half_life_us) for key, used in self.usage.items()}
        self.since_us = moment.now_us

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

    def restore(self, state: Plain, moment: Moment) -> None:
        used = fields(account=_TEXT, user=_TEXT, used=number(0, _MOST_USAGE))
        held = fields(job=whole(), gpus=whole(self.setting.gpu_count, 1), account=_TEXT, user=_TEXT)
        shape = {"backfill": {"type": "object"}, "since_us": whole(moment.now_us), "eligible": rows(2, whole())}
        checked(state, fields(**shape, usage=listed(used), holding=listed(held)))
        BackfillScheduler.restore(self, state["backfill"], moment)
        self.since_us, self.eligible = state["since_us"], dict(state["eligible"])
        self.usage = {(one["account"], one["user"]): float(one["used"]) for one in state["usage"]}
        self.holding = {one["job"]: (one["gpus"], (one["account"], one["user"])) for one in state["holding"]}
        users = {_user_of(moment.jobs[index].job) for index in moment.known & moment.jobs.keys()}
        if not self.usage.keys() >= users | {key for _, key in self.holding.values()}:
            raise ValueError("every user has a usage")
        for key in self.usage:
            self.tree.include(key)


def _are_flags(text: str) -> bool:
    """Return whether a text is flags joined by ``+``."""
    return set(text.split("+")) <= set(_FLAGS)


def _user_of(job: TraceJob) -> UserKey:
    return job.account or "", job.user or ""


_WEIGHTS = whole_numbers(_NONE, "0", "10000")


@dataclass(frozen=True, slots=True)
class _Multifactor:
    name: str = "multifactor"
    display_name: str = "Slurm's priorities by age, fair share, size, QOS and partition, with backfill"
    reads: frozenset[str] = frozenset()

    @property
    def options(self) -> Mapping[str, Sequence[str]]:
        own: dict[str, Sequence[str]] = {
            "conf": file_names(),
            "shares": file_names(),
            "qos": file_names(),
            **{_option(name): _WEIGHTS for name in _DEFAULTS if name.startswith("PriorityWeight")},
            "priority_max_age": slurm_times(_NONE, "1-0"),
            "priority_decay_half_life": slurm_times(_NONE, "1-0", "0"),
            "priority_calc_period": whole_numbers(_NONE),
            "priority_favor_small": (_NONE, "no", "yes"),
            "priority_flags": OpenValues((_NONE, *_FLAGS), f"some of {', '.join(_FLAGS)}, joined by +", _are_flags),
            "fairshare_dampening_factor": whole_numbers(_NONE, most=65_535),
        }
        return {**own, **BACKFILL_OPTIONS}

    def start(self, setting: ClusterSetting, options: Mapping[str, str]) -> _MultifactorScheduler:
        priorities = _settings_of(options)
        for weight, file, known in (("Partition", "conf", priorities.partitions), ("QOS", "qos", priorities.qos)):
            if priorities.number(f"PriorityWeight{weight}") and not known:
                name = f"PriorityWeight{weight}"
                raise UsageError(f"{_option(name)} weighs priorities that no file states: give multifactor:{file}=FILE")
        return _MultifactorScheduler(self.name, setting, options, priorities=priorities)


MULTIFACTOR = _Multifactor()
