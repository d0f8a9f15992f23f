"""Piper's plans beside the released planner's answers.

Times are in the unit of the workload. With ``--more`` it plans GNMT with other memory and devices, of which there are
no answers to compare.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import shared, timed

from jigsaw_opt.documents.readers.piper import PiperGraph, read_piper
from jigsaw_opt.errors import InfeasibleError
from jigsaw_opt.planning.piper import piper_plan

HEADS = ("workload", "devices", "memory, GiB", "theirs", "ours", "stages", "their CPU s", "our CPU s")
MORE = ((2, 3.5), (4, 2.5), (8, 2.4), (8, 1.2))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--more", action="store_true", help="GNMT with other memory and devices")


def rows(options: argparse.Namespace) -> Iterator[Sequence[object]]:
    shared("pipeline/piper")
    return map(row, more() if options.more else answered())


def answered() -> list[dict[str, Any]]:
    """Cases with answers."""
    found: list[dict[str, Any]] = json.loads(shared("pipeline/reference_results.json").read_text("utf-8"))["piper"]
    return found


def more() -> list[dict[str, Any]]:
    """Others."""
    gnmt = {"input": "piper/gnmt.json", "bandwidth_gib_per_s": 25.0, "microbatches": 256}
    return [gnmt | {"devices": devices, "mem_gib": memory} for devices, memory in MORE]


def workload(case: dict[str, Any]) -> PiperGraph:
    """A workload with the devices of a case."""
    return replace(
        read_piper(shared("pipeline", case["input"]).read_bytes(), source=case["input"]),
        devices=case["devices"],
        memory=case["mem_gib"] * 2**30,
        bandwidth=case["bandwidth_gib_per_s"] * 2**30,
        micro_batches=case["microbatches"],
    )


def planned(graph: PiperGraph) -> tuple[str, str]:
    """Time and number of stages."""
    try:
        plan = piper_plan(graph)
    except InfeasibleError:
        return "none", "none"
    return f"{plan.time_per_sample:.10g}", str(len(plan.stages))


def row(case: dict[str, Any]) -> Sequence[object]:
    """Theirs and ours."""
    graph = workload(case)
    found, spent = timed(lambda: planned(graph))
    theirs = case.get("time_per_sample", "-")
    planner = f"{case['planner_cpu_s']:.2f}" if "planner_cpu_s" in case else "-"
    stated = "none" if theirs is None else theirs
    return (Path(case["input"]).stem, case["devices"], case["mem_gib"], stated, *found, planner, f"{spent:.2f}")
