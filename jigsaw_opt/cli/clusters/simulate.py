"""Replay a workload on a cluster under a policy, and write what came of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jigsaw_opt.cli.clusters.simulate_setting import configure_setting, inputs_of, parts_of, tell_reading
from jigsaw_opt.cli.clusters.simulate_sweep import configure_sweep, run_simulations
from jigsaw_opt.cli.common.options import warn_of_policies
from jigsaw_opt.cli.common.output import ended, flush, goes_on_from, note, print_json, print_table
from jigsaw_opt.errors import missing_option, out_of_range
from jigsaw_opt.system.interrupts import interrupt_flag
from jigsaw_opt.text import counted

if TYPE_CHECKING:
    from jigsaw_opt.simulation.engine.simulation import Simulation
    from jigsaw_opt.simulation.simulate import SimulationResult

EXAMPLE = "jigsaw simulate --workload day --cluster 2x4 --policy fifo -o results"
_MOST_HOURS = 2.5e6
_STEPS_A_LOOK = 64


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--workload",
        required=True,
        nargs="+",
        action="extend",
        metavar="[FORMAT:]FILE",
        help="a workload in CSV, or a trace in a format of others (pollux, philly, alibaba, itp, muri, ...)",
    )
    parser.add_argument(
        "--policy",
        required=True,
        nargs="+",
        action="extend",
        metavar="NAME[:OPTION=VALUE...]",
        help="as in fifo or las:placement=packed",
    )
    configure_setting(parser)
    _configure_run(parser)
    configure_sweep(parser)


def _configure_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--until", type=float, metavar="HOURS", help="stop at this time of the workload")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of draws (default: 0)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="folder for the results")
    parser.add_argument(
        "--resume", action="store_true", help="go on from the snapshot that an interrupt left in the folder"
    )
    parser.add_argument("--force", action="store_true", help="replace the results of another run in the folder")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")


def run(arguments: argparse.Namespace) -> int:
    """Simulate, write the results, print the summary; a signal while it is under way leaves a snapshot instead."""
    from jigsaw_opt.documents import make_folder
    from jigsaw_opt.simulation.inputs.reading import read_setting
    from jigsaw_opt.simulation.results.folder import RESULTS, SNAPSHOT, alone_in, begin, require_place
    from jigsaw_opt.simulation.simulate import result_of

    folder = arguments.output
    until_us = _until_us(arguments.until)
    parts = parts_of(arguments, arguments.workload[0], arguments.policy[0], arguments.seed)
    if arguments.sweep:
        return run_simulations(arguments, parts)
    _require_one(arguments)
    require_place(folder, arguments.resume, arguments.force)
    if arguments.resume:
        goes_on_from(folder / SNAPSHOT)
    setting = read_setting(**parts)
    tell_reading([setting])
    simulation = begin(setting, folder, arguments.resume)
    make_folder(folder, (SNAPSHOT, *RESULTS), inputs_of(arguments, arguments.workload))
    with alone_in(folder, arguments.resume or arguments.force), interrupt_flag() as interrupted:
        with _shown(simulation, arguments.quiet) as show:
            simulation.run(_looking(interrupted, show), until_us)
        if interrupted():
            return _put_aside(simulation, folder)
        _finish(result_of(simulation), arguments)
    return 0


def _finish(result: SimulationResult, arguments: argparse.Namespace) -> None:
    from jigsaw_opt.simulation.results.folder import RESULTS, write_results
    from jigsaw_opt.views.simulation_report import simulation_html

    policy = arguments.policy[0]
    write_results(
        arguments.output,
        result,
        lambda: simulation_html(result.setting, result.outcome, result.summary, policy),
    )
    note(f"wrote {arguments.output}/{', '.join(RESULTS)}")
    if result.outcome.hindrance:
        note(f"{counted(result.summary.unfinished, 'job')} not ended: {result.outcome.hindrance}")
    warn_of_policies([policy])
    _print(result, arguments.json)
    flush()


def _require_one(arguments: argparse.Namespace) -> None:
    """Refuse what only a sweep has."""
    given = (arguments.seeds, arguments.jobs, arguments.address)
    if len(arguments.workload) > 1 or len(arguments.policy) > 1 or given != (None, None, None):
        raise missing_option("--sweep", "several workloads, policies or seeds, --jobs and --address are for --sweep")


def _until_us(hours: float | None) -> int | None:
    if hours is not None and not 0 <= hours <= _MOST_HOURS:
        raise out_of_range(
            "--until", f"--until is a number of hours of at least 0 and at most {_MOST_HOURS:g}, not {hours}"
        )
    return None if hours is None else round(hours * 3_600_000_000)


@contextmanager
def _shown(simulation: Simulation, quiet: bool) -> Iterator[Callable[[], None] | None]:
    """Yield the update of a progress bar on a terminal, or None."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("jobs", total=len(simulation.setting.workload.jobs))

        def show() -> None:
            hours = simulation.now_us / 3_600_000_000
            progress.update(task, completed=simulation.ended, description=f"jobs ended by {hours:.1f} h")

        yield show


def _looking(interrupted: Callable[[], bool], show: Callable[[], None] | None) -> Callable[[], bool]:
    """Ask for an interrupt at every event, and show progress at some."""
    steps = 0

    def stop() -> bool:
        nonlocal steps
        steps += 1
        if show is not None and steps % _STEPS_A_LOOK == 0:
            show()
        return interrupted()

    return stop


def _put_aside(simulation: Simulation, folder: Path) -> int:
    from jigsaw_opt.simulation.results.folder import put_aside

    setting = simulation.setting
    if put_aside(simulation, folder):
        what_now = f"{folder} keeps a snapshot: go on with the same command and --resume"
    else:
        name = None if setting.policy is None else setting.policy.name
        what_now = f"policy {name!r} cannot be put aside, so there is no snapshot to go on from"
    jobs = len(setting.workload.jobs)
    return ended(True, f"{simulation.ended} of {jobs} jobs have ended; {what_now}")


def _print(result: SimulationResult, as_json: bool) -> None:
    from dataclasses import asdict

    from jigsaw_opt.simulation.results.tables import summary_tree

    if as_json:
        print_json(summary_tree(result.setting, result.summary, result.outcome.hindrance))
        return
    measures = asdict(result.summary).items()
    rows = [(name, f"{value:.4f}" if isinstance(value, float) else value) for name, value in measures]
    print_table(("measure", "value"), rows, ("value",))
