"""Two trees of code side by side: the same instances, seeds and limits, solved by turns.

``python benchmarks/versions.py OLD NEW crowded:1000-1023 server --seeds 0 1 --time-limits 5 20 -o out/versions``

OLD and NEW are directories with the package in them, such as a git worktree of an older commit and this one. The code
that runs this script makes the instances and writes them as documents, so the trees need not know their families.
Every solve is a process of its own. A row of each is kept in ``rows.jsonl``; the same command again goes on. Two
tables are printed and written to ``table.md``: the solves, and the CPU time of starting. With ``--by-gpus`` the first
has a row for each number of GPUs. A verdict on each row follows, and the exit code is 7 where NEW is worse in one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from common import line, timed
from paired.arms import Arm, Tree
from paired.comparison import compared, grouped
from paired.request import add_arguments, ended, measured, percent, shown_change, written
from paired.runs import Pair

HEADS = (
    *("group", "horizon", "limit", "instances", "runs", "errors", "mean gap", "worst gap"),
    *("objective", "less / more", "p", "bound", "less / more", "p", "seconds"),
)
STARTS = {
    "python": ("-c", "pass"),
    "import jigsaw_opt": ("-c", "import jigsaw_opt"),
    "jigsaw --help": ("-m", "jigsaw_opt", "--help"),
}
START_RUNS = 9
WORSE = 0.003
"""Mean change of an objective or bound from which on a class is called better or worse."""
CHANCE = 0.1
"""Of a sign test: above it, chance splits the instances as unevenly."""


def table(pairs: Sequence[Pair], by_gpus: bool = False) -> Iterator[str]:
    """A row for each group, horizon and time limit, and for each number of GPUs if asked for."""
    yield line(HEADS)
    yield line("---" for _ in HEADS)
    for key, members in grouped(pairs, _label_with_gpus if by_gpus else _label).items():
        it = compared(members)
        if it is None:
            yield line((*key, 0, len(members), "all", *("-" for _ in HEADS[6:])))
            continue
        yield line(
            (
                *(*key, it.instances, it.runs, _both(it.errors, str)),
                *(_both(it.mean_gap, percent), _both(it.worst_gap, percent)),
                *(*shown_change(it.objective), *shown_change(it.bound)),
                _both(it.seconds, lambda seconds: f"{seconds:.2f}"),
            )
        )


def verdicts(pairs: Sequence[Pair], by_gpus: bool = False) -> dict[str, bool]:
    """Return a sentence on each group, horizon and time limit, and whether NEW is worse there."""
    found = {}
    for key, members in grouped(pairs, _label_with_gpus if by_gpus else _label).items():
        it, name = compared(members), ", ".join(key)
        if it is None or it.errors[1] > it.errors[0]:
            found[f"{name}: more runs of NEW failed."] = True
            continue
        for what, change, sign in (("objectives", it.objective, 1), ("bounds", it.bound, -1)):
            if abs(change.mean) <= WORSE:
                found[f"{name}: the {what} are equal within {WORSE:.1%}."] = False
                continue
            word = "worse" if sign * change.mean > 0 else "better"
            sure = change.p <= CHANCE
            doubt = "" if sure else f"; chance would do as much (sign test {change.p:.2f})"
            found[f"{name}: the {what} are {word} by {abs(change.mean):.1%}{doubt}."] = sure and word == "worse"
    return found


def start_table(arms: Sequence[Arm], output: Path) -> Iterator[str]:
    """Median CPU milliseconds of each way to start, by turns."""
    spent: dict[tuple[str, str], list[float]] = {}
    for turn in range(START_RUNS):
        for arm in arms[:: 1 if turn % 2 else -1]:
            environment = {**os.environ, "PYTHONPATH": arm.tree.search_path(output)}
            for name, arguments in STARTS.items():
                # In a folder without the package: -m looks there first.
                command = [sys.executable, *arguments]
                how = {"env": environment, "cwd": output, "stdout": subprocess.DEVNULL, "check": True}
                spent.setdefault((arm.name, name), []).append(1000 * timed(partial(subprocess.run, command, **how))[1])
    yield line(("CPU ms", *(arm.name for arm in arms)))
    yield line("---" for _ in (0, *arms))
    for name in STARTS:
        yield line((name, *(f"{median(spent[arm.name, name]):.0f}" for arm in arms)))


def _label(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["group"], row["horizon"], row["limit"]


def _label_with_gpus(row: Mapping[str, Any]) -> tuple[str, str, str]:
    group, horizon, limit = _label(row)
    return f"{group}, {row['gpus']} GPUs", horizon, limit


def _both(values: Sequence[Any], text: Any) -> str:
    return " → ".join(map(text, values))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="directory of the code to compare with")
    parser.add_argument("new", type=Path, help="directory of the code that is to be judged")
    add_arguments(parser, ["crowded:1000-1023"])
    parser.add_argument("--by-gpus", action="store_true", help="a row for each number of GPUs")
    asked = parser.parse_args()
    arms = [Arm("old", Tree.at(asked.old)), Arm("new", Tree.at(asked.new))]
    pairs = measured(asked, arms)[arms[1]]
    found = verdicts(pairs, asked.by_gpus)
    written(asked, [*table(pairs, asked.by_gpus), "", *start_table(arms, asked.output), "", *found])
    return 7 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(ended(main))
