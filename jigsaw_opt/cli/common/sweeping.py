"""What `jigsaw bench` and `jigsaw simulate --sweep` have in common: the engine, progress, and how they end."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from jigsaw_opt.cli.common.output import ended, flush, note, print_json
from jigsaw_opt.errors import missing_option, not_together
from jigsaw_opt.system.interrupts import interrupt_flag

if TYPE_CHECKING:
    from jigsaw_opt.sweeps.folder import SweepKind
    from jigsaw_opt.sweeps.task import SweepEngine, SweepTask

Rows: TypeAlias = "Sequence[Mapping[str, Any]]"


def configure_engine(parser: argparse._ActionsContainer) -> None:
    """Add the arguments that say what runs the tasks."""
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="processes of this machine, or a Ray cluster (default: local)",
    )
    parser.add_argument(
        "--address", metavar="HOST:PORT", help="address of the Ray cluster, or auto for the one that runs here"
    )


def engine_of(arguments: argparse.Namespace) -> SweepEngine:
    """Return the engine that the arguments ask for."""
    if arguments.engine == "ray":
        from jigsaw_opt.sweeps.engine_ray import RayEngine

        if arguments.jobs is not None:
            raise not_together(
                "--jobs", "--jobs is for --engine local; a Ray cluster runs as many solves as it has cores for"
            )
        if arguments.address is None:
            raise missing_option(
                "--address", "--engine ray needs the --address of a cluster, as in 10.0.0.1:6379, or auto"
            )
        return RayEngine(arguments.address, arguments.threads)
    from jigsaw_opt.sweeps.engine_local import LocalEngine

    if arguments.address is not None:
        raise not_together("--address", "--address is for --engine ray")
    return LocalEngine(1 if arguments.jobs is None else arguments.jobs)


def run_sweep(
    arguments: argparse.Namespace,
    tasks: Sequence[SweepTask],
    engine: SweepEngine,
    kind: SweepKind,
    line: Callable[[Mapping[str, Any]], str],
    show: Callable[[Rows], None],
    picture: Callable[[Rows], None] = lambda _rows: None,
) -> int:
    """Run what has no row yet, write the tables, print the summary; a signal meanwhile skips the rest of the tasks."""
    from jigsaw_opt.sweeps.folder import ROWS, TABLES, sweep_into

    folder, show_row = arguments.output, reporter(arguments, line)
    with interrupt_flag() as interrupted:
        rows, summary = sweep_into(
            folder, tasks, engine, kind, lambda row, finished: show_row(row, finished, len(tasks)), interrupted
        )
        picture(rows)
        if arguments.json:
            print_json(summary)
        else:
            show(summary["cells"])
        note(f"wrote {folder}/{ROWS}, {', '.join(TABLES)}")
        flush()
    kept = f"{len(rows)} of {len(tasks)} runs are kept in {folder / ROWS}; the same command goes on"
    return ended(len(rows) < len(tasks), kept)


def reporter(
    arguments: argparse.Namespace, line: Callable[[Mapping[str, Any]], str]
) -> Callable[[Mapping[str, Any], int, int], None]:
    """Return a function that prints a line for each finished task on standard error, unless nobody looks.

    Takes the row, how many tasks are finished, and how many there are.

    `line`: makes the line from a row.
    """
    quiet = arguments.quiet or not (getattr(arguments, "verbose", False) or sys.stderr.isatty())

    def report(row: Mapping[str, Any], finished: int, count: int) -> None:
        if not quiet:
            note(f"[{finished}/{count}] {line(row)}")

    return report


def came_to(row: Mapping[str, Any]) -> str:
    """Return in words what a simulation has come to."""
    return row["error"] or f"mean completion {row['mean_completion_h']:.3f} h in {row['seconds']:.1f} s"
