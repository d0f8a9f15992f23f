"""Replay a workload on a cluster under a policy, and write what came of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from jigsaw_opt.cli.clusters.simulate_setting import SETTING, given_parts
from jigsaw_opt.cli.common.arguments import Arguments
from jigsaw_opt.cli.common.options import warn_of_raw
from jigsaw_opt.cli.common.output import ended, flush, goes_on_from, note, print_table, tell
from jigsaw_opt.cli.common.parser import whole_numbers
from jigsaw_opt.cli.common.progress import Rows, came_to, engine_arguments, engine_of, reporter, tell_sweep
from jigsaw_opt.errors import missing_option, not_together, out_of_range
from jigsaw_opt.text import counted

if TYPE_CHECKING:
    from jigsaw_opt.simulation.engine.simulation import Simulation
    from jigsaw_opt.simulation.results.result import SimulationResult
    from jigsaw_opt.sweeps.folder import SweepTables

EXAMPLE = "jigsaw simulate --workload day --cluster 2x4 --policy fifo -o results"
_MOST_HOURS = 2.5e6
_STEPS_A_LOOK = 64
_SHOWN = ("mean_completion_h", "p99_completion_h", "makespan_h", "cluster_efficiency", "worst_fairness", "restarts")
ARGUMENTS: Arguments = {
    "--workload [FORMAT:]FILE ... !": "a workload in CSV, or a trace in a format of others (pollux, philly, alibaba,"
    " itp, muri, ...)",
    "--policy NAME[:OPTION=VALUE...] ... !": "as in fifo or las:placement=packed",
    **SETTING,
    "--until HOURS": "stop at this time of the workload",
    "--seed N = 0": "seed of draws",
    "-o, --output DIR !": "folder for the results",
    "--resume": "go on from the snapshot that an interrupt left in the folder",
    "--force": "replace the results of another run in the folder",
    "--json": "print the summary as JSON",
    "-q, --quiet": "no progress",
    "sweep:": {
        "--sweep": "several workloads, policies and seeds; can be resumed",
        "--seeds NUMBERS": "as in 0,1,2 (default: --seed)",
        **engine_arguments("simulations"),
    },
}


def run(arguments: argparse.Namespace) -> int:
    """Simulate, write the results, print the summary; a signal while it is under way leaves a snapshot instead."""
    from jigsaw_opt.simulation.results.folder import RESULTS, SNAPSHOT, ResultFolder
    from jigsaw_opt.simulation.results.result import summary_tree
    from jigsaw_opt.simulation.simulate import simulate
    from jigsaw_opt.views.simulation_report import simulation_html

    path, policy, until_us = arguments.output, arguments.policy[0], _until_us(arguments.until)
    if arguments.sweep:
        return _sweep(arguments)
    several = len(arguments.workload) > 1 or len(arguments.policy) > 1
    if several or (arguments.seeds, arguments.jobs, arguments.address) != (None, None, None):
        raise missing_option("--sweep", "several workloads, policies or seeds, --jobs and --address are for --sweep")
    if arguments.resume:
        goes_on_from(path / SNAPSHOT)
    folder = ResultFolder(
        path,
        arguments.resume,
        arguments.force,
        lambda result: simulation_html(result.setting, result.outcome, result.summary, policy),
    )
    cancel, parts = Event(), given_parts(arguments)
    with _watching(arguments.quiet) as watch:
        own = {"policy": policy, "seed": arguments.seed, "until_us": until_us, "folder": folder}
        result = simulate(arguments.workload[0], cancel=cancel, watch=watch, **own, **parts)
    if cancel.is_set():
        kept = f"{path} keeps a snapshot: go on with the same command and --resume"
        if not result.resumable:
            kept = f"policy {policy.partition(':')[0]!r} cannot be put aside, so there is no snapshot to go on from"
        done = result.summary.jobs - result.summary.unfinished
        return ended(True, f"{done} of {len(result.setting.workload.jobs)} jobs have ended; {kept}")
    note(f"wrote {path}/{', '.join(RESULTS)}")
    if result.outcome.hindrance:
        note(f"{counted(result.summary.unfinished, 'job')} not ended: {result.outcome.hindrance}")
    warn_of_raw(result.outcome.raw_models)
    tell(arguments.json, summary_tree(result.setting, result.summary, result.outcome), lambda: _print(result))
    flush()
    return 0


def _until_us(hours: float | None) -> int | None:
    if hours is not None and not 0 <= hours <= _MOST_HOURS:
        raise out_of_range("--until", f"--until is a number of hours from 0 to {_MOST_HOURS:g}, not {hours}")
    return None if hours is None else round(hours * 3_600_000_000)


@contextmanager
def _watching(quiet: bool) -> Iterator[Callable[[Simulation], None]]:
    """Yield what tells what was read, and shows progress on a terminal."""
    from jigsaw_opt.simulation.engine.setting import reading_told

    steps, update = 0, None
    with ExitStack() as stack:

        def watch(simulation: Simulation) -> None:
            nonlocal steps, update
            if steps == 0:
                for line in reading_told([simulation.setting]):
                    note(line)
                update = None if quiet or not sys.stderr.isatty() else _progress(stack, simulation)
            elif update is not None and steps % _STEPS_A_LOOK == 0:
                hours = simulation.now_us / 3_600_000_000
                update(completed=simulation.ended, description=f"jobs ended by {hours:.1f} h")
            steps += 1

        yield watch


def _progress(stack: ExitStack, simulation: Simulation) -> Callable[..., None]:
    """Return the update of a progress bar that stays as long as the stack."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = stack.enter_context(Progress(*columns, console=Console(stderr=True)))
    return partial(progress.update, progress.add_task("jobs", total=len(simulation.setting.workload.jobs)))


