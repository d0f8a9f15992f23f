"""Gavel's three objectives on the shared programs: value, reference value and CPU seconds.

Gavel finds the duration by bisection to 5 %: the table has the least duration, and where Gavel's bisection ends.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from common import shared, timed
from reference_programs import bisected_duration, gavel_cluster

from jigsaw_opt.formulations.gavel import OBJECTIVES
from jigsaw_opt.solvers.allocation.gavel import solve_gavel

REFERENCES = {
    "max_min": ("max_min_fairness_perf", "val"),
    "makespan": ("min_total_duration_perf", "T_hours"),
    "max_sum": ("max_sum_throughput_perf", "val"),
}
HEADS = ("program", "objective", "value", "as Gavel stops", "reference", "ours s", "ECOS s", "HiGHS by CVXPY s")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", type=Path, help="as in data/cluster/instances/gavel")


def rows(options: argparse.Namespace) -> Iterator[Sequence[object]]:
    files = options.files or shared("cluster/instances/gavel").glob("*.json")
    return (row(*each) for each in product(sorted(files, key=lambda file: file.stat().st_size), OBJECTIVES))


def row(file: Path, objective: str) -> Sequence[object]:
    document = json.loads(file.read_text())
    cluster = gavel_cluster(document)
    solved, seconds = timed(lambda: solve_gavel(cluster, objective))
    value = solved.value
    policy, key = REFERENCES[objective]
    known = document.get("reference", {})
    ecos, highs = (known.get(f"{policy}/{engine}", {}) for engine in ("ECOS", "HIGHS"))
    comparable = bisected_duration(value) / 3600 if objective == "makespan" else value
    shown = f"{value / 3600:.6f} h" if objective == "makespan" else f"{value:.8g}"
    cells = (file.stem, objective, shown, f"{comparable:.8g}", highs.get(key, "-"), f"{seconds:.3f}")
    return (*cells, ecos.get("cpu", "-"), highs.get("cpu", "-"))
