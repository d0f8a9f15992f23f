"""Faults against the program: what is lost, let in, late, or left behind; one table row a kind of fault.

Run it as ``python benchmarks/faults.py``; some minutes on two cores. The code that is tried is the `jigsaw_opt` that
Python finds: ``PYTHONPATH=/another/tree python benchmarks/faults.py`` tries that of another tree. Exit status 1 where
anything failed. What is guaranteed: docs/reliability.md.

Everything happens in a temporary folder. Some faults need root (devices, a full disk, a read-only package) and are
left out without. Never give the program a path below ``/dev`` here: one that puts a file in the place of a device harms
the whole machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

# Behind everything else, so that another tree on PYTHONPATH comes first.
sys.path.append(str(Path(__file__).parents[1]))

from fault_campaign import changed, inputs, limits, names, outputs, signals, small, solvers, threads
from fault_campaign.contract import Campaign, Tally, Trial
from fault_campaign.launch import HOME

MODULES = (changed, solvers, limits, signals, outputs, inputs, names, small, threads)
PARTS = {part.name: part for module in MODULES for part in module.PARTS}
"""All parts, in the order in which they run."""


def keep(folder: Path, part: str, number: int, trial: Trial) -> None:
    """Put aside what a failure can be done again with."""
    place = folder / f"{part}-{number}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "failure.txt").write_text(f"{trial.fault}\n{trial.how}\n{trial.failure}\n", errors="backslashreplace")
    for file in trial.files:
        if file.is_file():
            shutil.copy(file, place)


def run(campaign: Campaign, names: Sequence[str], kept: Path | None = None) -> Tally:
    """Run parts one after the other; failures are printed as they come."""
    tally = Tally()
    for name in names:
        began = time.monotonic()
        for trial in PARTS[name].trials(campaign):
            tally.add(name, trial)
            if trial.failure:
                _tell(f"{name}: {trial.fault}: {trial.failure} [{trial.how}]")
                if kept is not None:
                    keep(kept, name, len(tally.failures), trial)
        _tell(f"{name}: {time.monotonic() - began:.0f} s")
    return tally


def _tell(line: str) -> None:
    print(line.encode("unicode_escape").decode(), file=sys.stderr, flush=True)


def table(tally: Tally) -> str:
    """The summary, a row a part, and a row a kind of fault."""
    counts = [f"| {name} | {count} |" for name, count in tally.counts.items()]
    head = ["| part | fault | tried | failed | worst s | worst MiB |", "|---|---|--:|--:|--:|--:|"]
    lines = [
        f"| {row.part} | {row.fault} | {row.tried} | {row.failed} |"
        f" {_number(row.worst_seconds, 1)} | {_number(row.worst_mebibytes, 0)} |"
        for row in sorted(tally.rows.values(), key=lambda row: row.fault != "")
    ]
    return "\n".join(["| counted | number |", "|---|--:|", *counts, "", *head, *lines])


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if value else ""


def as_json(tally: Tally) -> str:
    failures = [{"part": part, "fault": t.fault, "failure": t.failure, "how": t.how} for part, t in tally.failures]
    rows = [asdict(row) for row in tally.rows.values()]
    document = {"tree": str(HOME), "counts": tally.counts, "rows": rows, "failures": failures}
    return json.dumps(document, indent=2)


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.epilog = "\n".join(f"  {part.name:10} {part.guarantee}" for part in PARTS.values())
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help="only these parts"
    )
    parser.add_argument("--seed", type=int, default=0, help="of everything that is random (default: 0)")
    parser.add_argument("--scale", type=float, default=1.0, help="0.1 is quick, 1 some minutes (default), 10 an hour")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="keep what failed in this folder")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Run the campaign, print the summary."""
    asked = arguments(given)
    _tell(f"the code of {HOME}")
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        tally = run(Campaign(Path(folder), asked.seed, asked.scale), asked.only, asked.output)
    print(as_json(tally) if asked.json else table(tally))
    return 0 if tally.holds else 1


if __name__ == "__main__":
    sys.exit(main())