def _print(result: SimulationResult) -> None:
    from dataclasses import asdict

    from jigsaw_opt.simulation.results.metrics import with_efficiency

    measures, counted = asdict(result.summary).items(), result.setting.efficiency
    rows = [
        (
            with_efficiency(name, counted, result.outcome.raw_models),
            f"{value:.4f}" if isinstance(value, float) else value,
        )
        for name, value in measures
    ]
    print_table(("measure", "value"), rows, ("value",))


def _sweep(arguments: argparse.Namespace) -> int:
    """Simulate what has no row yet, write the page, print the means over the seeds; a signal skips the rest."""
    from jigsaw_opt.sweeps.calls import REPORT, simulate_all
    from jigsaw_opt.sweeps.folder import ROWS

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
        report=reporter(arguments, lambda row: f"{row['workload']} {row['policy']} seed {row['seed']}: {came_to(row)}"),
        tell=note,
        seed=arguments.seed,
        **given_parts(arguments),
    )
    raw_models = found.summary["raw_models"]
    warn_of_raw(raw_models)
    _draw_sweep(found, arguments.output / REPORT)
    return tell_sweep(arguments, found, partial(_print_cells, arguments.efficiency or "goodput", raw_models))


def _draw_sweep(found: SweepTables, path: Path) -> None:
    from jigsaw_opt.documents import write_atomically
    from jigsaw_opt.sweeps.bench.summary import grouped
    from jigsaw_opt.views.sweep_page import sweep_html

    wrong = [row for row in found.rows if row["error"]]
    for error, (row, *_) in grouped(wrong, lambda row: row["error"]).items():
        note(f"{row['workload']} {row['policy']}: {error}")
    if found.rows:
        write_atomically(path, sweep_html(found.rows, found.assumed).encode())
        note(f"wrote {path}")


def _print_cells(efficiency: str, raw_models: Sequence[str], cells: Rows) -> None:
    from jigsaw_opt.simulation.results.metrics import with_efficiency

    heads = ("workload", "policy", "runs", "errors", *_SHOWN)
    found = ([cell.get(head) for head in heads] for cell in cells)
    shown = ([f"{value:.4g}" if isinstance(value, float) else value for value in values] for values in found)
    told = tuple(with_efficiency(head, efficiency, raw_models) for head in heads)
    print_table(told, shown, told[2:])
