"""`jigsaw simulate --sweep`: every workload by every policy and seed, by the engines of `jigsaw bench`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.clusters.simulate_setting import given_parts
from jigsaw_opt.cli.common.options import warn_of_policies
from jigsaw_opt.cli.common.output import goes_on_from, note, print_table
from jigsaw_opt.cli.common.parser import whole_numbers
from jigsaw_opt.cli.common.sweeping import Rows, came_to, engine_of, reporter, tell_sweep
from jigsaw_opt.errors import not_together

if TYPE_CHECKING:
    from jigsaw_opt.sweeps.folder import SweepTables

_SHOWN = ("mean_completion_h", "p99_completion_h", "makespan_h", "cluster_efficiency", "worst_fairness", "restarts")


def run_simulations(arguments: argparse.Namespace) -> int:
    """Simulate what has no row yet, write the page, print the means over the seeds; a signal skips the rest."""
    from jigsaw_opt.sweeps.folder import ROWS
    from jigsaw_opt.sweeps.simulate_all import PAGE, simulate_all

    if arguments.until is not None or arguments.resume:
        raise not_together(
            "--sweep", "a sweep runs every simulation to its end, and goes on by itself: no --until or --resume"
        )
    goes_on_from(arguments.output / ROWS)
    seeds = arguments.seeds
    found = simulate_all(
        arguments.workload,
        policies=arguments.policy,
        seeds=None if seeds is None else whole_numbers("--seeds", seeds, "whole numbers"),
        folder=arguments.output,
        force=arguments.force,
        engine=engine_of(arguments),
        report=reporter(arguments, _line),
        tell=note,
        seed=arguments.seed,
        **given_parts(arguments),
    )
    warn_of_policies(arguments.policy)
    _draw(found, arguments.output / PAGE)
    return tell_sweep(arguments, found, _print)


def _draw(found: SweepTables, path: Path) -> None:
    from jigsaw_opt.documents import write_atomically
    from jigsaw_opt.sweeps.bench.summary import grouped
    from jigsaw_opt.views.sweep_page import sweep_html

    wrong = [row for row in found.rows if row["error"]]
    for error, (row, *_) in grouped(wrong, lambda row: row["error"]).items():
        note(f"{row['workload']} {row['policy']}: {error}")
    if found.rows:
        write_atomically(path, sweep_html(found.rows, found.assumed).encode())
        note(f"wrote {path}")


def _line(row: Mapping[str, Any]) -> str:
    return f"{row['workload']} {row['policy']} seed {row['seed']}: {came_to(row)}"


def _print(cells: Rows) -> None:
    heads = ("workload", "policy", "runs", "errors", *_SHOWN)
    found = ([cell.get(head) for head in heads] for cell in cells)
    shown = ([f"{value:.4g}" if isinstance(value, float) else value for value in values] for values in found)
    print_table(heads, shown, heads[2:])
