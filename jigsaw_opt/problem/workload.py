"""The workload of a cluster: which jobs arrive when, and how much each has to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Integral

from jigsaw_opt.errors import Code, InvalidInputError, Problem, wrong_input
from jigsaw_opt.text import printable

LARGEST = 2**53 - 1
"""The largest time, count or size of an input, which every reader of JSON keeps exactly."""
MOST_GPUS = 10**6
"""The most GPUs that a job asks for, or that a cluster has which is scheduled while it runs."""
LONGEST_NAME = 1000
"""Most characters of a name."""
_LONGEST_QUOTE = 60
_MOST_REASONS = 8
_SECOND = "seconds"
DURATION_UNITS_US: Mapping[str, int] = {_SECOND: 1_000_000, "milliseconds": 1_000, "microseconds": 1}
"""Models of jobs that state only how long they run, with the microseconds of one iteration; the largest unit first."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of a trace. Its depth rule is the policy's to choose, not the trace's.

    Parameters
    ----------
    name
        Its name, unique in its workload.
    submit_us
        Time of its submission, from the beginning of the workload.
    model
        Name of its model, which the performance model knows.
    gpus
        Number of GPUs that it asks for.
    iterations
        Iterations at full depth on the GPUs that it asks for; None for as many as its model needs,
        where the performance model knows how many those are.
    min_gpus, max_gpus
        The fewest and the most GPUs that it can run on; 0 for exactly `gpus`.
    weight
        Its weight in weighted measures, at least 1.
    batch_size
        Samples of an iteration over all GPUs; None for the model's own, or the performance model's choice.
    foreground
        Whether it goes before all jobs that are not.
    time_limit_us
        Longest time that it may run, as its user said when it was submitted.
    start_us, end_us
        Its first start and its last end by the trace, from the beginning of the workload.
    user, account, queue, qos
        Who submitted it, on whose account, to which queue (a partition, a virtual cluster), with what quality of
        service.
    priority
        Its priority as the trace has it, the greater the sooner.
    gpu_types
        The types of GPU that it may run on, all its GPUs of one type; None for any.
    ran_on
        The type of GPU that the recorded duration is of.
    preemptible
        Whether it may be stopped for another job and run again later.
    after
        Names of jobs, or of arrays, that must have ended before it may start.
    array, array_limit
        The array of which it is a task, and at most how many of its tasks run at a time.
    nodes
        Names of the nodes on which it ran or runs.
    held_by
        What holds it back although there is room, such as ``begin`` or ``reservation``. Its waiting tells nothing of a
        policy, so measures of waiting leave it out.
    """

    name: str
    submit_us: int
    model: str
    gpus: int
    iterations: int | None = None
    min_gpus: int = 0
    max_gpus: int = 0
    weight: int = 1
    batch_size: int | None = None
    foreground: bool = False
    time_limit_us: int | None = None
    start_us: int | None = None
    end_us: int | None = None
    user: str | None = None
    account: str | None = None
    queue: str | None = None
    qos: str | None = None
    priority: int | None = None
    gpu_types: tuple[str, ...] | None = None
    ran_on: str | None = None
    preemptible: bool | None = None
    after: tuple[str, ...] | None = None
    array: str | None = None
    array_limit: int | None = None
    nodes: tuple[str, ...] | None = None
    held_by: str | None = None

    def __post_init__(self) -> None:
        for name in STATED_LISTS:
            if isinstance(value := getattr(self, name), list):
                object.__setattr__(self, name, tuple(value))  # as JSON has them
        for name in _RANGES:
            value = getattr(self, name)
            if type(value) is not int and isinstance(value, Integral) and not isinstance(value, bool):
                object.__setattr__(self, name, int(value))  # as those of numpy

    @classmethod
    def lasting(cls, name: str, submit_us: int, gpus: int, duration_us: int) -> TraceJob:
        """Return a job that states only how long it runs: an iteration is the largest unit that divides the duration.

        Parameters
        ----------
        name, submit_us, gpus
            Name, submission and GPUs, as for any job.
        duration_us
            Microseconds on the GPUs that it asks for; 0, which logs in seconds write for less than one, is a second.
        """
        duration_us = duration_us or DURATION_UNITS_US[_SECOND]
        model, unit_us = next(unit for unit in DURATION_UNITS_US.items() if duration_us % unit[1] == 0)
        return cls(name, submit_us, model, gpus, duration_us // unit_us)

    @property
    def duration_us(self) -> int | None:
        """Duration on the GPUs that it asks for, in microseconds, where it states no more than that."""
        unit_us = DURATION_UNITS_US.get(self.model)
        return None if unit_us is None or self.iterations is None else self.iterations * unit_us

    @property
    def measured_on(self) -> str | None:
        """The type of GPU that its duration is of, where it is known: the only one that it may run on is."""
        only = self.gpu_types[0] if self.gpu_types and len(self.gpu_types) == 1 else None
        return self.ran_on or only

    @property
    def fewest(self) -> int:
        """Smallest number of GPUs that it can run on."""
        return self.min_gpus or self.gpus

    @property
    def most(self) -> int:
        """Largest number of GPUs that it can run on."""
        return self.max_gpus or self.gpus

    def states(self, name: str) -> bool:
        """Return whether a field that need not be given, such as ``priority``, says something of this job."""
        return bool(getattr(self, name) != _DEFAULTS[name])


_DEFAULTS: Mapping[str, object] = {one.name: one.default for one in fields(TraceJob)}
_OTHER_RANGES: Mapping[str, tuple[int, int]] = {
    "submit_us": (0, LARGEST),
    "gpus": (1, MOST_GPUS),
    **dict.fromkeys(("min_gpus", "max_gpus"), (0, MOST_GPUS)),
    **dict.fromkeys(("start_us", "end_us"), (-LARGEST, LARGEST)),
    "priority": (0, LARGEST),
}
_RANGES: Mapping[str, tuple[int, int]] = {
    one.name: _OTHER_RANGES.get(one.name, (1, LARGEST)) for one in fields(TraceJob) if one.type in ("int", "int | None")
}
"""The least and the greatest of the whole numbers of a job."""
STATED_LISTS = ("gpu_types", "after", "nodes")
"""Fields of a job that a trace may state as several names."""
_IF_NONE = {"gpu_types": "any type", "after": "no job", "nodes": "that they are not known"}
_MAY_BE_NONE = tuple(name for name, default in _DEFAULTS.items() if default is None)
STATED = tuple(name for name in _MAY_BE_NONE if name not in ("iterations", "batch_size"))
"""Fields of a job that a trace may state beyond its work; each is None where it does not."""
_TEXTS = tuple(one.name for one in fields(TraceJob) if one.type in ("str", "str | None"))


def job_problems(job: TraceJob) -> Iterator[Problem]:
    """Yield what is wrong with a job whatever the cluster is; the path of a problem is the field.

    Types are exact: a truth value is no integer, and neither is ``2.0``.
    """
    for name in _TEXTS:
        if getattr(job, name) is None and name in _MAY_BE_NONE:
            continue
        if not is_name(getattr(job, name)):
            value = getattr(job, name)
            code: Code = "out-of-range" if isinstance(value, str) else "wrong-type"
            told = f"must be a text of 1 to {LONGEST_NAME} characters; is {_shown(value)}"
            yield Problem(name, told, code=code)
    whole = True
    for name, (low, high) in _RANGES.items():
        value = getattr(job, name)
        if value is None and name in _MAY_BE_NONE:
            continue
        if type(value) is not int or not low <= value <= high:
            whole = whole and "gpus" not in name
            most = "2^53 - 1" if high == LARGEST else high
            least = "-(2^53 - 1)" if low == -LARGEST else low
            code = "out-of-range" if type(value) is int else "wrong-type"
            yield Problem(name, f"must be an integer from {least} to {most}; is {_shown(value)}", code=code)
    for name in STATED_LISTS:
        value = getattr(job, name)
        if value is not None and not (type(value) is tuple and value and all(map(_is_listed, value))):
            is_empty = f"empty, and None means {_IF_NONE[name]}"
            found = is_empty if value == () else _shown(value)
            told = f"must be names of 1 to {LONGEST_NAME} characters, none with a bar; is {found}"
            yield Problem(name, told, code="empty" if value == () else "wrong-type")
    for name in ("foreground", "preemptible"):
        value = getattr(job, name)
        if type(value) is not bool and not (value is None and name in _MAY_BE_NONE):
            yield Problem(name, f"must be true or false; is {_shown(value)}", code="wrong-type")
    if whole and not job.fewest <= job.gpus <= job.most:
        told = f"is not between min_gpus and max_gpus: {job.gpus}, not from {job.fewest} to {job.most}"
        yield Problem("gpus", told, code="contradiction")


def is_name(value: object) -> bool:
    """Return whether a value is a text that can name something: not empty, not long, and writable as UTF-8."""
    if type(value) is not str or not 0 < len(value) <= LONGEST_NAME:
        return False
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)


def _is_listed(value: object) -> bool:
    """Return whether a value is a name that can stand between bars."""
    return is_name(value) and "|" not in str(value)


def _shown(value: object) -> str:
    """Return a value as a message has it: short and printable, whatever it is."""
    if type(value) is str:
        return printable(repr(value if len(value) <= _LONGEST_QUOTE else f"{value[:_LONGEST_QUOTE]}..."))
    if type(value) is int and abs(value) > 10**30:
        return "an integer of more than 30 digits"
    return repr(value) if value is None or type(value) in (bool, int, float) else f"a {type(value).__name__}"


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Times for which one iteration of a model uses each resource, in microseconds (Muri, SIGCOMM 2022, section 3)."""

    load_us: int
    compute_us: int
    network_us: int
    iteration_us: int
    """Time of a whole iteration alone; less than the sum of the stages where they overlap."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The jobs of a trace, in order of submission (equal times: in the trace's order).

    Parameters
    ----------
    name
        Its name.
    jobs
        At least one.
    stages
        Stage times by model, where the trace itself gives them.
    left_out
        Number of jobs of the trace that are not among `jobs`, by the reason why.
    remarks
        What else was decided in reading the trace, with how often.
    unfinished
        Those of the jobs left out that wait or run, where the trace tells of them: how long they last is not known.
    unfinished_reasons
        Number of jobs of `left_out` that these are, by reason.
    first_us
        Time 0 in microseconds since 1970, where the trace has dates.
    zoned
        Whether these dates have a zone; else they are those of a local clock.

    Raises
    ------
    InvalidInputError
        The jobs have no order: some is no `TraceJob`, or its time of submission no integer.
    """

    name: str
    jobs: tuple[TraceJob, ...]
    stages: Mapping[str, StageTimes] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    remarks: Mapping[str, int] = field(default_factory=dict)
    unfinished: tuple[TraceJob, ...] = field(default=(), repr=False)
    unfinished_reasons: Mapping[str, int] = field(default_factory=dict, repr=False)
    first_us: int | None = field(default=None, repr=False)
    zoned: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.jobs, Iterable):
            raise wrong_input("$.jobs", f"must be a list of jobs; is {_shown(self.jobs)}", code="wrong-type")
        jobs = tuple(self.jobs)
        if not all(isinstance(job, TraceJob) and type(job.submit_us) is int for job in jobs):
            found = ((k, problem) for k, job in enumerate(jobs) for problem in _problems(job))
            raise InvalidInputError(replace(problem, path=f"$.jobs[{k}]{problem.path}") for k, problem in found)
        object.__setattr__(self, "jobs", tuple(sorted(jobs, key=lambda job: job.submit_us)))

    def reading_told(self, *, with_unfinished: bool = False) -> list[str]:
        """Return sentences on the jobs that were left out and on what else was decided; none where nothing was.

        Parameters
        ----------
        with_unfinished
            Whether the jobs that wait or run are used as well.
        """
        left_out, kept = dict(self.left_out), len(self.jobs)
        if with_unfinished:
            left_out = {why: count - self.unfinished_reasons.get(why, 0) for why, count in left_out.items()}
            kept += len(self.unfinished)
        told = left_out_told({why: count for why, count in left_out.items() if count}, kept)
        return [*([told] if told else []), *(f"{remark}: {count:,}" for remark, count in self.remarks.items())]


def _problems(job: object) -> Iterator[Problem]:
    """Yield what is wrong with what should be a job, with paths that begin at it."""
    if isinstance(job, TraceJob):
        yield from (replace(problem, path=f".{problem.path}") for problem in job_problems(job))
    else:
        yield Problem("", f"must be a TraceJob; is {_shown(job)}", code="wrong-type")


def left_out_told(left_out: Mapping[str, int], kept: int) -> str:
    """Return a sentence as in ``34 of 372 jobs left out: 20 cancelled while pending, 14 without a GPU``."""
    total = sum(left_out.values())
    if not total:
        return ""
    reasons = sorted(left_out.items(), key=lambda reason: (-reason[1], reason[0]))
    told = [f"{count:,} {why}" for why, count in reasons[:_MOST_REASONS]]
    if others := sum(count for _, count in reasons[_MOST_REASONS:]):
        told.append(f"{others:,} for other reasons")
    return f"{total:,} of {total + kept:,} jobs left out: {', '.join(told)}"
