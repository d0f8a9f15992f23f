"""Tiresias on Pollux's four workloads, 16 servers of 4 T4, against the results that Pollux's authors published.

Run it as ``python benchmarks/tiresias_on_pollux.py``. Workloads, profiles and published results are read from the
shared data (``JIGSAW_SHARED``). See docs/simulation.md for what is the same and what is not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product

from common import print_table, shared, timed

from jigsaw_opt import simulate
from jigsaw_opt.simulation.metrics import completion_us

POLICIES = ("las", "las:placement=packed", "fifo", "srtf")

HEADS = ("workload", "policy", "mean h", "published h", "difference", "jobs within 60 s", "restarts", "CPU s")


def main() -> None:
    published = json.loads(shared("cluster/pollux/published_results/tiresias-1.0_summary.json").read_text())
    means, completions = published["avgs"], published["jcts"]
    asked = product(sorted(means), POLICIES)
    print_table(HEADS, (row(name, policy, means[name] / 3600, completions[name]) for name, policy in asked))


def row(name: str, policy: str, mean_h: float, completions_s: dict[str, float]) -> Sequence[object]:
    workload = f"pollux:{shared('cluster/pollux/workloads', f'{name}.csv')}"
    profiles = f"epochs:{shared('cluster/sia/profiles')}"
    found, seconds = timed(lambda: simulate(workload, "16x4:aws", policy, performance=profiles))
    summary, outcome = found.summary, found.outcome
    assert summary.mean_completion_h is not None
    jobs = found.setting.workload.jobs
    off_s = [completion_us(found.setting, r) / 1e6 - completions_s[jobs[r.index].name] for r in outcome.jobs]
    cells: tuple[object, ...] = (name, policy, f"{summary.mean_completion_h:.3f}")
    if policy == "las":
        near = sum(abs(off) <= 60 for off in off_s)
        cells += (f"{mean_h:.3f}", f"{summary.mean_completion_h / mean_h - 1:+.1%}", f"{near} of {len(jobs)}")
    else:
        cells += ("", "", "")
    return (*cells, summary.restarts, f"{seconds:.2f}")


if __name__ == "__main__":
    main()
