"""What is foretold of the start of a waiting job: an interval, with its probability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor
from pkgutil import resolve_name

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.cluster_queue import ClusterQueue, PastJobs
from jigsaw_opt.scheduling.plain import Plain
from jigsaw_opt.scheduling.policy import Policy, PolicySetting
from jigsaw_opt.text import called, counted, duration, printable

__all__ = ["MOST_DAYS", "StartPrediction", "predicted"]

MOST_DAYS = 128
"""A start later than that is not looked for."""
_SHARES = (0.5, 0.9)
_PREDICTOR = "jigsaw_opt.simulation.predicting:predict_start_live"
"""The simulation stands on this room; so it is found by name, as policies are."""


@dataclass(frozen=True, slots=True)
class StartPrediction:
    """When a waiting job starts, in simulations of its queue.

    Parameters
    ----------
    job
        Its name.
    now_us
        The time at which was asked.
    starts_us
        When it started in each simulation, the earliest first, without those in which it did not.
    samples
        How many simulations there were.
    """

    job: str
    now_us: int
    starts_us: tuple[int, ...]
    samples: int

    def interval_us(self, share: float) -> tuple[int | None, int | None]:
        """Return between which times it starts with a probability of `share`; None for later than was simulated."""
        rank = floor(round((self.samples + 1) * (1.0 - share) / 2, 6))
        ranks = max(rank - 1, 0), min(self.samples - rank, self.samples - 1)
        low, high = (self.starts_us[k] if k < len(self.starts_us) else None for k in ranks)
        return low, high

    @property
    def median_us(self) -> int | None:
        """The time by which it has started in half of the simulations; None for later than was simulated."""
        return self.interval_us(0.0)[0]

    def __str__(self) -> str:
        half, most = (self._told(share) for share in _SHARES)
        return (
            f"{called('job', printable(self.job))} starts {half} with a probability of 50 %, and {most} with 90 %"
            f" ({counted(self.samples, 'simulation')} of the queue)."
        )

    def _told(self, share: float) -> str:
        low, high = (
            None if time_us is None else duration(time_us - self.now_us) for time_us in self.interval_us(share)
        )
        if low is None:
            return f"in more than {MOST_DAYS} days, or never,"
        return f"in {low} or later" if high is None else f"in {low}" if low == high else f"in {low} to {high}"

    def plain(self) -> Plain:
        """Return all figures as values of JSON."""
        intervals = {f"{share:.0%}".removesuffix("%"): list(self.interval_us(share)) for share in _SHARES}
        return {
            "job": self.job,
            "now_us": self.now_us,
            "median_us": self.median_us,
            "intervals_us": intervals,
            "samples": self.samples,
            "not_started": self.samples - len(self.starts_us),
        }


def predicted(
    setting: PolicySetting,
    policy: Policy,
    options: Mapping[str, str],
    queue: ClusterQueue,
    job: int,
    past: Sequence[TraceJob],
    samples: int,
    seed: int,
) -> StartPrediction:
    """Return when a job of a queue will start under a policy; see `LiveScheduler.when` for the last parameters."""
    found: StartPrediction = resolve_name(_PREDICTOR)(
        setting, policy, options, queue, job, PastJobs(tuple(past)) if past else None, samples, seed
    )
    return found
