"""`jigsaw simulate --sweep`: every workload by every policy and seed, by the engines of `jigsaw bench`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.output import note
from jigsaw_opt.errors import UsageError

if TYPE_CHECKING:
    from jigsaw_opt.simulation.request import Request
    from jigsaw_opt.sweeps.task import Engine, Task

__all__ = ["configure_sweep", "inputs_of", "run_sweep"]

_REPORTS = ("rows.csv", "summary.json")
_SHOWN = ("mean_completion_h", "p99_completion_h", "makespan_h", "cluster_efficiency", "worst_fairness", "restarts")


def configure_sweep(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that only a sweep has."""
    group = parser.add_argument_group("sweep")
    group.add_argument("--sweep", action="store_true", help="several workloads, policies and seeds; can be resumed")
    group.add_argument("--seeds", metavar="NUMBERS", help="as in 0,1,2 (default: --seed)")
    group.add_argument("--jobs", type=int, metavar="N", help="simulations at once, on this machine (default: 1)")
    group.add_argument("--engine", choices=("local", "ray"), default="local", help="what runs them (default: local)")
    group.add_argument("--address", metavar="HOST:PORT", help="of the Ray cluster, or auto for the one that runs here")
    parser.set_defaults(threads=1)


def run_sweep(arguments: argparse.Namespace, base: Request) -> int:
    """Simulate what has no row yet, write the tables, print the means over the seeds."""
    from functools import partial
    from threading import Event

    from jigsaw_opt.cli.bench_request import engine_of
    from jigsaw_opt.cli.source import instance_from
    from jigsaw_opt.documents import make_folder
    from jigsaw_opt.simulation.request import prepare_all
    from jigsaw_opt.sweeps.simulations import simulations
    from jigsaw_opt.system.interrupts import on_interrupt

    if arguments.until is not None or arguments.resume:
        raise UsageError("a sweep runs every simulation to its end, and goes on by itself: no --until or --resume")
    reading = partial(prepare_all, find_instance=instance_from)
    tasks = simulations(base, arguments.workload, arguments.policy, _seeds(arguments), reading)
    engine = engine_of(arguments)
    make_folder(arguments.output, _REPORTS, inputs_of(arguments))
    asked_to_end = Event()
    with on_interrupt(asked_to_end.set):
        return _swept(arguments, tasks, engine, asked_to_end.is_set)


def _swept(arguments: argparse.Namespace, tasks: Sequence[Task], engine: Engine, stopped: Callable[[], bool]) -> int:
    from jigsaw_opt.cli.output import flush
    from jigsaw_opt.sweeps.record import Record
    from jigsaw_opt.sweeps.simulations import is_row
    from jigsaw_opt.sweeps.sweep import rows_of, sweep
    from jigsaw_opt.system.interrupts import INTERRUPTED

    with Record(arguments.output / "rows.jsonl", is_row) as record:
        sweep(tasks, engine, record, _progress(arguments.quiet, len(tasks)), stopped)
        rows = rows_of(tasks, record)
    _report(rows, len(tasks), arguments.output, arguments.json)
    flush()
    if len(rows) == len(tasks):
        return 0
    note(f"interrupted: {len(rows)} of {len(tasks)} are kept; the same command goes on")
    return INTERRUPTED


def inputs_of(arguments: argparse.Namespace) -> list[str]:
    """Names of the files that a simulation reads, and words that are no files, which do no harm."""
    words = (*arguments.workload, arguments.cluster, arguments.performance)
    return [*words, *(word.partition(":")[2] for word in words)]


def _seeds(arguments: argparse.Namespace) -> list[int]:
    texts = [str(arguments.seed)] if arguments.seeds is None else arguments.seeds.split(",")
    try:
        return [int(text) for text in texts]
    except ValueError as error:
        raise UsageError(f"--seeds are whole numbers between commas, not {arguments.seeds!r}") from error


def _progress(quiet: bool, count: int) -> Callable[[dict[str, Any]], None] | None:
    """A line a finished simulation on standard error, unless nobody looks."""
    if quiet or not sys.stderr.isatty():
        return None
    done = 0

    def show(row: dict[str, Any]) -> None:
        nonlocal done
        done += 1
        came = row["error"] or f"mean completion {row['mean_completion_h']:.3f} h in {row['seconds']:.1f} s"
        note(f"[{done} of {count}] {row['workload']} {row['policy']} seed {row['seed']}: {came}")

    return show


def _report(rows: Sequence[dict[str, Any]], asked: int, folder: Path, as_json: bool) -> None:
    import json

    from jigsaw_opt.cli.output import print_json, print_table
    from jigsaw_opt.documents import write_atomically
    from jigsaw_opt.sweeps.simulations import cells, rows_csv

    document = {"runs": asked, "finished": len(rows), "cells": cells(rows)}
    write_atomically(folder / "rows.csv", rows_csv(rows).encode())
    write_atomically(folder / "summary.json", json.dumps(document, indent=2).encode() + b"\n")
    if as_json:
        print_json(document)
    else:
        heads = ("workload", "policy", "runs", "errors", *_SHOWN)
        print_table(heads, ([_shown(cell.get(head)) for head in heads] for cell in cells(rows)), heads[2:])
    note(f"wrote {folder}/rows.jsonl, rows.csv, summary.json")


def _shown(value: object) -> object:
    return f"{value:.4g}" if isinstance(value, float) else value
