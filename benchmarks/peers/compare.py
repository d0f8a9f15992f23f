"""Ours and its peers on the same instances, with the same seconds and cores, one process at a time.

``python benchmarks/peers/compare.py --set rack --time-limit 30 --threads 2 --seeds 0 -o out/peers-rack.jsonl``

Prints a Markdown table with a row for each instance and method, and a summary for each peer. Instances are
sets (``--set``), bundled names (``rack/plain``) or generated ones (``rack:17`` is family and seed). With ``-o``
every finished run is kept as a line of JSON, and the same command again goes on where it stopped.
Exit code 1 where we are worse than a peer, a plan of ours is wrong, or a bound contradicts a plan; 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from comparison import Run, Verdict, race, summary
from launch import Order, launch
from methods import METHODS, OURS

from jigsaw_opt.documents import write_atomically
from jigsaw_opt.errors import UsageError
from jigsaw_opt.instances import generate
from jigsaw_opt.instances.catalogue import load, names
from jigsaw_opt.problem import Instance

COLUMNS = ("instance", "method", "objective", "bound", "s to objective", "ours as good, s", "ratio", "s", "note")


class Store:
    """Finished runs, one a line of JSON, kept as soon as they end.

    Parameters
    ----------
    path
        The file, made where there is none; None keeps nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.runs: dict[tuple[object, ...], Run] = {}
        if path is None or not path.exists():
            return
        whole, _, _ = path.read_text("utf-8").rpartition("\n")
        for line in whole.splitlines():
            run = Run.from_document(json.loads(line))
            self.runs[run.key] = run
        # A killed run may have left half a line.
        write_atomically(path, "".join(f"{line}\n" for line in whole.splitlines()).encode())

    def add(self, run: Run) -> None:
        """Keep a finished run."""
        self.runs[run.key] = run
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(run.document()) + "\n")

    def get(self, order: Order) -> Run | None:
        """The run of an order, if it has been done."""
        return self.runs.get(order.key)


def instances(sets: Sequence[str], wanted: Sequence[str]) -> Iterator[Instance]:
    for name in (*(name for each in sets for name in names(each)), *wanted):
        family, colon, seed = name.partition(":")
        if colon and not seed.isdigit():
            raise UsageError(f"an instance is set/name or family:seed, not {name!r}")
        yield generate(family, int(seed)) if colon else load(name)


def row(run: Run, ours: Run | None) -> str:
    result = race(ours, run) if ours is not None and METHODS[run.method].peer else None
    planned = run.verdict is Verdict.PLAN
    marks = [run.verdict.value] * (not planned) + [run.note] * bool(run.note)
    marks += ["OURS WORSE"] * (result is not None and result.worse)
    marks += ["CONTRADICTION"] * (result is not None and result.contradiction)
    taken = run.verdict is not Verdict.NOT_TAKEN
    cells = (
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
    return line(cells)


def line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def print_summary(runs: Sequence[Run]) -> bool:
    """Print a row for each peer; says whether everything is as it should be."""
    ours = {(run.sha256, run.seed): run for run in runs if run.method == OURS}
    fine = all(run.verdict not in (Verdict.WRONG, Verdict.CRASHED) for run in ours.values())
    print("\n" + line(("peer", "runs", "without a plan", "ours worse", "contradictions", "ratio", "ratio with a plan")))
    print(line(["---"] * 7))
    for name in dict.fromkeys(run.method for run in runs if METHODS[run.method].peer):
        pairs = [(ours[run.sha256, run.seed], run) for run in runs if run.method == name]
        it = summary(pairs)
        ratios = ("-" if ratio is None else f"{ratio:.2f}" for ratio in (it.ratio, it.ratio_of_plans))
        print(line((name, it.runs, it.planless, it.worse, it.contradictions, *ratios)))
        fine = fine and it.worse == 0 and it.contradictions == 0
    return fine


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


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("instances", nargs="*", help="bundled names or family:seed")
    parser.add_argument("--set", action="append", default=[], help="a bundled set; may be given more than once")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds an attempt")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("-o", "--output", type=Path, help="file of JSON lines to keep runs in and to go on from")
    return parser.parse_args()


def main() -> int:
    asked = parsed()
    methods = list(dict.fromkeys((OURS, *asked.methods)))
    require_engines(methods)
    store, runs = Store(asked.output), []
    engines = ", ".join(map(installed, ("ortools", "highspy", "pyjobshop")))
    print(f"{asked.time_limit:g} s and {asked.threads} threads an attempt; {engines}\n")
    print(line(COLUMNS), line(["---"] * len(COLUMNS)), sep="\n", flush=True)
    for instance in instances(asked.set, asked.instances):
        for seed in asked.seeds:
            ours: Run | None = None
            for method in methods:
                order = Order(instance, method, seed, asked.time_limit, asked.threads)
                run = store.get(order)
                if run is None:
                    run = launch(order)
                    store.add(run)
                ours = ours or run
                runs.append(run)
                print(row(run, ours), flush=True)
    return 0 if print_summary(runs) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UsageError as error:
        print(f"compare: {error}", file=sys.stderr)
        sys.exit(2)
