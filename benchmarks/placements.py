"""Operators on devices beside the answers of Tarnawski et al.'s programs: ``python benchmarks/placements.py``.

Workloads and answers are read from the measured data (``JIGSAW_SHARED``). The contiguous optimum is that of their
dynamic program; the other one of a plain CP-SAT statement, with its bound.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from jigsaw_opt.documents.readers.dnn_partitioning import read_dnn_partitioning
from jigsaw_opt.planning.placement import contiguous_placement, exact_placement, groups_of, ordered_groups

SHARED = Path(os.environ.get("JIGSAW_SHARED", Path(__file__).parents[2] / "shared"))
FOLDER = SHARED / "data" / "pipeline"


def row(name: str, answers: dict[str, dict[str, float]], seconds: float) -> str:
    """Both kinds of placement of a workload."""
    graph = read_dnn_partitioning((FOLDER / name).read_bytes(), source=name)
    began = time.process_time()
    contiguous = contiguous_placement(ordered_groups(graph))
    spent = time.process_time() - began
    free = exact_placement(groups_of(graph), contiguous, seconds, workers=2)
    other = answers.get("non_contiguous_cpsat", {})
    cells = (
        Path(name).stem,
        answers["dp_contiguous"]["max_load"],
        f"{contiguous.max_load_ns / 1e6:.4f}",
        answers["dp_contiguous"]["cpu_s"],
        f"{spent:.1f}",
        f"{other['max_load']} ({other['lower_bound']})" if other else "-",
        f"{free.max_load_ns / 1e6:.4f} ({free.bound_ns / 1e6:.4f})",
    )
    return f"| {' | '.join(map(str, cells))} |"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="of CP-SAT on each")
    arguments = parser.parse_args()
    if not FOLDER.is_dir():
        print(f"no workloads at {FOLDER}; JIGSAW_SHARED says where data/ is", file=sys.stderr)
        return 2
    print("| workload | theirs, contiguous | ours | their CPU s | ours | plain CP-SAT (bound) | ours (bound) |")
    print("|---|---|---|---|---|---|---|")
    answers = json.loads((FOLDER / "reference_results.json").read_text(encoding="utf-8"))["dnn_partitioning"]
    for name, own in answers.items():
        print(row(name, own, arguments.seconds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
