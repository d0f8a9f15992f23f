"""Operators on devices beside the answers of Tarnawski et al.'s programs.

The contiguous optimum is that of their dynamic program; the other one of a plain CP-SAT statement, with its bound.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from common import shared, timed

from jigsaw_opt.documents.readers.dnn_partitioning import read_dnn_partitioning
from jigsaw_opt.planning.placement import contiguous_placement, exact_placement, groups_of, ordered_groups
from jigsaw_opt.solvers.options import Options

HEADS = (
    *("workload", "theirs, contiguous", "ours", "their CPU s", "ours"),
    *("plain CP-SAT (bound)", "ours (bound)"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=30.0, help="of CP-SAT on each")


def rows(options: argparse.Namespace) -> Iterator[Sequence[object]]:
    answers = json.loads(shared("pipeline/reference_results.json").read_text(encoding="utf-8"))["dnn_partitioning"]
    return (row(name, own, options.seconds) for name, own in answers.items())


def row(name: str, answers: dict[str, dict[str, float]], seconds: float) -> Sequence[object]:
    """Both kinds of placement of a workload."""
    graph = read_dnn_partitioning(shared("pipeline", name).read_bytes(), source=name)
    contiguous, spent = timed(lambda: contiguous_placement(ordered_groups(graph)))
    free = exact_placement(groups_of(graph), contiguous, Options(time_limit=seconds, threads=2))
    other = answers.get("non_contiguous_cpsat", {})
    return (
        Path(name).stem,
        answers["dp_contiguous"]["max_load"],
        f"{contiguous.max_load_ns / 1e6:.4f}",
        answers["dp_contiguous"]["cpu_s"],
        f"{spent:.1f}",
        f"{other['max_load']} ({other['lower_bound']})" if other else "-",
        f"{free.max_load_ns / 1e6:.4f} ({free.bound_ns / 1e6:.4f})",
    )
