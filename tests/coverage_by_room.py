"""Print how much of each room the tests reached, from the data that ``make coverage`` leaves, and what they missed."""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

from coverage import Coverage

COUNTS = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--missed", nargs="*", default=[], metavar="ROOM", help="list lines not reached in these rooms")
    missed = parser.parse_args().missed
    files = measured()
    rooms: dict[str, Counter[str]] = defaultdict(Counter)
    for name, found in files.items():
        for room in (room_of(name), "all"):
            rooms[room].update({key: found["summary"][key] for key in COUNTS})
        if room_of(name) in missed and found["missing_lines"]:
            print(name, *found["missing_lines"])
    print(f"{'room':<12} {'lines':>7} {'reached':>8} {'branches':>9} {'reached':>8}")
    for room, counts in sorted(rooms.items(), key=lambda item: (item[0] == "all", item[0])):
        lines, reached, branches, taken = (counts[key] for key in COUNTS)
        print(f"{room:<12} {lines:>7} {reached / lines:>8.1%} {branches:>9} {taken / max(1, branches):>8.1%}")


def measured() -> dict[str, dict]:
    """Return what was reached of each file that holds statements, by its path in the repository."""
    with TemporaryDirectory() as folder:
        report, coverage = Path(folder, "report.json"), Coverage()
        coverage.load()
        coverage.json_report(outfile=str(report))
        files = json.loads(report.read_bytes())["files"]
    return {name: found for name, found in files.items() if found["summary"]["num_statements"]}


def room_of(name: str) -> str:
    """Return the folder or module of the package that holds a file."""
    return Path(name).with_suffix("").parts[1]


if __name__ == "__main__":
    main()
