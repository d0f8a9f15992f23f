"""The arguments that all paired measurements take, and their table."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from jigsaw_opt.documents import write_atomically
from jigsaw_opt.errors import JigsawError
from paired.arms import Arm
from paired.cases import Case, cases
from paired.comparison import Change, Pair
from paired.runs import run, warm_up

SOURCE = "SET|INSTANCE|FAMILY:SEEDS"


def add_arguments(parser: argparse.ArgumentParser, sources: Sequence[str]) -> None:
    """Add the arguments."""
    parser.add_argument(
        "sources",
        nargs="*",
        default=list(sources),
        metavar=SOURCE,
        help=f"as in rack, rack/plain, crowded:1000-1023, rack:100-105:servers=2 (default: {' '.join(sources)})",
    )
    parser.add_argument("--gpus", type=int, default=64, help="leave out larger instances (default: 64)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="seeds of the solver (default: 0 1)")
    parser.add_argument("--time-limits", type=float, nargs="+", help="seconds a solve (default: 5)")
    parser.add_argument(
        "--work-limits",
        type=float,
        nargs="+",
        default=[],
        metavar="UNITS",
        help="deterministic units a solve; with --workers 1 no other load of the machine changes a plan",
    )
    parser.add_argument("--solver", default="auto", help="or `bounds`: only the bounds (default: auto)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="threads a solve (default: all cores)")
    parser.add_argument(
        "--warm-up",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="search by each tree before anything is measured, so that its functions are compiled (default: 60)",
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="where to write, and go on")


def asked_cases(asked: argparse.Namespace) -> list[Case]:
    """The cases of the arguments; instances are written below the output."""
    return cases(
        asked.sources,
        asked.output / "instances",
        solver=asked.solver,
        seeds=asked.seeds,
        time_limits=_time_limits(asked),
        work_limits=asked.work_limits,
        workers=asked.workers,
        most_gpus=asked.gpus,
    )


def measured(asked: argparse.Namespace, arms: Sequence[Arm]) -> dict[Arm, list[Pair]]:
    """Pairs of the first arm with each of the others on the cases of the arguments."""
    cases = asked_cases(asked)
    if asked.warm_up and cases:
        warm_up(arms, cases, asked.warm_up, asked.output)
    return run(cases, arms, asked.output, lambda text: print(text, file=sys.stderr, flush=True))


def written(asked: argparse.Namespace, lines: Iterable[str]) -> None:
    """Print a table, and keep it below the output."""
    text = "\n".join([*lines, ""])
    write_atomically(asked.output / "table.md", text.encode())
    print(text)


def _time_limits(asked: argparse.Namespace) -> Sequence[float]:
    if asked.time_limits is None:
        return [] if asked.work_limits else [5.0]
    limits: Sequence[float] = asked.time_limits
    return limits


def ended(command: Callable[[], int | None]) -> int:
    """Return the exit code of a command, 0 where it returns none.

    What the user did wrong is one line, and SIGTERM ends it as Ctrl-C does.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return command() or 0
    except JigsawError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        return 130


def percent(share: float, digits: int = 2) -> str:
    """A share in percent."""
    return f"{100 * share:.{digits}f} %"


def shown_change(change: Change) -> tuple[str, str, str]:
    """Mean with its spread, instances with less and more, chance."""
    spread = "" if change.spread is None else f" ± {100 * change.spread:.2f}"
    return f"{100 * change.mean:+.2f}{spread} %", f"{change.less} / {change.more}", f"{change.p:.3f}"
