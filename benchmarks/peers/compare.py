"""Ours and its peers on the same instances, with the same seconds and cores, one process at a time.

``python benchmarks/peers/compare.py rack --time-limit 30 --threads 2 --seeds 0 -o out/peers-rack.jsonl``

Prints a Markdown table with a row for each instance and method, and a summary for each peer. Every finished run is kept
as a line of JSON, and the same command again goes on where it stopped. Exit code 7 where we are worse than a peer, a
plan of ours is wrong, or a bound contradicts a plan.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from comparison import Run, Verdict, race, summary
from launch import Order, launch
from methods import METHODS, OURS

# Behind the folder of this script, whose modules import each other by name.
sys.path.append(str(Path(__file__).parents[1]))

from common import print_table
from paired.cases import named
from paired.request import SOURCE, ended

from jigsaw_opt.errors import UsageError
from jigsaw_opt.sweeps.record import Record

COLUMNS = ("instance", "method", "objective", "bound", "s to objective", "ours as good, s", "ratio", "s", "note")
SUMMARY = ("peer", "runs", "without a plan", "ours worse", "contradictions", "ratio", "ratio with a plan")


def row(run: Run, ours: Run | None) -> Sequence[object]:
    result = race(ours, run) if ours is not None and METHODS[run.method].peer else None
    planned = run.verdict is Verdict.PLAN
    marks = [run.verdict.value] * (not planned) + [run.note] * bool(run.note)
    marks += ["OURS WORSE"] * (result is not None and result.worse)
    marks += ["CONTRADICTION"] * (result is not None and result.contradiction)
    taken = run.verdict is not Verdict.NOT_TAKEN
    return (
        run.instance if run.seed == 0 else f"{run.instance} ({run.seed})",
        run.method,
        run.objective if planned else "-",
        run.bound if run.bound is not None else "-",
        f"{run.final_seconds:.2f}" if taken else "-",
        f"{result.our_seconds:.2f}" if result is not None else "-",
        f"{result.ratio:.2f}" if result is not None else "-",
        f"{run.seconds:.1f}" if taken else "-",
        "; ".join(marks),
    )


def print_summary(runs: Sequence[Run]) -> bool:
    """Print a row for each peer; says whether everything is as it should be."""
    ours = {(run.sha256, run.seed): run for run in runs if run.method == OURS}
    peers = dict.fromkeys(run.method for run in runs if METHODS[run.method].peer)
    found = {name: summary([(ours[run.sha256, run.seed], run) for run in runs if run.method == name]) for name in peers}
    print()
    print_table(
        SUMMARY,
        (
            (name, it.runs, it.planless, it.worse, it.contradictions, *map(_ratio, (it.ratio, it.ratio_of_plans)))
            for name, it in found.items()
        ),
    )
    sound = all(run.verdict not in (Verdict.WRONG, Verdict.CRASHED) for run in ours.values())
    return sound and not any(it.worse or it.contradictions for it in found.values())


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def require_engines(methods: Sequence[str]) -> None:
    missing = {name: METHODS[name].missing() for name in methods}
    absent = ", ".join(f"{module} for {name}" for name, module in missing.items() if module is not None)
    if absent:
        raise UsageError(f"not installed: {absent}; pip install -r {Path(__file__).parent / 'requirements.txt'}")


def installed(distribution: str) -> str:
    try:
        return f"{distribution} {version(distribution)}"
    except PackageNotFoundError:
        return f"no {distribution}"


def made(asked: argparse.Namespace, methods: Sequence[str], record: Record) -> Iterator[tuple[Run, Run]]:
    """Each run with ours on the same instance and seed; those that have no row yet are made now."""
    for _, instance in (pair for source in asked.sources for pair in named(source)):
        for seed in asked.seeds:
            ours: Run | None = None
            for method in methods:
                order = Order(instance, method, seed, asked.time_limit, asked.threads)
                if order.key not in record.rows:
                    record.append(launch(order).row())
                run = Run.of_row(record.rows[order.key])
                ours = ours or run
                yield run, ours


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", metavar=SOURCE, help="as in rack, rack/plain, rack:17, crowded:1000-1023")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds an attempt")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="where to keep runs, and go on"
    )
    asked = parser.parse_args()
    methods = list(dict.fromkeys((OURS, *asked.methods)))
    require_engines(methods)
    engines = ", ".join(map(installed, ("ortools", "highspy", "pyjobshop")))
    print(f"{asked.time_limit:g} s and {asked.threads} threads an attempt; {engines}\n")
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    with Record(asked.output) as record:
        print_table(COLUMNS, (row(*pair) for pair in made(asked, methods, record)))
        # All rows are there now.
        runs = [run for run, _ in made(asked, methods, record)]
    return 0 if print_summary(runs) else 7


if __name__ == "__main__":
    sys.exit(ended(main))
