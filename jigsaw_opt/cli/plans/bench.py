"""Measure solvers on instances: every set or instance by every solver, seed and time limit; can be resumed."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jigsaw_opt.cli.common.arguments import PROGRESS, Arguments
from jigsaw_opt.cli.common.output import flush, goes_on_from, note, print_table, tell
from jigsaw_opt.cli.common.progress import Rows, engine_arguments, engine_of, reporter, tell_sweep
from jigsaw_opt.cli.plans.bench_request import GATE, Gate
from jigsaw_opt.cli.plans.check import CHECK_FAILED
from jigsaw_opt.errors import Problems, missing_option
from jigsaw_opt.system.interrupts import interrupt_flag

EXAMPLE = "jigsaw bench tiny --time-limits 10 -o results"
_PAGE = "report.html"
_COUNTS = ("instances", "runs", "with_plan", "proven", "certified", "certified_optimal", "errors")
ARGUMENTS: Arguments = {
    "[sources] SET|INSTANCE|FILE ...": "a set (rack), a bundled instance (rack/plain), an instance document, or a"
    " family and a seed with changes of its recipe (rack:100, cluster:3:load=400); none with --against: compare"
    " what is there",
    "--solvers NAMES = auto": "as in auto,cpsat",
    "--objectives NAMES": "only instances with these, as in makespan,period (default: all)",
    "--seeds NUMBERS = 0": "as in 0,1,2",
    "--time-limits SECONDS": {"help": "as in 10,60 (default: 10, or none where there is a work limit)", "type": None},
    "--work-limit UNITS": "deterministic units that end a solve",
    "--gap SHARE": "gap that ends a solve, as in 0.01",
    "--certify SECONDS": {
        "help": "after each solve, search for a proof of its bound for so long, where it has none (default: do not)",
        "type": None,
    },
    "--threads N": "threads of each solve (default: all cores / jobs)",
    **engine_arguments("solves"),
    "comparison:": GATE,
    "-o, --output DIR !": "where to write, and go on; to compare what is there, a file of rows as well",
    "--json": "print the summary as JSON",
    **PROGRESS,
}


def run(arguments: argparse.Namespace) -> int:
    """Run what has no row yet, write the reports, print the summary; a signal meanwhile skips the rest of the runs."""
    from functools import partial

    from jigsaw_opt.cli.plans.bench_request import tasks_of
    from jigsaw_opt.documents import make_folder
    from jigsaw_opt.sweeps.bench.summary import MEASUREMENTS
    from jigsaw_opt.sweeps.folder import ROWS, TABLES, require_own, sweep_into

    problems = Problems()
    gate = _gate(arguments, problems)
    if not arguments.sources:
        return _compare(arguments, problems, gate)
    if arguments.threads is None:
        arguments.threads = max(1, (os.cpu_count() or 1) // max(1, arguments.jobs or 1))
    tasks, engine = tasks_of(arguments, problems), engine_of(arguments)
    if gate is not None:
        gate.require([(task.key, task.labels) for task in tasks])
    require_own(arguments.output)
    goes_on_from(arguments.output / ROWS)
    make_folder(arguments.output, (*TABLES, _PAGE), arguments.sources)
    rows: list[Mapping[str, Any]] = []
    more = partial(_more, gate=gate, seen=rows, folder=arguments.output)
    kind = MEASUREMENTS._replace(more=more)
    with interrupt_flag() as interrupted:
        found = sweep_into(arguments.output, tasks, engine, kind, reporter(arguments, _line), interrupted)
        if found.rows:
            _write_page(found.rows, arguments.output, gate)
        code = tell_sweep(arguments, found, partial(_print, gate=gate))
    return code or _tell_wrong(rows, arguments.output, gate) or (0 if gate is None else gate.code)


def _more(rows: Rows, gate: Gate | None, seen: list[Mapping[str, Any]], folder: Path) -> Mapping[str, Any]:
    """Return what the summary says besides its cells; keep the plans of runs that go beyond best known values."""
    import json
    from dataclasses import asdict

    from jigsaw_opt.documents import write_atomically
    from jigsaw_opt.sweeps.bench.known import better_plans, beyond_known

    seen += rows
    for name, plan in better_plans(rows).items():
        write_atomically(_better(folder, name), json.dumps(plan).encode())
    return {"beyond_known": [asdict(it) for it in beyond_known(rows)], **({} if gate is None else gate.judge(rows))}


def _better(folder: Path, name: str) -> Path:
    """Return the file of a plan that beats the best known one of an instance."""
    return folder / "better" / f"{name.replace('/', '-')}.json"


def _tell_wrong(rows: Rows, folder: Path, gate: Gate | None) -> int:
    """Say which best known values are out of date, and what contradicts them or other runs; return the exit code."""
    from jigsaw_opt.sweeps.bench.known import beyond_known, contradictions

    placed = [(f"{_named(row)} in {folder}", row) for row in rows]
    beyond = beyond_known(rows)
    if gate is not None:
        placed += [(f"{_named(row)} in {gate.folder}", row) for row in gate.older]
        beyond += [it for it in beyond_known(gate.older) if it.kind == "contradiction" and it not in beyond]
    for it in beyond:
        run = f"{it.instance}: {it.solver}, seed {it.seed}"
        if it.kind == "better":
            plan = _better(folder, it.instance)
            what = f"--plan {plan}" if plan.exists() else f"{it.instance} --solver {it.solver} --seed {it.seed}"
            told = f"BETTER THAN BEST KNOWN: {run}: objective {it.found}, stored {it.stored}"
            note(f"{told}; in a clone, store the best plan by python -m jigsaw_opt.instances.record {what}")
        else:
            note(f"CONTRADICTION: {run}: {it.found}, stored {it.stored}: one of plan and bound is wrong")
    wrong = dict.fromkeys(contradictions(placed))
    for each in wrong:
        note(f"CONTRADICTION: {each.place}: {each.told}: one of plan and bound is wrong")
    return CHECK_FAILED if beyond or wrong else 0


def _gate(arguments: argparse.Namespace, problems: Problems) -> Gate | None:
    if arguments.against is None:
        return None
    with problems.of("--against"):
        return Gate(arguments.against, arguments.level, arguments.measures)
    return None


def _compare(arguments: argparse.Namespace, problems: Problems, gate: Gate | None) -> int:
    """Judge the runs that are in the folder or file; no other is made, and of a folder the page is written anew."""
    from jigsaw_opt.documents import make_folder
    from jigsaw_opt.sweeps.bench.summary import is_row
    from jigsaw_opt.sweeps.folder import rows_path
    from jigsaw_opt.sweeps.record import read_rows

    rows: Rows = ()
    if arguments.against is None:
        wrong = "nothing to solve: name instances, or older runs to compare with (--against DIR|FILE)"
        raise missing_option("instance", wrong)
    with problems.of("-o"):
        rows = [*read_rows(rows_path(arguments.output), is_row, note).values()]
    problems.tell()
    assert gate is not None  # else there is a problem
    gate.require([(row["key"], row) for row in rows])
    of_folder = arguments.output.is_dir()
    if of_folder:
        make_folder(arguments.output, (_PAGE,), ())
    told = gate.judge(rows)
    if of_folder:
        _write_page(rows, arguments.output, gate)
    tell(arguments.json, told, gate.tell)
    flush()
    return _tell_wrong(rows, arguments.output, gate) or gate.code


def _line(row: Mapping[str, Any]) -> str:
    what = _named(row)
    if row["error"] is not None:
        return f"{what}: error: {row['error']}"
    return f"{what}: {row['status']} {row['objective']} gap {_percent(row['gap'])} in {row['seconds']:.2f} s"


def _named(row: Mapping[str, Any]) -> str:
    return f"{row['instance']} {row['solver']} seed {row['seed']} {_limit(row['time_limit'])}"


def _write_page(rows: Rows, folder: Path, gate: Gate | None) -> None:
    from jigsaw_opt.documents import write_atomically
    from jigsaw_opt.views.bench_page import bench_html

    older = None if gate is None or gate.judged is None else (str(gate.folder), gate.judged)
    write_atomically(folder / _PAGE, bench_html(rows, older).encode())
    note(f"wrote {folder / _PAGE}")


def _print(cells: Rows, gate: Gate | None) -> None:
    headers = (
        "set",
        "solver",
        "limit",
        "instances",
        "runs",
        "plans",
        "proven",
        "certified",
        "certified optimal",
        "errors",
    )
    measures = ("mean gap", "worst gap", "gap × s", "objective ratio", "s to objective", "time ratio")
    rows = [
        (
            *(cell["set"], cell["solver"], _limit(cell["time_limit"])),
            *(cell[count] for count in _COUNTS),
            *(_percent(cell["mean_gap"]), _percent(cell["worst_gap"]), _ratio(cell["primal_dual_integral"], 2)),
            _ratio(cell["objective_ratio"], 4),
            *(_ratio(cell["seconds_to_objective"], 2), _ratio(cell["time_ratio"], 2)),
        )
        for cell in cells
    ]
    print_table((*headers, *measures), rows, (*headers[3:], *measures))
    if gate is not None:
        print()
        gate.tell()


def _limit(seconds: float | None) -> str:
    return "no limit" if seconds is None else f"{seconds:g} s"


def _percent(gap: float | None) -> str | None:
    return None if gap is None else f"{100 * gap:.2f} %"


def _ratio(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"
