"""The folder of a simulation: a snapshot while it is put aside, and its tables and report once it has ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from jigsaw_opt.documents import exists, write_atomically
from jigsaw_opt.documents.reading import read_file
from jigsaw_opt.errors import UsageError
from jigsaw_opt.simulation.engine import Simulation
from jigsaw_opt.simulation.metrics import SimulationSummary
from jigsaw_opt.simulation.records import SimulationOutcome
from jigsaw_opt.simulation.request import Prepared, SimulationRequest
from jigsaw_opt.simulation.results import jobs_csv, rounds_csv, summary_json
from jigsaw_opt.simulation.snapshot import restore, snapshot

__all__ = ["RESULTS", "SNAPSHOT", "begin", "put_aside", "require_place", "write_results"]

SNAPSHOT = "snapshot"
_SUMMARY = "summary.json"
RESULTS = ("jobs.csv", "rounds.csv", "report.html", _SUMMARY)


def require_place(folder: Path) -> None:
    """Refuse a folder that is none.

    Raises
    ------
    UsageError
        Why.
    """
    if exists(folder) and not folder.is_dir():
        raise UsageError(f"cannot write into {folder}: it is no folder")


def begin(prepared: Prepared, folder: Path, resume: bool) -> Simulation:
    """A simulation at its beginning, or where the snapshot in the folder left it.

    Raises
    ------
    UsageError
        There is no snapshot.
    InvalidInputError
        As in `restore`.
    """
    path, simulation = folder / SNAPSHOT, prepared.start()
    if not resume:
        return simulation
    if not exists(path):
        raise UsageError(f"there is no {path} to go on from")
    return restore(read_file(path), simulation, prepared.inputs(), str(path))


def put_aside(simulation: Simulation, prepared: Prepared, folder: Path) -> bool:
    """Write the snapshot; says whether the policy can be put aside, so that there is one."""
    if simulation.resumable:
        write_atomically(folder / SNAPSHOT, snapshot(simulation, prepared.inputs()))
    return simulation.resumable


def write_results(
    folder: Path,
    request: SimulationRequest,
    prepared: Prepared,
    outcome: SimulationOutcome,
    summary: SimulationSummary,
    report: Callable[[], str],
) -> None:
    """Write all tables, the report, and at last the summary: where it is the others are too, and of the same run.

    Parameters
    ----------
    folder
        It is there; a snapshot in it is removed.
    request, prepared
        What was simulated.
    outcome, summary
        What came of it.
    report
        Makes the report, as HTML.
    """
    (folder / _SUMMARY).unlink(missing_ok=True)
    tables = jobs_csv(prepared.setting, outcome), rounds_csv(outcome), report(), summary_json(summary, request.about())
    for name, text in zip(RESULTS, tables, strict=True):
        write_atomically(folder / name, text.encode())
    (folder / SNAPSHOT).unlink(missing_ok=True)
