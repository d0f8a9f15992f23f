"""Rank solvers by result files, such as those of `jigsaw bench`, from one machine or many."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jigsaw_opt.sweeps.bench.leaderboard import Leaderboard, LeaderboardRow

HELP = "rank solvers by the result files of anybody"
EXAMPLE = "jigsaw leaderboard results others.jsonl -o leaderboard.md"
_HEADERS = (
    *("rank", "limits", "solver", "version", "hardware", "threads", "seeds"),
    *("solved", "unsolved", "mean gap", "best"),
)
_RIGHT = ("rank", "threads", "seeds", "solved", "unsolved", "mean gap", "best")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "results", nargs="+", type=Path, metavar="FILE|DIR", help="JSON lines, or a folder of jigsaw bench"
    )
    parser.add_argument(
        "--set", metavar="SET", help="only instances of this set, all of which count (default: all that occur)"
    )
    parser.add_argument("--json", action="store_true", help="print the ranks as JSON")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the table in Markdown (-: standard output)")


def run(arguments: argparse.Namespace) -> int:
    """Read, rank and print."""
    from dataclasses import asdict

    from jigsaw_opt.cli.output import emit, note, print_json, print_table, require_output
    from jigsaw_opt.cli.parser import file_or_stdout
    from jigsaw_opt.sweeps.bench.leaderboard import leaderboard, read_results
    from jigsaw_opt.text import counted, named

    path = None if arguments.output is None else file_or_stdout(arguments.output)
    require_output(path, *arguments.results)
    board = leaderboard(read_results(arguments.results), arguments.set)
    if board.without_plan:
        note(f"left out: {counted(board.without_plan, 'instance')} of which nobody has a plan")
    if board.improved:
        note(f"better than best known, taken at its word: {named(board.improved)}")
    if board.without_certificate:
        note(f"no bundled plan shows the best value of: {named(board.without_certificate)}")
    if arguments.output is not None:
        emit(_markdown(board).encode(), path)
    if arguments.json:
        print_json(asdict(board))
    elif arguments.output is None:
        print_table(_HEADERS, map(_cells, board.standings), _RIGHT)
    return 0


def _cells(line: LeaderboardRow) -> tuple[object, ...]:
    it = line.contestant
    limits = [f"{it.time_limit:g} s"] if it.time_limit is not None else []
    limits += [f"{it.work_limit:g} units"] if it.work_limit is not None else []
    who = " and ".join(limits) or "no limit", it.solver, it.version or None, it.hardware or None, it.threads
    share = f"{100 * line.best_share:.1f} %"
    return line.rank, *who, line.seeds, line.solved, line.unsolved, f"{100 * line.mean_gap:.3f} %", share


def _markdown(board: Leaderboard) -> str:
    """Return the table as Markdown, whatever characters are in the names."""
    from jigsaw_opt.text import counted, named, printable

    def line(cells: tuple[object, ...]) -> str:
        texts = ("–" if cell is None else printable(str(cell)) for cell in cells)
        return (
            "| " + " | ".join("".join(f"\\{c}" if c in "\\|*_`[]<>&" else c for c in text) for text in texts) + " |\n"
        )

    marks = "|" + "|".join("---:" if header in _RIGHT else "---" for header in _HEADERS) + "|\n"
    count = counted(board.instances, "instance")
    told = f"Every one of {count} counts for everyone; an instance without a plan is a gap of 100 %."
    if board.without_certificate:
        told += f" No bundled plan shows the best value of {named(board.without_certificate)}."
    return (
        "# Leaderboard\n\n" + told + "\n\n" + line(_HEADERS) + marks + "".join(map(line, map(_cells, board.standings)))
    )
