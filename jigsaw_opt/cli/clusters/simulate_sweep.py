"""`jigsaw simulate --sweep`: every workload by every policy and seed, by the engines of `jigsaw bench`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.clusters.simulate_setting import given_parts
from jigsaw_opt.cli.common.options import warn_of_policies
from jigsaw_opt.cli.common.output import goes_on_from, note, print_table
from jigsaw_opt.cli.common.parser import whole_numbers
from jigsaw_opt.cli.common.sweeping import Rows, came_to, configure_engine, engine_of, run_sweep
from jigsaw_opt.errors import not_together

if TYPE_CHECKING:
    from jigsaw_opt.sweeps.task import SweepTask

_PAGE = "report.html"
_SHOWN = ("mean_completion_h", "p99_completion_h", "makespan_h", "cluster_efficiency", "worst_fairness", "restarts")


def configure_sweep(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that only a sweep has."""
    group = parser.add_argument_group("sweep")
    group.add_argument("--sweep", action="store_true", help="several workloads, policies and seeds; can be resumed")
    group.add_argument("--seeds", metavar="NUMBERS", help="as in 0,1,2 (default: --seed)")
    group.add_argument("--jobs", type=int, metavar="N", help="simulations at once, on this machine (default: 1)")
    configure_engine(group)
    parser.set_defaults(threads=1)


def run_simulations(arguments: argparse.Namespace) -> int:
    """Simulate what has no row yet, write the tables, print the means over the seeds."""
    from jigsaw_opt.documents import exists, make_folder
    from jigsaw_opt.simulation.engine.setting import reading_told
    from jigsaw_opt.simulation.inputs.request import SimulationRequest
    from jigsaw_opt.simulation.results.folder import require_place
    from jigsaw_opt.sweeps.folder import ROWS, TABLES
    from jigsaw_opt.sweeps.simulations import SIMULATIONS, simulations

    if arguments.until is not None or arguments.resume:
        raise not_together(
            "--sweep", "a sweep runs every simulation to its end, and goes on by itself: no --until or --resume"
        )
    goes_on_from(arguments.output / ROWS)
    # A sweep goes on from its own rows.
    require_place(arguments.output, force=arguments.force or exists(arguments.output / ROWS))
    given = arguments.seeds
    seeds = (arguments.seed,) if given is None else whole_numbers("--seeds", given, "whole numbers")
    base = SimulationRequest(arguments.workload[0], **given_parts(arguments))
    tasks = simulations(base, arguments.workload, arguments.policy, seeds)
    for line in reading_told(task.arguments[0] for task in tasks):
        note(line)
    engine = engine_of(arguments)
    inputs = [name for workload in arguments.workload for name in replace(base, workload=workload).files]
    make_folder(arguments.output, (*TABLES, _PAGE), inputs)
    warn_of_policies(arguments.policy)
    draw = partial(_draw, tasks=tasks, path=arguments.output / _PAGE)
    return run_sweep(arguments, tasks, engine, SIMULATIONS, _line, _print, draw)


def _draw(rows: Rows, tasks: Sequence[SweepTask], path: Path) -> None:
    from jigsaw_opt.documents import write_atomically
    from jigsaw_opt.sweeps.assumptions import assumed_in_sweep
    from jigsaw_opt.sweeps.bench.summary import grouped
    from jigsaw_opt.views.sweep_page import sweep_html

    for error, (row, *_) in grouped([row for row in rows if row["error"]], lambda row: row["error"]).items():
        note(f"{row['workload']} {row['policy']}: {error}")
    if rows:
        write_atomically(path, sweep_html(rows, assumed_in_sweep(tasks, rows)).encode())
        note(f"wrote {path}")


def _line(row: Mapping[str, Any]) -> str:
    return f"{row['workload']} {row['policy']} seed {row['seed']}: {came_to(row)}"


def _print(cells: Rows) -> None:
    heads = ("workload", "policy", "runs", "errors", *_SHOWN)
    found = ([cell.get(head) for head in heads] for cell in cells)
    shown = ([f"{value:.4g}" if isinstance(value, float) else value for value in values] for values in found)
    print_table(heads, shown, heads[2:])
