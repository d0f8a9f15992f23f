"""What is to be simulated: for every part an object, or the words that the command line has for it.

It is read part by part, so that everything that is wrong is told at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, TypedDict

from jigsaw_opt.arguments import require_fields
from jigsaw_opt.documents.readers.table import Accept, anything
from jigsaw_opt.errors import Problem, Problems, UsageError, argument
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.network.contention import LinkSharing
from jigsaw_opt.problem.rules.keyed import trusted
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.performance import Contention, Performance
from jigsaw_opt.scheduling.performance.kinds import SPEEDS, performance_for
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.scheduling.performance.protocol import EFFICIENCIES, GOODPUT
from jigsaw_opt.scheduling.policies import RECORDED
from jigsaw_opt.scheduling.policy import Policy, choose
from jigsaw_opt.simulation.engine.outages import Failures, failures_of
from jigsaw_opt.simulation.engine.recorded import record_problems
from jigsaw_opt.simulation.engine.setting import Setting, told
from jigsaw_opt.simulation.inputs.cluster_files import read_cluster
from jigsaw_opt.simulation.inputs.contention import contention_of
from jigsaw_opt.simulation.inputs.workload_changes import fitted, most_gpus_for, read_workload, why_too_wide

_MOST_S = 9e9
"""The longest time, 285 years; times in traces are up to 2^53 - 1 microseconds."""
TOO_WIDE = ("refuse", "skip")
"""What may become of jobs that need more GPUs than there are."""


GivenWorkload = str | Path | Workload
"""Jobs, or their file, or words for either."""


class GivenParts(TypedDict, total=False):
    """Parts by keyword, as `simulate` takes them; see `SimulationRequest`."""

    performance: str | Performance | Callable[[Cluster], Performance]
    contention: str | Contention | LinkSharing
    round_s: float
    restart_s: float
    draw_models: bool
    seed: int
    foreground_gpus: int | None
    failures: str | Failures
    columns: str
    too_wide: str
    speeds: str
    efficiency: str


@dataclass(frozen=True, slots=True)
class SimulationRequest:
    """What is to be simulated: each part is an object, or text as on the command line.

    Parameters
    ----------
    workload
        The jobs, or ``FORMAT:FILE``, or a file in our own format, also as a `Path`, or the name of a bundled one.
    cluster
        The servers, an instance that has them and models of the jobs, or text as in ``16x4:v100``.
    policy
        Who decides, or ``NAME:OPTION=VALUE...``.
    performance
        How fast jobs run, what makes that of a cluster, or ``KIND:SOURCE``. By default the models of the cluster's
        instance, or else an iteration a second.
    contention
        How jobs that span servers slow each other down, or how links are divided; ``exclusive`` for not at all.
    round_s, restart_s
        Seconds between decisions, and of a start on other GPUs.
    draw_models, seed
        Whether every job gets a drawn model of the performance model; the seed of that, of the policy and of failures.
    foreground_gpus
        Jobs that ask for at least so many GPUs are in the foreground, beside those of which the workload says so.
    failures
        What fails and when, as in ``mtbf=100,mttr=2``; empty for nothing.
    columns
        What a file in our own format calls its columns, as in ``gpus=num_gpu,submit_s=time``.
    too_wide
        Whether to ``refuse`` a workload with a job that needs more GPUs than there are, or to ``skip`` the job.
    speeds
        How fast types of GPU are against each other, as in ``a100=1,v100=0.43``.
    efficiency
        Whether an iteration below full depth counts by its progress, where its model's efficiency tells it
        (``goodput``), or as a whole one (``raw``).

    Raises
    ------
    UsageError
        Parts are of another type, or out of range; with every such part.
    """

    workload: GivenWorkload
    cluster: str | Cluster | Instance
    policy: str | Policy = "fifo"
    performance: str | Performance | Callable[[Cluster], Performance] = ""
    contention: str | Contention | LinkSharing = "exclusive"
    round_s: float = 60.0
    restart_s: float = 30.0
    draw_models: bool = False
    seed: int = 0
    foreground_gpus: int | None = None
    failures: str | Failures = ""
    columns: str = ""
    too_wide: str = "refuse"
    speeds: str = ""
    efficiency: str = GOODPUT

    def __post_init__(self) -> None:
        require_fields(self)
        if isinstance(self.workload, Path):
            # The name of a file may have a colon, which in words stands behind a format.
            words = f"csv:{self.workload}" if ":" in str(self.workload) else str(self.workload)
            object.__setattr__(self, "workload", words)
        if wrong := self._out_of_range():
            raise UsageError.of(wrong)

    def _out_of_range(self) -> list[Problem]:
        report, wide = Report(), self.foreground_gpus
        for name, seconds in (("round", self.round_s), ("restart", self.restart_s)):
            if not 0 <= seconds <= _MOST_S:
                bound = f"at most {_MOST_S:g}" if seconds > _MOST_S else "at least 0"
                told = f"the {name} is a number of seconds of {bound}, not {seconds}"
                report.add(f"{name}_s", told, code="out-of-range")
        if self.seed < 0:
            report.add("seed", f"the seed is at least 0, not {self.seed}", code="out-of-range")
        if wide is not None and wide < 1:
            told = f"jobs in the foreground ask for at least 1 GPU, not {wide}"
            report.add("foreground_gpus", told, code="out-of-range")
        if self.too_wide not in TOO_WIDE:
            told = f"what becomes of jobs that are too wide is {' or '.join(TOO_WIDE)}, not {self.too_wide!r}"
            report.add("too_wide", told, code="unknown-value")
        if self.efficiency not in EFFICIENCIES:
            told = f"what iterations count for is {' or '.join(EFFICIENCIES)}, not {self.efficiency!r}"
            report.add("efficiency", told, code="unknown-value")
        if self.columns and isinstance(self.workload, Workload):
            told = "names of columns are those of a file, and the workload is an object"
            report.add("columns", told, code="unsupported")
        if self.speeds and not isinstance(self.performance, str):
            told = f"{SPEEDS}, and the performance model is an object"
            report.add("speeds", told, code="not-together")
        return report.problems

    @property
    def is_record(self) -> bool:
        """Whether what the trace says happened is replayed."""
        return self.policy in (RECORDED, RECORDED.name)

    @property
    def but_policy(self) -> tuple[object, ...]:
        """What is equal in requests that differ by the policy alone, as long as their objects are there."""
        parts = (getattr(self, field.name) for field in fields(self) if field.name != "policy")
        return (self.is_record, *(part if isinstance(part, str | Real | None) else id(part) for part in parts))

    @property
    def words(self) -> dict[str, object]:
        """The parts by name, as ``summary.json`` tells them."""
        return {field.name: told(getattr(self, field.name)) for field in fields(self)}

    @property
    def files(self) -> list[str]:
        """Names of the files that are read, and words that are no files, which do no harm."""
        parts = (self.workload, self.cluster, self.performance, self.failures)
        words = [part.partition(",checkpoint=")[0] for part in parts if isinstance(part, str)]
        return [*words, *(word.partition(":")[2] for word in words)]


def read_setting(asked: SimulationRequest) -> Setting:
    """Read everything that one simulation is of; raise one error with everything that is wrong."""
    return read_settings([asked])[0]


def read_settings(asked: Iterable[SimulationRequest]) -> list[Setting]:
    """Read everything that several simulations are of, once what differs by the policy alone."""
    problems, made, read = Problems(), list[Setting](), dict[tuple[object, ...], Setting | None]()
    for own in [*asked]:
        key = own.but_policy
        if key not in read:
            found = Problems()
            read[key] = _read(own, found)
            problems.include(found)
        setting = read[key]
        with problems.of("policy"):
            if setting is None:
                choose(own.policy)
            else:
                made.append(setting.under(own.policy))
    problems.tell()
    return made


def changed(setting: Setting, **parts: Any) -> Setting:
    """Return a setting with other parts in place of those that need no workload or cluster read anew.

    `parts`: any of ``policy``, ``contention``, ``failures``, ``round_s`` and ``restart_s``, as `simulate` takes them.
    """
    cluster, made = setting.cluster, dict[str, Any]()
    for name, part in parts.items():
        if name == "contention":
            made[name] = contention_of(part, cluster)
        elif name == "failures":
            made[name] = failures_of(part, cluster, setting.seed)
        elif name in ("round_s", "restart_s"):
            made[f"{name.removesuffix('_s')}_us"] = _microseconds(part)
    words = {**setting.words, **{name: told(part) for name, part in parts.items()}}
    one = replace(setting, words=words, **made)
    return one.under(parts["policy"]) if "policy" in parts else one


def _acceptance(asked: SimulationRequest, cluster: Cluster, performance: Performance | None) -> Accept:
    """Return what is wrong with a job: its GPUs, its recorded times, or nothing that the performance model knows.

    `performance`: None where it is not known yet.
    """
    most, mixed = most_gpus_for(cluster), len({server.gpu_type for server in cluster.servers}) > 1

    def problems(job: TraceJob) -> Sequence[str]:
        wide = why_too_wide(job, job.fewest, most(job), " of a type that it may have" if mixed else "")
        if wide is not None and asked.too_wide == "skip":
            return ()
        found = [*([] if wide is None else [wide]), *(record_problems(job) if asked.is_record else ())]
        reason = None if performance is None or asked.draw_models else performance.unknown(job)
        if reason is not None:
            if isinstance(performance, Profiled) and job.duration_us is not None:
                drawn, given = argument("draw_models", True), argument("performance", "seconds")
                reason = f"has a duration and no model; {drawn} gives it one, {given} needs none"
                reason = f"job {job.name!r} {reason}"
            found.append(reason)
        return found

    return problems


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _read(asked: SimulationRequest, problems: Problems) -> Setting | None:
    """Return the setting before anybody decides, or None where there are problems."""
    # Without a cluster or a performance model everything else is still read, for what is wrong with it by itself.
    cluster, models, performance = trusted(Cluster, servers=()), None, None
    with problems.of("cluster"):
        cluster, models = read_cluster(asked.cluster)
    with problems.of("contention"):
        contention = contention_of(asked.contention, cluster)
    with problems.of("failures"):
        failures = failures_of(asked.failures, cluster, asked.seed)
    with problems.of("performance"):
        make = partial(performance_for, asked.performance, cluster, models, asked.speeds, efficiency=asked.efficiency)
        performance = make(drawing=asked.draw_models)
    accept = _acceptance(asked, cluster, performance) if cluster.servers else anything
    given = asked.workload
    with problems.of(given if isinstance(given, str) else "workload", argument="workload"):
        workload = read_workload(given, asked.columns, accept)
        if not problems:
            stages = workload.stages
            known = performance or make(stages=stages)
            assert known is not None  # as the trace is read
            workload = fitted(
                workload, cluster, known, asked.foreground_gpus, asked.seed if asked.draw_models else None
            )
            times = _microseconds(asked.round_s), _microseconds(asked.restart_s)
            return Setting(cluster, workload, known, contention, *times, asked.seed, failures, words=asked.words)
    return None
