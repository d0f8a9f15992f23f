"""The folder of a simulation: a snapshot while it is put aside, and its tables and report once it has ended."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jigsaw_opt.documents import exists, require_writable, write_atomically
from jigsaw_opt.documents.file_bytes import read_file
from jigsaw_opt.documents.writing import require_alone
from jigsaw_opt.errors import UsageError
from jigsaw_opt.simulation.engine import Simulation
from jigsaw_opt.simulation.recorded import simulation_of
from jigsaw_opt.simulation.results import jobs_csv, rounds_csv, summary_json
from jigsaw_opt.simulation.setting import Setting
from jigsaw_opt.simulation.simulate import SimulationResult
from jigsaw_opt.simulation.snapshot import restore, snapshot

__all__ = ["RESULTS", "SNAPSHOT", "SUMMARY", "alone_in", "begin", "put_aside", "require_place", "write_results"]

SNAPSHOT = "snapshot"
SUMMARY = "summary.json"
RESULTS = ("jobs.csv", "rounds.csv", "report.html", SUMMARY)


def require_place(folder: Path, resume: bool = False, force: bool = False) -> None:
    """Refuse a folder in which nothing can be written, or that holds what would be lost.

    `resume`: the snapshot in it is gone on from; its results take the place of others.
    """
    require_writable((folder / SUMMARY).absolute())
    if force or resume:
        return
    if exists(folder / SUMMARY):
        raise UsageError(
            f"{folder} holds the results of another run; take another folder, or --force to replace them",
            code="mismatch",
            path=str(folder),
        )
    if exists(folder / SNAPSHOT):
        raise UsageError(
            f"{folder} holds a simulation that was interrupted; --resume goes on, --force begins anew",
            code="unwritable",
            path=str(folder),
        )


@contextmanager
def alone_in(folder: Path, replacing: bool) -> Iterator[None]:
    """Keep other processes from simulating into a folder meanwhile.

    `replacing`: whether the results of another run, which may have ended a moment ago, may be lost.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        require_alone(handle, folder)
        require_place(folder, force=replacing)
        yield
    finally:
        os.close(handle)


def begin(setting: Setting, folder: Path, resume: bool) -> Simulation:
    """Return a simulation at its beginning, or where the snapshot in the folder left it."""
    path, simulation = folder / SNAPSHOT, simulation_of(setting)
    if not resume:
        return simulation
    if not exists(path):
        raise UsageError(f"there is no {path} to go on from", code="unreadable", path=str(path))
    return restore(read_file(path), simulation, setting.inputs(), str(path))


def put_aside(simulation: Simulation, folder: Path) -> bool:
    """Write the snapshot if the policy can be put aside; return whether it can."""
    if simulation.resumable:
        write_atomically(folder / SNAPSHOT, snapshot(simulation, simulation.setting.inputs()))
    return simulation.resumable


def write_results(folder: Path, result: SimulationResult, report: Callable[[], str]) -> None:
    """Write all tables, the report, and at last the summary: where it is the others are too, and of the same run."""
    setting, outcome = result.setting, result.outcome
    (folder / SUMMARY).unlink(missing_ok=True)
    text = summary_json(setting, result.summary, outcome.hindrance)
    tables = jobs_csv(setting, outcome), rounds_csv(outcome), report(), text
    for name, content in zip(RESULTS, tables, strict=True):
        write_atomically(folder / name, content.encode())
    (folder / SNAPSHOT).unlink(missing_ok=True)
