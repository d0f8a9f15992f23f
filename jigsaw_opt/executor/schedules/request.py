"""What a replay is asked to do. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jigsaw_opt.checking.require import require_correct
from jigsaw_opt.errors import InvalidInputError, Problem, UsageError, argument, missing_option
from jigsaw_opt.planning.partition.result import Partition
from jigsaw_opt.planning.pipeline.torch_csv import StageSchedule, TorchSchedule
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.measured.replay import Policy
from jigsaw_opt.problem.plan import Phase, Plan
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.solvers.options import MOST_THREADS
from jigsaw_opt.text import suggestion

_MOST = 1e6
_PERIODS = 10
"""Repetitions where nobody says how many."""
_OF_TRAINING = (
    *("trusted", "partition", "optimiser", "learning_rate", "averaging", "seed", "warm_up"),
    *("checkpoint", "every", "resume", "device", "backend"),
)
"""Settings that only jobs heed that train."""
_NUMBERS = (
    ("passes", "the number of times that the plan is carried out", 1, inf),
    ("threads", "the number of threads", 1, MOST_THREADS),
    ("warm_up", "the number of rounds before the clock starts", 0, inf),
    ("every", "the number of iterations between checkpoints", 1, inf),
    ("seed", "the seed", 0, 2**31 - 1),
)
"""Numbers by field, what messages call them, and the least and most that they may be."""


class StagedRun(NamedTuple):
    """A job in stages: what its processes do, and the entry by which they are built."""

    schedule: StageSchedule
    entry: Mapping[str, Any]

    @property
    def is_asynchronous(self) -> bool:
        """Whether it is an asynchronous pipeline, whose minibatches are all alike."""
        return isinstance(self.schedule, TorchSchedule) and not self.schedule.iterations


@dataclass(frozen=True, kw_only=True)
class ReplaySettings:
    """Settings for carrying a plan out.

    `passes`: how often to carry it out; None for once, and ten times on the cyclic horizon and of a phased plan. Of
    phases that have a number of repetitions, the most of them. `device, backend, threads`:
    ``cpu`` or ``cuda``, ``gloo`` or ``nccl``, and threads of each process on the CPU. `partition`: what the pipeline
    was made of, or its file: where its model is cut. `optimiser, learning_rate, averaging, seed`: how all jobs train
    that do not say so themselves; ``sgd`` has momentum. The seed is that of parameters and data of the first job, the
    next number that of the next job. `warm_up`: times that every iteration of a job that differs in its levels is run
    before the clock starts. `time_triggered`: whether nothing starts before its planned start. `baseline, foreground`:
    replay the jobs a second time, the usual way; or, as ``alone``, those of these names without the others. If none is
    named, the only one that has a cycle-time limit. `checkpoint, every, resume`: A folder, after how many iterations of
    a job its workers are saved there (None: only at the end), and whether to go on from what it holds. `dry`: whether
    jobs only sleep, each operation as long as the plan says.
    """

    passes: int | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    backend: Literal["gloo", "nccl"] = "gloo"
    threads: int = 1
    trusted: tuple[str, ...] = ()
    partition: Partition | Path | None = None
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"
    learning_rate: float = 0.01
    averaging: Literal["avg_w_count", "avg"] = "avg_w_count"
    seed: int = 0
    warm_up: int = 2
    time_triggered: bool = False
    baseline: Policy | None = None
    foreground: tuple[str, ...] = ()
    checkpoint: Path | None = None
    every: int | None = None
    resume: bool = False
    dry: bool = False

    def __post_init__(self) -> None:
        """Refuse what is out of range or does not fit together."""
        if problems := tuple(self.problems()):
            raise UsageError.of(problems)

    @property
    def options(self) -> dict[str, Any]:
        """Options of the optimiser."""
        return {"lr": self.learning_rate, **({"momentum": 0.9} if self.optimiser == "sgd" else {})}

    def problems(self) -> Iterator[Problem]:
        """Yield everything that is out of range or does not fit together."""
        for name, called, least, most in _NUMBERS:
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                bound = f"at least {least}" if value < least else f"at most {most}"
                yield Problem(name, f"{called} is {bound}, not {value}", code="out-of-range")
        if not 0 < self.learning_rate < _MOST:
            told = f"the learning rate is a number above 0, not {self.learning_rate}"
            yield Problem("learning_rate", told, code="out-of-range")
        if self.checkpoint is None and (self.resume or self.every is not None):
            told = f"checkpoints need a folder: {argument('checkpoint')}, to be written every so many iterations"
            yield Problem("checkpoint", f"{told} or to go on from", code="missing-option")
        if self.foreground and self.baseline != "alone":
            told = "only a baseline of the foreground alone asks which jobs are in it"
            yield Problem("foreground", f"{told}: {argument('baseline', 'alone')}", code="missing-option")
        for name in _OF_TRAINING if self.dry else ():
            if getattr(self, name) != getattr(ReplaySettings, name):
                told = f"{argument(name)}: nothing is trained in a dry run, so nobody heeds it"
                yield Problem(name, told, code="unsupported")
        for name in self.trusted:
            if ":" not in name:
                yield Problem(
                    "trusted", f"{argument('trusted')} must be module:function; is {name!r}", code="malformed"
                )
        if self.backend == "nccl" and self.device != "cuda":
            yield Problem("backend", "the backend nccl needs the device cuda", code="not-together")


def foreground_of(instance: Instance, foreground: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the jobs in the foreground: those that are named, or else the only one with a limit.

    Where several jobs have a cycle-time limit, that of some may be the least rate of a background job.
    """
    names = [job.name for job in instance.jobs]
    if unknown := [name for name in foreground if name not in names]:
        wrong = ((f'no job is called "{name}"', suggestion(name, names)) for name in unknown)
        raise InvalidInputError(Problem("$.jobs", *told, code="unknown-name") for told in wrong)
    limited = tuple(job.name for job in instance.jobs if job.pace_us is not None)
    if not foreground and len(limited) != 1:
        has = f"jobs {', '.join(limited)} have" if limited else "no job has"
        named = argument("foreground", "NAME[,NAME]")
        message = f"{has} a cycle-time limit, so it has to be said which ones are in the foreground: {named}"
        raise missing_option("foreground", message)
    found = tuple(dict.fromkeys(foreground or limited))
    if len(found) == len(names):
        message = "all jobs are in the foreground, so they take alone what they take together"
        raise UsageError(message, code="contradiction", path="foreground")
    return found


