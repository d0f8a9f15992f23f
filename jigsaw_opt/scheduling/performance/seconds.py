"""Jobs that last a given time on the GPUs that they ask for, wherever these are: for traces that tell no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path

from jigsaw_opt.errors import argument, malformed, missing_option, unsupported
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.gpu_types import is_part, matching_types
from jigsaw_opt.problem.workload import DURATION_UNITS_US, TraceJob
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.performance.protocol import ByIterations, Speed, mixed_types, rate_of

_LEAST, _MOST = Decimal("1e-6"), Decimal("1e6")


def _read(text: str) -> dict[str, Fraction]:
    speeds: dict[str, Fraction] = {}
    for word in text.split(","):
        name, equals, number = (part.strip() for part in word.partition("="))
        try:
            speed = Decimal(number)
        except InvalidOperation:
            speed = Decimal("NaN")
        if not equals or not name or name in speeds or not (speed.is_finite() and _LEAST <= speed <= _MOST):
            raise malformed("speeds", f"speeds are TYPE=SPEED between commas, each once and above 0, not {word!r}")
        speeds[name] = Fraction(speed)
    return speeds


ESTIMATES = _read("k80=0.13,t4=0.20,p100=0.41,v100=0.44,l40s=0.90,a100=1,h100=2.8,h200=3.1,mi300x=3.9,b200=6.5")
"""Speeds of types of GPU. Those of types with a data sheet (`jigsaw_opt.instances.gpus`) are the geometric mean, over
the bundled networks, of the times of an iteration that follow from it. ``k80`` and ``p100`` are ``v100`` times the
geometric mean of Gavel's measured ratios (OSDI 2020, 26 kinds of jobs on one GPU, from 0.09 to 1.5 and from 0.5 to
2.3)."""


@dataclass(frozen=True)
class TypeSpeeds:
    """Relative speeds of types of GPU.

    `speeds`: the speed of each type, by its name. `reference`: what durations are taken to be of that do not say on
    which type: a type, or empty for a GPU of speed 1.
    """

    speeds: Mapping[str, Fraction]
    reference: str = ""

    @property
    def figures(self) -> tuple[object, ...]:
        """The speeds in order, and the reference."""
        return sorted(self.speeds.items()), self.reference

    def of(self, gpu_type: str) -> Fraction | None:
        """Return the speed of a type, or None where it is not known; that of whole GPUs is not that of their parts."""
        names = matching_types(gpu_type, self.speeds)
        found = {self.speeds[name] for name in names if is_part(name) or not is_part(gpu_type)}
        return found.pop() if len(found) == 1 else None

    def unknown(self, job: TraceJob) -> str | None:
        """Return that the speed is not known of the GPUs that a job ran on; None where it is."""
        of = job.measured_on
        if of is None or self.of(of) is not None:
            return None
        return f"ran on {of!r}, of which no speed is known; {_option(self.speeds, of)} says it"

    def factor(self, job: TraceJob, gpu_type: str) -> Fraction:
        """Return how many times as fast a job is on a type as on the GPUs that its duration is of."""
        of = job.measured_on or self.reference
        before = self.of(of) if of else Fraction(1)
        now = self.of(gpu_type)
        assert before is not None and now is not None
        return now / before

    def best(self, job: TraceJob, counts: Mapping[str, int]) -> Fraction:
        """Return `factor` on the fastest type that a job may have and of which there are as many GPUs as it asks for.

        `counts`: how many GPUs of each type there are. Where none has enough, all count.
        """
        allowed = [name for asked in job.gpu_types or counts for name in matching_types(asked, counts)]
        wide = [name for name in allowed if counts[name] >= job.gpus]
        return max(self.factor(job, name) for name in wide or counts)


def speeds_of(text: str, cluster: Cluster) -> TypeSpeeds | None:
    """Return the speeds of a cluster's types: from words such as ``a100=1,v100=0.43``, or the estimates.

    None where nothing is said and the cluster has one type: then durations are those on its GPUs.

    `text`: the words. They say all that is known; empty for the estimates. `cluster`: the cluster. Durations that do
    not say on which type they were are taken, with the estimates, to be of the type of which it has most GPUs.
    """
    counts = Counter(cluster.gpus.types)
    if not text and len(counts) <= 1:
        return None
    found = TypeSpeeds(_read(text)) if text else TypeSpeeds(ESTIMATES, max(counts, key=lambda name: counts[name]))
    unknown = [name for name in counts if found.of(name) is None]
    if unknown:
        known = found.speeds if text else {name: speed for name in counts if (speed := found.of(name)) is not None}
        option = _option(known or {"a100": Fraction(1)}, *unknown)
        message = f"how fast GPUs of type {', '.join(map(repr, unknown))} are is not known; {option} says it"
        raise missing_option("speeds", message)
    return found


def _option(known: Mapping[str, Fraction], *unknown: str) -> str:
    """Return the option that states the known speeds and those that are wanted."""
    stated = [f"{name}={float(speed):.15g}" for name, speed in known.items()]
    return argument("speeds", ",".join([*stated, *(f"{name}=SPEED" for name in unknown)]))


_SECOND_US = 1_000_000


class ByTypeSpeeds(ByIterations):
    """Performance models whose iterations are as much faster or slower as the types of GPU that a job gets.

    `cluster, speeds`: the types of GPU and how fast they are, where there are several; else all GPUs are alike.
    """

    def __init__(self, cluster: Cluster | None = None, speeds: TypeSpeeds | None = None) -> None:
        self.type_speeds = speeds
        self._type_of = () if cluster is None else cluster.gpus.types
        self._counts = Counter(self._type_of)

    def unknown(self, job: TraceJob) -> str | None:
        """Return what is unknown of a job: its number of iterations, or the speed of the GPUs that it ran on."""
        if job.iterations is None:
            return "has no number of iterations"
        return None if self.type_speeds is None else self.type_speeds.unknown(job)

    def refuses(self, share: Share, jobs: Sequence[TraceJob]) -> str | None:
        """Return why a share is refused: its GPUs must be of one type, if types differ."""
        return None if self.type_speeds is None else mixed_types(share, self._type_of)

    def _best(self, job: TraceJob) -> Fraction:
        """Return how many times as fast a job is on the fastest type that it may have and that has enough GPUs."""
        return Fraction(1) if self.type_speeds is None else self.type_speeds.best(job, self._counts)

    def _factor(self, share: Share, job: TraceJob) -> Fraction:
        """Return how many times as fast a job is on the GPUs of a share."""
        return Fraction(1) if self.type_speeds is None else self.type_speeds.factor(job, self._type_of[share.gpus[0]])


class Seconds(ByTypeSpeeds):
    """One iteration a second, on exactly the GPUs asked for, each job alone.

    Jobs of the models ``milliseconds`` and ``microseconds`` have an iteration in each of these, so that no duration of
    a trace is rounded.
    """

    name = "seconds"

    def alone_us(self, job: TraceJob) -> int:
        """Return the time of all its iterations, a second each where its model states no other unit."""
        assert job.iterations is not None
        return round(job.iterations * _iteration_us(job) / self._best(job))

    def refuses(self, share: Share, jobs: Sequence[TraceJob]) -> str | None:
        """Return why a share is refused: a job needs GPUs of its own, of one type, and as many as it asks for.

        The reason, or None where they can.

        `jobs`: the jobs, in the order of ``share.jobs``.
        """
        if (mixed := super().refuses(share, jobs)) is not None:
            return mixed
        if len(jobs) > 1:
            return "durations are known only of jobs that run alone"
        if len(share.gpus) != jobs[0].gpus:
            return f"its duration is known on {jobs[0].gpus} GPUs, not on {len(share.gpus)}"
        return None

    def speeds(self, share: Share, jobs: Sequence[TraceJob], done: Sequence[int]) -> tuple[Speed, ...]:
        """Return the speed of one iteration a second, or a unit that the model states, times that of the type."""
        return (Speed(rate_of(_iteration_us(jobs[0]) / self._factor(share, jobs[0]))),)


class SecondsByType(Seconds):
    """The same on GPUs of several types: an iteration takes the longer, the slower the type is."""

    def __init__(self, cluster: Cluster, speeds: TypeSpeeds) -> None:
        super().__init__(cluster, speeds)
        self._speeds, self.figures = speeds, speeds.figures

    def throughput(self, job: TraceJob, gpu_type: str) -> float:
        """Return iterations a second on a GPU type; 0 where the cluster has fewer of it than the job asks for."""
        if self._counts[gpu_type] < job.gpus:
            return 0.0
        return float(self._speeds.factor(job, gpu_type) * _SECOND_US / _iteration_us(job))


def _iteration_us(job: TraceJob) -> int:
    return DURATION_UNITS_US.get(job.model, _SECOND_US)


def seconds(source: Path | None, cluster: Cluster, speeds: str = "") -> Seconds:
    """Return the performance model; it needs no figures but the speeds of several types of GPU.

    `source`: none, as durations stand in the trace. `speeds`: speeds of the types of GPU, in words; empty where the
    cluster has one type.
    """
    if source is not None:
        raise unsupported("performance", f"performance 'seconds' has no source; what is {source}?")
    found = speeds_of(speeds, cluster)
    return Seconds() if found is None else SecondsByType(cluster, found)
