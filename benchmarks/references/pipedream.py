"""Partitions into stages beside the answers of PipeDream's released optimiser, a row a profile and cluster.

The answers, and the CPU time that they took, are read from ``pipeline/reference_results.json``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from common import shared, timed

from jigsaw_opt.documents.readers import read_layer_graph
from jigsaw_opt.planning.partition.result import Partition, best_partition

HEADS = ("profile", "machines", "released, s", "ours, s", "relative difference", "released CPU s", "CPU s")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", metavar="TEXT", help="profiles whose name has this")


def answer(entry: Mapping[str, Any]) -> Partition:
    """Ours to what an answer was asked."""
    return best_partition(
        read_layer_graph(shared("pipeline", entry["input"]).read_bytes(), source=entry["input"]),
        entry["machines_per_level"],
        entry["bandwidth_bytes_per_s"],
        activations=entry["activation_comm_modelled"],
        replicate=not entry["no_replication"],
        memory=entry["memory_bytes"],
    )


def rows(asked: argparse.Namespace) -> Iterator[Sequence[object]]:
    entries = json.loads(shared("pipeline/reference_results.json").read_text(encoding="utf-8"))["pipedream"]
    return (row(entry) for entry in entries if asked.only in entry["input"])


def row(entry: Mapping[str, Any]) -> Sequence[object]:
    found, spent = timed(partial(answer, entry))
    theirs = entry["pipeline_s_per_minibatch"]
    machines = "x".join(map(str, entry["machines_per_level"]))
    seconds = (f"{theirs:.6f}", f"{found.time_s:.6f}", f"{abs(found.time_s / theirs - 1):.0e}")
    return entry["input"], machines, *seconds, entry.get("planner_cpu_s") or "-", f"{spent:.2f}"
