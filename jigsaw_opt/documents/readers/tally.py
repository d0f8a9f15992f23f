"""What a reader of traces leaves out, counted by the reason why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from jigsaw_opt.problem.workload import StageTimes, TraceJob, Workload

__all__ = ["NEVER_STARTED", "NO_GPU", "STILL_RUNNING", "Tally"]

NO_GPU = "without a GPU"
NEVER_STARTED = "never started"
STILL_RUNNING = "not ended"


class Tally:
    """Counts of jobs that are left out, and of what else is decided about rows and items."""

    def __init__(self) -> None:
        self._left_out: Counter[str] = Counter()
        self._remarks: Counter[str] = Counter()

    def leave_out(self, reason: str) -> None:
        """Count a job that is left out, for a reason that reads well behind a number, as in ``without a GPU``."""
        self._left_out[reason] += 1

    def remark(self, remark: str) -> None:
        """Count something else that whoever uses the workload ought to know."""
        self._remarks[remark] += 1

    def told(self) -> str:
        """Return how many jobs were left out and why, and what else was decided, where no job was found."""
        return "; ".join(self.workload("", ()).reading_told())

    def workload(self, name: str, jobs: Iterable[TraceJob], stages: Mapping[str, StageTimes] | None = None) -> Workload:
        """Return the workload of the jobs that were not left out, with all counts."""
        return Workload(name, tuple(jobs), stages or {}, dict(self._left_out), dict(self._remarks))
