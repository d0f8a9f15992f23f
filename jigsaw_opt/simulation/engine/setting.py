"""What is simulated: a cluster, everything that happens there, and who decides."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.performance import Contention, Performance
from jigsaw_opt.scheduling.performance.protocol import GOODPUT, RAW
from jigsaw_opt.scheduling.policy import (
    JOB_FIELDS,
    RESTART_US,
    ROUND_US,
    ClusterSetting,
    Policy,
    PolicySetting,
    choose,
    require_stated,
    stated_options,
    unread_fields,
)
from jigsaw_opt.simulation.engine.outages import Failures
from jigsaw_opt.text import counted, readable

_LONGEST = 60


@dataclass(frozen=True)
class Setting(ClusterSetting):
    """Everything about a simulation that does not change while it runs.

    `workload`: the jobs, numbered from 0 in order of submission. `contention`: how jobs that span servers slow each
    other down; None for not at all. `failures`: what fails and when; None for nothing. `policy, options`: who decides,
    with a value for each of its options; None before `under` has said who. `words`: what `simulate` was asked for, by
    the names of its parameters, as ``summary.json`` tells it.
    """

    cluster: Cluster
    workload: Workload
    performance: Performance
    contention: Contention | None = None
    round_us: int = ROUND_US
    restart_us: int = RESTART_US
    seed: int = 0
    failures: Failures | None = None
    policy: Policy | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, object] = field(default_factory=dict)

    @property
    def needs_links(self) -> bool:  # type: ignore[override]
        """Whether jobs need links between servers also where the cluster states none: the performance model says so."""
        return getattr(self.performance, "needs_links", False)

    @property
    def efficiency(self) -> str:
        """What an iteration below full depth counts for: its progress (``goodput``), or a whole one (``raw``)."""
        return str(getattr(self.performance, "efficiency", self.words.get("efficiency", GOODPUT)))

    @property
    def for_policy(self) -> PolicySetting:
        """What a policy may know of it."""
        times = self.round_us, self.restart_us
        return PolicySetting(self.cluster, self.performance, *times, self.seed, self.needs_links)

    def under(self, policy: str | Policy, **options: str) -> Setting:
        """Return the setting under a policy, an object or in words; `options` take the place of its own values."""
        words = {**self.words, "policy": told(policy)}
        chosen, values = choose(policy)
        stated = stated_options(policy)[1] | options
        require_stated(chosen, stated, (*self.workload.jobs, *self.workload.unfinished))
        return replace(self, policy=chosen, options=values | options, words=words)

    def unread(self, more: Iterable[TraceJob] = ()) -> str:
        """Return what sets jobs apart and the policy does not read, as in ``weight (1 job)``; empty if it reads all."""
        if self.policy is None:
            return ""
        jobs = [*self.workload.jobs, *more]
        unread = (
            (what, sum(job.states(name) for job in jobs))
            for name, what in JOB_FIELDS.items()
            if name in unread_fields(self.policy, self.options) and len({getattr(job, name) for job in jobs}) > 1
        )
        return ", ".join(f"{what} ({counted(count, 'job')})" for what, count in unread)

    def inputs(self) -> str:
        """Return text that tells equal simulations from others."""
        figures = hashlib.sha256(repr(self.performance.figures).encode()).hexdigest()
        contention = self.words.get("contention", told(self.contention))
        parts = (self.cluster, self.workload, self.performance.name, figures, contention)
        numbers = (self.round_us, self.restart_us, self.seed)
        failures = () if self.failures is None else (self.failures,)
        name = None if self.policy is None else self.policy.name
        raw = (RAW,) if self.efficiency == RAW else ()
        return repr((parts, numbers, name, sorted(self.options.items()), *failures, *raw))


def reading_told(settings: Iterable[Setting], waiting: Sequence[TraceJob] = ()) -> list[str]:
    """Return what was left out of each workload, what else was decided, and what policies do not read, each once.

    `waiting`: jobs that wait and are in no workload.
    """
    told_of: dict[str, None] = {}
    policies: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for one in settings:
        lines = one.workload.reading_told(with_unfinished=bool(waiting))
        told_of |= dict.fromkeys(f"{one.workload.name}: {line}" for line in lines)
        if one.policy is not None and (unread := one.unread(waiting)):
            policies[one.workload.name, unread][repr(one.policy.name)] = None
    for (name, unread), those in policies.items():
        verb = "policies {} do" if len(those) > 1 else "policy {} does"
        told_of[f"{name}: {verb.format(', '.join(those))} not read what sets jobs apart: {unread}"] = None
    return list(told_of)


def told(part: object) -> object:
    """Return a part of a simulation as a document tells it: words and numbers as they are, an object by its name.

    An object without a name is told by its `repr` where that is short, and else by its type.
    """
    if isinstance(part, str):
        return readable(part)
    if part is None or isinstance(part, int | float):
        return part
    if isinstance(part, Cluster):
        return f"{counted(len(part.servers), 'server')}, {counted(part.gpu_count, 'GPU')}"
    text = str(getattr(part, "name", None) or repr(part))
    return readable(text if len(text) <= _LONGEST and " object at " not in text else type(part).__name__)
