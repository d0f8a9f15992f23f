"""What Slurm's priorities are made of: weights and factors, from options and the files of a cluster.

Source: "Multifactor Priority Plugin", slurm.schedmd.com. Factors are the age of a job, the fair share of its user, its
size, its QOS and its partition.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from math import expm1, log

from jigsaw_opt.documents.file_bytes import read_text
from jigsaw_opt.documents.readers.slurm.priorities import Association, SlurmConf, read_qos, read_shares, read_slurm_conf
from jigsaw_opt.documents.readers.times import slurm_time_s
from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.option_values import whole_numbers
from jigsaw_opt.text import agreeing, named

_LOGGER = logging.getLogger(__name__)
NONE = "none"
_NULL = "(null)"
_SECOND_US = 1_000_000
MINUTE_US = 60 * _SECOND_US
_WITHOUT_FILE = {"PriorityWeightFairshare": "5000", "PriorityWeightAge": "1000", "PriorityWeightJobSize": "1000"}
"""The example of Slurm's page; Slurm's own weights are all 0."""
DEFAULTS = {
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
WEIGHTS = whole_numbers(NONE, "0", "10000")
FLAGS = ("NO_FAIR_TREE", "SMALL_RELATIVE_TO_TIME", "ACCRUE_ALWAYS")
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
        return int(self.values.get(name, DEFAULTS[name]))

    def time_us(self, name: str) -> int:
        """Return a parameter that is a time, in microseconds."""
        return (slurm_time_s(self.values.get(name, DEFAULTS[name])) or 0) * _SECOND_US

    @property
    def favors_small(self) -> bool:
        """Whether small jobs come first."""
        return self.values.get("PriorityFavorSmall", "no").lower() in ("yes", "true", "1", "up")

    def has_flag(self, flag: str) -> bool:
        """Return whether ``PriorityFlags`` has a flag."""
        return flag in self.values.get("PriorityFlags", "").upper().replace("+", ",").split(",")


def settings_of(options: Mapping[str, str]) -> PrioritySettings:
    """Return what the options and their files say; an option goes before the file."""
    stated = {name: options[option_name(name)] for name in DEFAULTS if options[option_name(name)] != NONE}
    problems: list[Problem] = []
    conf, associations, qos = SlurmConf(_lower(_WITHOUT_FILE), {}, 0), tuple[Association, ...](), dict[str, int]()
    partitions, tiers = dict[str, int](), dict[str, int]()
    try:
        if (path := options["conf"]) != NONE:
            conf = read_slurm_conf(read_text(path), path)
            problems += _conf_problems(conf, path)
            partitions, tiers = (conf.of_partitions(key, path) for key in ("PriorityJobFactor", "PriorityTier"))
        if (path := options["shares"]) != NONE:
            associations = read_shares(read_text(path), path)
        if (path := options["qos"]) != NONE:
            qos = dict(read_qos(read_text(path), path))
    except InvalidInputError as error:
        problems += error.problems
    if problems:
        raise InvalidInputError(problems)
    values = {name: conf.parameters[name.lower()] for name in DEFAULTS if name.lower() in conf.parameters}
    return PrioritySettings({**values, **stated}, partitions, tiers, qos, _limits_us(conf), associations)


def _limits_us(conf: SlurmConf) -> dict[str, int]:
    """Return the limit of jobs of each partition that state none; a partition may have none either."""
    stated = {name: own.get("defaulttime", "NONE") for name, own in conf.partitions.items()}
    words = {
        name: own.get("maxtime", "") if stated[name] == "NONE" else stated[name]
        for name, own in conf.partitions.items()
    }
    return {name: seconds * _SECOND_US for name, word in words.items() if (seconds := slurm_time_s(word))}


def _conf_problems(conf: SlurmConf, source: str) -> Iterable[Problem]:
    """Yield what is wrong with the values of slurm.conf, and tell what of them is not simulated."""
    for name in DEFAULTS:
        value = conf.parameters.get(name.lower())
        time = name in ("PriorityMaxAge", "PriorityDecayHalfLife", "PriorityCalcPeriod")
        if value is None or name in ("PriorityFavorSmall", "PriorityFlags"):
            continue
        if time and slurm_time_s(value) is None:
            yield Problem(source, f"{name} is a time as in 7-0, not {value[:40]!r}", code="malformed")
        elif not time and value not in WEIGHTS:
            yield Problem(source, f"{name} is a whole number below 2^32, not {value[:40]!r}", code="out-of-range")
    others = [name for name, nothing in _NOT_SIMULATED.items() if conf.parameters.get(name, nothing).lower() != nothing]
    flags = (flag.strip().upper() for flag in conf.parameters.get("priorityflags", "").split(","))
    others += [f"priorityflags={flag}" for flag in flags if flag and flag not in {*FLAGS, *_HARMLESS_FLAGS}]
    others += ["include"] * bool(conf.includes)
    for name, nothing in _OF_PARTITIONS_NOT_SIMULATED.items():
        limited = [
            partition for partition, own in conf.partitions.items() if own.get(name, nothing[0]).lower() not in nothing
        ]
        if limited:
            others.append(f"{name} of {agreeing(len(limited), 'partition', 'partitions')} {named(limited)}")
    if others:
        _LOGGER.warning("%s: not simulated: %s", source, ", ".join(others))


def option_name(name: str) -> str:
    """Return how an option is called whose parameter has a name as ``PriorityWeightQOS``."""
    text = name.replace("QOS", "Qos").replace("FairShare", "Fairshare")
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in text).removeprefix("_")


def _lower(named: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in named.items()}


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
        self._weights = {
            name: settings.number(f"PriorityWeight{name}")
            for name in ("Age", "Fairshare", "JobSize", "Partition", "QOS")
        }

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
        part = max(part, servers) / max(1, limit_us // MINUTE_US) if self._relative_to_time else (part + servers) / 2
        return max(0.0, min(1.0, 1.0 - part if self._settings.favors_small else part))


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
