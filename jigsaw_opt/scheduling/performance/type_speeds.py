"""How fast types of GPU are against each other, for jobs of which only durations are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from jigsaw_opt.errors import argument, malformed, missing_option
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.gpu_types import is_part, matching_types
from jigsaw_opt.problem.workload import TraceJob

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
