"""Tiresias on Pollux's four workloads, 16 servers of 4 T4, against the results that Pollux's authors published.

Run it as ``python benchmarks/tiresias_on_pollux.py``. Workloads, profiles and published results are read from the
shared data (``JIGSAW_SHARED``). See docs/simulation.md for what is the same and what is not.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from jigsaw_opt.simulation.metrics import completion_us, summarise
from jigsaw_opt.simulation.request import SimulationRequest, prepare

SHARED = Path(os.environ.get("JIGSAW_SHARED", Path(__file__).parents[2] / "shared")) / "data" / "cluster"
PUBLISHED = SHARED / "pollux" / "published_results" / "tiresias-1.0_summary.json"
POLICIES = ("las", "las:placement=packed", "fifo", "srtf")


def main() -> None:
    published = json.loads(PUBLISHED.read_text())
    print("| workload | policy | mean h | published h | difference | jobs within 60 s | restarts | CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for name in sorted(published["avgs"]):
        for policy in POLICIES:
            print(row(name, policy, published["avgs"][name] / 3600, published["jcts"][name]))


def row(name: str, policy: str, mean_h: float, completions_s: dict[str, float]) -> str:
    workload = f"pollux:{SHARED / 'pollux' / 'workloads' / name}.csv"
    prepared = prepare(SimulationRequest(workload, "16x4:aws", policy, f"epochs:{SHARED / 'sia' / 'profiles'}"))
    began = time.process_time()
    simulation = prepared.start()
    simulation.run()
    outcome = simulation.close()
    seconds = time.process_time() - began
    summary = summarise(prepared.setting, outcome)
    assert summary.mean_completion_h is not None
    jobs = prepared.setting.workload.jobs
    off_s = [completion_us(prepared.setting, r) / 1e6 - completions_s[jobs[r.index].name] for r in outcome.jobs]
    cells: tuple[object, ...] = (name, policy, f"{summary.mean_completion_h:.3f}")
    if policy == "las":
        near = sum(abs(off) <= 60 for off in off_s)
        cells += (f"{mean_h:.3f}", f"{summary.mean_completion_h / mean_h - 1:+.1%}", f"{near} of {len(jobs)}")
    else:
        cells += ("", "", "")
    return f"| {' | '.join(map(str, (*cells, summary.restarts, f'{seconds:.2f}')))} |"


if __name__ == "__main__":
    main()
