"""Counts of what a reader of traces leaves out, by the reason why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from jigsaw_opt.problem.workload import StageTimes, TraceJob, Workload

NO_GPU = "without a GPU"
NEVER_STARTED = "never started"
STILL_RUNNING = "not ended"
REPEATED = "with the name of a job before"
MOST_SPARED = 1000
"""The most problems that are kept of records that are left out."""
_WRONG = "with a record that is wrong: "


def wrong_record(message: str) -> str:
    """Return the reason why a record with this problem is left out, without the value that is wrong."""
    rule, broken, _ = message.partition(", not")  # as in "gpus is a number, not 'two'"
    if broken and not rule.endswith(" is expected"):
        rule = rule.replace(" is ", " is not ", 1)
    return _WRONG + rule.partition(": ")[0]


def is_hopeless(wrong: int, right: int) -> bool:
    """Return whether no record is right, or nine of ten are wrong: then one fault may be in all of them."""
    return wrong > 9 * right


class Unfinished(NamedTuple):
    """A job that waits or runs, which is left out because how long it lasts is not known.

    `job`: what is known of it; it runs where it has a start. `reason`: why it is left out, as of `Tally.leave_out`.
    """

    job: TraceJob
    reason: str = STILL_RUNNING

    @classmethod
    def of(cls, name: str, submit_us: int, gpus: int, reason: str = STILL_RUNNING, **stated: Any) -> Unfinished:
        """Return the job of which the trace states no more than this."""
        return cls(TraceJob(name, submit_us, "seconds", gpus, **stated), reason)


Found = TraceJob | Unfinished | str
"""What a record tells: a job, one that has not ended, or why there is none."""


class Tally:
    """Counts of jobs that are left out, and of what else is decided about rows and items."""

    def __init__(self) -> None:
        self._left_out: Counter[str] = Counter()
        self._remarks: Counter[str] = Counter()
        self._unfinished: list[Unfinished] = []

    def leave_out(self, reason: str | Unfinished) -> None:
        """Count a job that is left out, for a reason that reads well behind a number, as in ``without a GPU``."""
        if isinstance(reason, Unfinished):
            self._unfinished.append(reason)
            reason = reason.reason
        self._left_out[reason] += 1

    def remark(self, remark: str) -> None:
        """Count something else that a user of the workload ought to know."""
        self._remarks[remark] += 1

    def is_mostly_wrong(self, kept: int) -> bool:
        """Return whether records are wrong, and no job is kept or hardly any record is right.

        `kept`: number of jobs that are not left out.
        """
        wrong = sum(count for reason, count in self._left_out.items() if reason.startswith(_WRONG))
        return wrong > 0 and (not kept or is_hopeless(wrong, kept + self._left_out.total() - wrong))

    def told(self) -> str:
        """Return how many jobs were left out and why, and what else was decided, where no job was found."""
        return "; ".join(self.workload("", ()).reading_told())

    def workload(self, name: str, jobs: Iterable[TraceJob], stages: Mapping[str, StageTimes] | None = None) -> Workload:
        """Return the workload of the jobs that were not left out, with all counts.

        `stages`: times of the stages of models, by model; None for none.
        """
        unfinished = tuple(sorted((one.job for one in self._unfinished), key=lambda job: job.submit_us))
        reasons = Counter(one.reason for one in self._unfinished)
        counts = dict(self._left_out), dict(self._remarks), unfinished, dict(reasons)
        return Workload(name, tuple(jobs), stages or {}, *counts)
