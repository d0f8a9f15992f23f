"""Piper's plans beside the released planner's answers: ``python benchmarks/piper.py``.

Workloads and answers are read from the measured data (``JIGSAW_SHARED``). Times are in the unit of the workload. With
``--more`` it plans GNMT with other memory and devices, of which there are no answers to compare.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from jigsaw_opt.documents.readers.piper import PiperGraph, read_piper
from jigsaw_opt.errors import InfeasibleError
from jigsaw_opt.planning.piper import piper_plan

SHARED = Path(os.environ.get("JIGSAW_SHARED", Path(__file__).parents[2] / "shared"))
FOLDER = SHARED / "data" / "pipeline"
MORE = ((2, 3.5), (4, 2.5), (8, 2.4), (8, 1.2))


def workload(case: dict[str, Any]) -> PiperGraph:
    """A workload with the devices of a case."""
    return replace(
        read_piper((FOLDER / case["input"]).read_bytes(), source=case["input"]),
        devices=case["devices"],
        memory=case["mem_gib"] * 2**30,
        bandwidth=case["bandwidth_gib_per_s"] * 2**30,
        micro_batches=case["microbatches"],
    )


def row(case: dict[str, Any]) -> str:
    """Theirs and ours."""
    graph = workload(case)
    began = time.process_time()
    try:
        plan = piper_plan(graph)
        found, stages = f"{plan.time_per_sample:.10g}", str(len(plan.stages))
    except InfeasibleError:
        found = stages = "none"
    spent = time.process_time() - began
    theirs = case.get("time_per_sample", "-")
    cells = (
        Path(case["input"]).stem,
        case["devices"],
        case["mem_gib"],
        "none" if theirs is None else theirs,
        found,
        stages,
        f"{case['planner_cpu_s']:.2f}" if "planner_cpu_s" in case else "-",
        f"{spent:.2f}",
    )
    return f"| {' | '.join(map(str, cells))} |"


def cases(more: bool) -> Iterator[dict[str, Any]]:
    """Those with answers, or others."""
    if not more:
        yield from json.loads((FOLDER / "reference_results.json").read_text(encoding="utf-8"))["piper"]
        return
    for devices, memory in MORE:
        own = {"input": "piper/gnmt.json", "devices": devices, "mem_gib": memory}
        yield own | {"bandwidth_gib_per_s": 25.0, "microbatches": 256}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--more", action="store_true", help="GNMT with other memory and devices")
    arguments = parser.parse_args()
    if not FOLDER.is_dir():
        print(f"no workloads at {FOLDER}; JIGSAW_SHARED says where data/ is", file=sys.stderr)
        return 2
    print("| workload | devices | memory, GiB | theirs | ours | stages | their CPU s | our CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for case in cases(arguments.more):
        print(row(case), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
