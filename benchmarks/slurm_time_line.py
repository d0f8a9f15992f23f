"""When a Slurm and a client beside it did what to each job, by the log of `slurmctld` and that of the client."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median

from jigsaw_opt.serving.slurm.log import read_log

HEADS = (
    "seconds, mean / median",
    *("submitted to seen", "ended to seen", "decided to released", "released to started", "ended to next start"),
)
_LINES = {
    "submitted": re.compile(r"_slurm_rpc_submit_batch_job: JobId=(\d+)"),
    "released": re.compile(r"_release_job_rec: release hold on JobId=(\d+)"),
    "started": re.compile(r"(?:sched: Allocate|Started) JobId=(\d+)"),
    "ended": re.compile(r"_job_complete: JobId=(\d+) done"),
}


class TimeLine:
    """The times, in seconds since 1970, of what happened to each job, by its number.

    `controller`: the log of `slurmctld`, with times of UTC. `client`: that of the client; it may be missing.
    """

    def __init__(self, controller: Path, client: Path) -> None:
        self.times: dict[str, dict[str, list[float]]] = {kind: defaultdict(list) for kind in (*_LINES, "seen", "told")}
        self.times["decided"] = defaultdict(list)
        for line in controller.read_text(errors="replace").splitlines():
            for kind, pattern in _LINES.items():
                if found := pattern.search(line):
                    at = datetime.fromisoformat(line[1 : line.index("]")]).replace(tzinfo=UTC)
                    self.times[kind][found[1]].append(at.timestamp())
        kinds = {"job": "seen", "ended": "told", "plan": "decided"}
        for entry in read_log(client) if client.exists() else ():
            if entry["entry"] in kinds:
                self.times[kinds[entry["entry"]]][entry["job"]].append(entry["time_us"] / 1e6)

    def between(self, first: str, then: str) -> list[float]:
        """Return the seconds between the last times of two kinds, of the jobs that have both in this order."""
        pairs = ((times[-1], self.times[then][job][-1:]) for job, times in self.times[first].items() if times)
        return [later[0] - at for at, later in pairs if later and later[0] >= at]

    def to_next_start(self) -> list[float]:
        """Return the seconds from each end of a job to the next start of one, where a job was waiting."""
        starts = sorted(at for times in self.times["started"].values() for at in times)
        waits = [(self.times["submitted"][job][0], times[-1]) for job, times in self.times["started"].items()]
        found: list[float] = []
        for at in (times[-1] for times in self.times["ended"].values()):
            k = bisect_right(starts, at)
            if k < len(starts) and any(submitted < at < started for submitted, started in waits):
                found.append(starts[k] - at)
        return found

    def row(self, who: str) -> Sequence[object]:
        """Return a row of the table."""
        pairs = (("submitted", "seen"), ("ended", "told"), ("decided", "released"), ("released", "started"))
        return (who, *(_shown(self.between(*pair)) for pair in pairs), _shown(self.to_next_start()))


def _shown(seconds: Sequence[float]) -> str:
    return f"{mean(seconds):.2f} / {median(seconds):.2f}" if seconds else "-"