@dataclass(frozen=True)
class ReplayRequest(ReplaySettings):
    """A plan and how to carry it out.

    Parameters
    ----------
    instance, plan
        A plan that is correct for the instance.

    Raises
    ------
    UsageError
        Settings are out of range, or do not fit together or to the plan; with every problem.
    CheckFailedError
        The plan breaks a rule.
    InvalidInputError
        There is no job of a name in the foreground.
    """

    instance: Instance
    plan: Plan

    def __post_init__(self) -> None:
        """Say how often the plan is carried out and what its foreground is; refuse what does not fit, or is wrong."""
        if self.passes is None:
            object.__setattr__(self, "passes", _PERIODS if self._is_counted or self.plan.period_us else 1)
        super().__post_init__()
        require_correct(self.instance, self.plan)
        if self.baseline == "alone":
            object.__setattr__(self, "foreground", foreground_of(self.instance, self.foreground))

    @property
    def _is_counted(self) -> bool:
        """Whether the plan has phases with a number of repetitions."""
        return any(phase.is_counted for _, _, phase in self.plan.all_phases())

    def problems(self) -> Iterator[Problem]:
        """Yield everything that is out of range, does not fit together, or does not fit the plan."""
        yield from super().problems()
        heeding = [job for job in self.instance.jobs if not self.trains_itself(job)]
        for name in self.changed() if not heeding else ():
            yield Problem(name, "every job trains as its own code says, so nobody heeds it", code="unsupported")
        if self.averaging != "avg_w_count" and not self.instance.data_parallel_jobs:
            yield Problem("averaging", "no job is data-parallel, so nobody heeds it", code="unsupported")
        for index, job in enumerate(self.instance.jobs):
            if isinstance(job, Job) and job.exchange is not None and not self.dry:
                told = f"job {job.name!r} exchanges less than all gradients, which no run does"
                yield Problem(
                    f"$.jobs[{index}].exchange", f"{told}; {argument('dry')} carries out its times", code="unsupported"
                )
        if self._is_counted and self.baseline is not None:
            told = "a baseline is for plans that list all iterations: jigsaw solve --solver search makes one"
            yield Problem("baseline", told, code="unsupported")

    def changed(self) -> list[str]:
        """Return the settings of the optimiser that are not the usual ones."""
        return [name for name in ("optimiser", "learning_rate") if getattr(self, name) != getattr(ReplaySettings, name)]

    def trains_itself(self, job: Job | TaskGraphJob) -> bool:
        """Whether a data-parallel job trains as code of the user says."""
        return job.model is not None and "train" in (self.instance.models[job.model].executor or {})

    def cut(self) -> ReplayRequest:
        """Return the same with no more repetitions of phases in the plan than are carried out."""
        groups = tuple(replace(group, phases=tuple(map(self._cut, group.phases))) for group in self.plan.groups)
        found = copy(self)
        object.__setattr__(found, "plan", replace(self.plan, groups=groups))
        return found

    def _cut(self, phase: Phase) -> Phase:
        if not phase.is_counted:
            return phase
        assert self.passes is not None, "problems were refused"
        return replace(phase, repeats=min(phase.count, self.passes))
