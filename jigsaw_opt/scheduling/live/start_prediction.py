"""What is foretold of the start of a waiting job: an interval, with its probability, from the queue that it is in.

Intervals that hold as often as they say, whatever is wrong with the model behind them: conformal prediction.

How far values of the past lay outside of the intervals that were foretold for them tells how far the ends of the next
interval are to be moved: each by the quantile of its own errors (conformalised quantile regression: Romano, Patterson
and Candès, NeurIPS 2019), measured in units of how sure the model was (Papadopoulos, Gammerman and Vovk, ICAI 2008).
If the past and the next value could as well have come in another order, the interval holds with at least the
probability that is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, floor, log
from pkgutil import resolve_name
from typing import Any, NamedTuple

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.plain import Plain
from jigsaw_opt.scheduling.policy import Observation
from jigsaw_opt.text import called, counted, duration, printable


@dataclass(frozen=True, slots=True)
class ClusterQueue(Observation):
    """The jobs of a cluster at a moment, those that wait and those that run, as a policy would see them.

    What is down stays so. `next_job`: number of the next job that is submitted. `memory`: what the policy remembers;
    None where it begins, with all jobs new to it. `wake_us`: when it asked to be woken. `unknown`: jobs that wait for a
    time, for others or for their array, and that a policy with a memory has not been told of. `apart`: jobs that run,
    and stay where they are until they end: the policy sees neither them nor their GPUs.
    """

    next_job: int = 0
    memory: Plain | None = None
    wake_us: int | None = None
    unknown: tuple[int, ...] = ()
    apart: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class PastJobs:
    """The jobs up to a moment, from which run times and arrivals are drawn.

    `ended`: jobs that ended, in this order, each with its duration. `arrive`: whether later jobs arrive as they did
    before.
    """

    ended: tuple[TraceJob, ...]
    arrive: bool = True


class Foretold(NamedTuple):
    """An interval of a model, and the unit in which its errors are measured: larger where the model is less sure."""

    low: float
    high: float
    unit: float


def corrected(foretold: Foretold, past: Sequence[tuple[Foretold, float]], share: float) -> tuple[float, float]:
    """Return the ends of an interval that holds with a probability of `share`.

    `past`: earlier intervals of the same model and probability, at least one, each with the true value.
    """
    rank = min(ceil((len(past) + 1) * (1 + share) / 2), len(past)) - 1
    early = sorted((one.low - value) / one.unit for one, value in past)[rank]
    late = sorted((value - one.high) / one.unit for one, value in past)[rank]
    low, high = foretold.low - early * foretold.unit, foretold.high + late * foretold.unit
    return (low, high) if low <= high else ((low + high) / 2,) * 2


MOST_DAYS = 128
"""A start later than that is not looked for."""
_SHARES = (0.5, 0.9)
_LATEST_US = MOST_DAYS * 86_400_000_000
FEWEST_ANSWERS = 20
"""Fewer answers tell too little of the ends of an interval."""
FEWEST_SAMPLES = 19
"""Of fewer simulations the earliest and the latest start lie closer than an interval of 90 % does."""
_ALIKE_US = 600_000_000
"""Waits well below this are alike."""
_SUREST = 0.3
"""Added to the width, as a difference of logarithms, which is the unit of errors."""
_PREDICTOR = "jigsaw_opt.simulation.prediction.predicting:predict_start_live"
"""The simulation stands on this room; so it is found by name, as policies are."""


@dataclass(frozen=True, slots=True)
class StartPrediction:
    """The starts of a waiting job in simulations of its queue.

    `now_us`: the time at which was asked. `starts_us`: when it started in each simulation, the earliest first, without
    those in which it did not. `answers`: what was foretold in the past in the same way. From `FEWEST_ANSWERS` on they
    correct the intervals. `warning`: why it is not to be trusted: the job has waited although it would start at once.
    Empty where it has not.
    """

    job: str
    now_us: int
    starts_us: tuple[int, ...]
    samples: int
    answers: tuple[PastAnswer, ...] = ()
    warning: str = ""

    def interval_us(self, share: float) -> tuple[int | None, int | None]:
        """Return between which times it starts with a probability of `share`; None for later than was simulated.

        Where there are enough answers, errors of the past correct what was simulated. They are measured as differences
        of logarithms of waits, as a wait of ten hours is foretold less exactly than one of ten minutes.
        """
        if len(self.answers) < FEWEST_ANSWERS:
            return self.simulated_us(share)
        ends = [self._corrected_us(level) for level in (*_SHARES, share) if level <= share]
        low_us, high_us = min(low_us for low_us, _ in ends), max(high_us for _, high_us in ends)
        low, high = (None if wait_us >= _LATEST_US else self.now_us + wait_us for wait_us in (low_us, high_us))
        return low, high

    def _corrected_us(self, share: float) -> tuple[int, int]:
        """Return between which waits it starts; as each is corrected on its own, one may not hold a narrower one."""
        past = [(one.prediction.foretold(share), _logarithm(one.wait_us)) for one in self.answers]
        low, high = corrected(self.foretold(share), past, share)
        return _wait_us(low), _wait_us(high)

    def foretold(self, share: float) -> Foretold:
        """Return the logarithms of the waits in the simulations, as `corrected` takes them."""
        (low, high), (lowest, highest) = self._logarithms(share), self._logarithms(_SHARES[-1])
        return Foretold(low, high, highest - lowest + _SUREST)

    def _logarithms(self, share: float) -> tuple[float, float]:
        starts_us = self.simulated_us(share)
        low, high = (_logarithm(_LATEST_US if at_us is None else at_us - self.now_us) for at_us in starts_us)
        return low, high

    def simulated_us(self, share: float) -> tuple[int | None, int | None]:
        """Return between which times it starts in a share of the simulations; None for later than was simulated."""
        rank = floor(round((self.samples + 1) * (1.0 - share) / 2, 6))
        ranks = max(rank - 1, 0), min(self.samples - rank, self.samples - 1)
        low, high = (self.starts_us[k] if k < len(self.starts_us) else None for k in ranks)
        return low, high

    @property
    def median_us(self) -> int | None:
        """The time by which it has started in half of the simulations; None for later than was simulated."""
        return self.interval_us(0.0)[0]

    def __str__(self) -> str:
        is_corrected = len(self.answers) >= FEWEST_ANSWERS
        half, most = (self._told(self.interval_us(share)) for share in _SHARES)
        by = f", corrected by {counted(len(self.answers), 'answer')}" if is_corrected else ""
        told = (
            f"{called('job', printable(self.job))} starts {half} with a probability of 50 %, and {most} with 90 %"
            f" ({counted(self.samples, 'simulation')} of the queue{by})."
        )
        if is_corrected:
            half, most = (self._told(self.simulated_us(share)) for share in _SHARES)
            told += f"\nAs simulated: {half} with 50 %, and {most} with 90 %."
        return f"{told}\nWarning: {self.warning}." if self.warning else told

    def _told(self, interval_us: tuple[int | None, int | None]) -> str:
        low, high = (None if time_us is None else duration(time_us - self.now_us) for time_us in interval_us)
        if low is None:
            return f"in more than {MOST_DAYS} days, or never,"
        return f"in {low} or later" if high is None else f"in {low}" if low == high else f"in {low} to {high}"

    def plain(self) -> Plain:
        """Return all figures of the prediction as values of JSON."""
        intervals = {f"{share:.0%}".removesuffix("%"): list(self.interval_us(share)) for share in _SHARES}
        return {
            "job": self.job,
            "now_us": self.now_us,
            "median_us": self.median_us,
            "intervals_us": intervals,
            "answers": len(self.answers),
            "samples": self.samples,
            "not_started": self.samples - len(self.starts_us),
            "warnings": [self.warning] if self.warning else [],
        }


class PastAnswer(NamedTuple):
    """A past prediction for a job, and how long it then waited, in microseconds."""

    prediction: StartPrediction
    wait_us: int


def _logarithm(wait_us: int) -> float:
    return log(max(0, wait_us) + _ALIKE_US)


def _wait_us(logarithm: float) -> int:
    return max(0, round(exp(min(logarithm, _logarithm(_LATEST_US)))) - _ALIKE_US)


def predicted(*question: Any) -> StartPrediction:
    """Return when a job of a queue will start under a policy; `question`: what `predict_start_live` takes."""
    found: StartPrediction = resolve_name(_PREDICTOR)(*question)
    return found
