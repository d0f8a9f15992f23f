"""Gavel's three objectives on the shared programs: value, reference value and CPU seconds.

Run it as ``python benchmarks/gavel_lps.py``; programs come from the shared data (``JIGSAW_SHARED``) or are the files
named. Gavel finds the duration by bisection to 5 %: the table has the least duration, and where Gavel's bisection ends.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from reference_programs import gavel_cluster

from jigsaw_opt.formulations.gavel import OBJECTIVES
from jigsaw_opt.solvers.allocation.gavel import bisected_duration, solve_gavel

SHARED = Path(os.environ.get("JIGSAW_SHARED", Path(__file__).parents[2] / "shared"))
REFERENCES = {
    "max_min": ("max_min_fairness_perf", "val"),
    "makespan": ("min_total_duration_perf", "T_hours"),
    "max_sum": ("max_sum_throughput_perf", "val"),
}
HEADS = "program | objective | value | as Gavel stops | reference | ours s | ECOS s | HiGHS by CVXPY s"


def row(file: Path, objective: str) -> str:
    """One line of the table."""
    document = json.loads(file.read_text())
    cluster = gavel_cluster(document)
    began = time.process_time()
    value = solve_gavel(cluster, objective).value
    seconds = time.process_time() - began
    policy, key = REFERENCES[objective]
    known = document.get("reference", {})
    ecos, highs = (known.get(f"{policy}/{engine}", {}) for engine in ("ECOS", "HIGHS"))
    comparable = bisected_duration(value) / 3600 if objective == "makespan" else value
    shown = f"{value / 3600:.6f} h" if objective == "makespan" else f"{value:.8g}"
    cells = [file.stem, objective, shown, f"{comparable:.8g}", highs.get(key, "-"), f"{seconds:.3f}"]
    return " | ".join(map(str, [*cells, ecos.get("cpu", "-"), highs.get("cpu", "-")]))


def main() -> None:
    """Print the table as it grows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    files = parser.parse_args().files or (SHARED / "data/cluster/instances/gavel").glob("*.json")
    print(f"{HEADS}\n{'|'.join(['---'] * (HEADS.count('|') + 1))}")
    for file in sorted(files, key=lambda file: file.stat().st_size):
        for objective in OBJECTIVES:
            print(row(file, objective), flush=True)


if __name__ == "__main__":
    main()
