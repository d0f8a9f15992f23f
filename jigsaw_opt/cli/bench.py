"""Measure solvers on instances: every set or instance by every solver, seed and time limit; can be resumed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.output import note

if TYPE_CHECKING:
    from jigsaw_opt.sweeps.bench.summary import Cell
    from jigsaw_opt.sweeps.task import Engine, Task

HELP = "measure solvers on instances"
_REPORTS = ("rows.csv", "summary.json", "profile.png")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SET|INSTANCE|FILE",
        help="a set (rack), a bundled instance (rack/plain), an instance document, or a family and a seed with"
        " changes of its recipe (rack:100, cluster:3:load=400)",
    )
    parser.add_argument("--solvers", default="auto", metavar="NAMES", help="as in auto,cpsat (default: auto)")
    parser.add_argument(
        "--objectives", metavar="NAMES", help="only instances with these, as in makespan,period (default: all)"
    )
    parser.add_argument("--seeds", default="0", metavar="NUMBERS", help="as in 0,1,2 (default: 0)")
    parser.add_argument(
        "--time-limits", metavar="SECONDS", help="as in 10,60 (default: 10, or none where there is a work limit)"
    )
    parser.add_argument("--work-limit", type=float, metavar="UNITS", help="deterministic units that end a solve")
    parser.add_argument("--gap", type=float, metavar="SHARE", help="gap that ends a solve, as in 0.01")
    parser.add_argument("--threads", type=int, metavar="N", help="of each solve (default: all cores / jobs)")
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="solves at once on this machine (default: 1, as more slow each other)"
    )
    parser.add_argument(
        "--engine", choices=("local", "ray"), default="local", help="processes of this machine, or a Ray cluster"
    )
    parser.add_argument("--address", metavar="HOST:PORT", help="of the Ray cluster, or auto for the one that runs here")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="where to write, and go on")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="progress as lines, also where there is no terminal"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run what has no row yet, write the reports, print the summary; a signal meanwhile skips the rest of the runs."""
    from threading import Event

    from jigsaw_opt.cli.bench_request import engine_of, tasks_of
    from jigsaw_opt.documents import make_folder
    from jigsaw_opt.system.interrupts import on_interrupt

    if arguments.threads is None:
        arguments.threads = max(1, (os.cpu_count() or 1) // max(1, arguments.jobs or 1))
    tasks, engine = tasks_of(arguments), engine_of(arguments)
    make_folder(arguments.output, _REPORTS, arguments.sources)
    asked_to_end = Event()
    with on_interrupt(asked_to_end.set):
        return _measured(arguments, tasks, engine, asked_to_end.is_set)


def _measured(arguments: argparse.Namespace, tasks: Sequence[Task], engine: Engine, stopped: Callable[[], bool]) -> int:
    from jigsaw_opt.cli.output import flush
    from jigsaw_opt.sweeps.bench.summary import is_row
    from jigsaw_opt.sweeps.record import Record
    from jigsaw_opt.sweeps.sweep import rows_of, sweep
    from jigsaw_opt.system.interrupts import INTERRUPTED

    with Record(arguments.output / "rows.jsonl", is_row) as record:
        sweep(tasks, engine, record, _progress(arguments, tasks, record.rows), stopped)
        rows = rows_of(tasks, record)
    _report(rows, len(tasks), arguments.output, arguments.json)
    flush()
    if len(rows) == len(tasks):
        return 0
    note(f"interrupted: {len(rows)} of {len(tasks)} runs are kept; the same command goes on")
    return INTERRUPTED


def _progress(
    arguments: argparse.Namespace, tasks: Sequence[Task], rows: dict[str, Any]
) -> Callable[[dict[str, Any]], None] | None:
    """A line a finished run on standard error, unless nobody looks."""
    if arguments.quiet or not (arguments.verbose or sys.stderr.isatty()):
        return None
    keys = {task.key for task in tasks}

    def show(row: dict[str, Any]) -> None:
        note(f"[{len(keys & rows.keys())}/{len(keys)}] {_line(row)}")

    return show


def _line(row: dict[str, Any]) -> str:
    what = f"{row['instance']} {row['solver']} seed {row['seed']} {_limit(row['time_limit'])}"
    if row["error"] is not None:
        return f"{what}: error: {row['error']}"
    return f"{what}: {row['status']} {row['objective']} gap {_percent(row['gap'])} in {row['seconds']:.2f} s"


def _report(rows: list[dict[str, Any]], asked: int, folder: Path, as_json: bool) -> None:
    """Write the table, the summary and the picture; print the summary."""
    import json
    from dataclasses import asdict

    from jigsaw_opt.cli.output import print_json
    from jigsaw_opt.documents import write_atomically
    from jigsaw_opt.sweeps.bench.summary import summary
    from jigsaw_opt.sweeps.bench.table import csv_table

    cells = summary(rows)
    document = {"runs": asked, "finished": len(rows), "cells": [asdict(cell) for cell in cells]}
    write_atomically(folder / "rows.csv", csv_table(rows))
    write_atomically(folder / "summary.json", json.dumps(document, indent=2).encode() + b"\n")
    _draw(rows, folder / "profile.png")
    if as_json:
        print_json(document)
    else:
        _print(cells)
    note(f"wrote {folder}/rows.jsonl, rows.csv, summary.json")


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from jigsaw_opt.documents import write_atomically
    from jigsaw_opt.errors import MissingEngineError
    from jigsaw_opt.sweeps.bench.summary import profiles
    from jigsaw_opt.views.gap_profile import gap_profile_png

    try:
        write_atomically(path, gap_profile_png(profiles(rows)))
    except MissingEngineError as error:
        note(f"no {path}: {error}")


def _print(cells: Sequence[Cell]) -> None:
    from jigsaw_opt.cli.output import print_table

    headers = ("set", "solver", "limit", "instances", "runs", "plans", "proven", "errors")
    measures = ("mean gap", "worst gap", "objective ratio", "s to objective", "time ratio")
    rows = [
        (
            *(cell.set, cell.solver, _limit(cell.time_limit)),
            *(cell.instances, cell.runs, cell.with_plan, cell.proven, cell.errors),
            *(_percent(cell.mean_gap), _percent(cell.worst_gap)),
            *(_ratio(cell.objective_ratio, 4), _ratio(cell.seconds_to_objective, 2), _ratio(cell.time_ratio, 2)),
        )
        for cell in cells
    ]
    print_table((*headers, *measures), rows, (*headers[3:], *measures))


def _limit(seconds: float | None) -> str:
    return "no limit" if seconds is None else f"{seconds:g} s"


def _percent(gap: float | None) -> str | None:
    return None if gap is None else f"{100 * gap:.2f} %"


def _ratio(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"
