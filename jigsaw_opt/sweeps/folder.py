"""The folder of a sweep: its rows, and the tables that are made of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jigsaw_opt.documents import exists, write_atomically
from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.data_table import DataTable
from jigsaw_opt.sweeps.record import Record
from jigsaw_opt.sweeps.task import SweepEngine, SweepTask, never, rows_of, sweep

ROWS = "rows.jsonl"
"""The file of the rows, which a sweep goes on from."""
TABLES = ("rows.csv", "summary.json")
"""Files that are written once the tasks have run."""


class SweepKind(NamedTuple):
    """A kind of sweep: how its rows are checked and summed up.

    `cells`: what rows say together, an object for each group of them. `more`: what else the summary says of them, by
    its name there.
    """

    is_row: Callable[[Mapping[str, Any]], bool]
    csv: Callable[[Sequence[Mapping[str, Any]]], str]
    cells: Callable[[Sequence[Mapping[str, Any]]], Sequence[Mapping[str, Any]]]
    more: Callable[[Sequence[Mapping[str, Any]]], Mapping[str, Any]] = lambda _rows: {}


class SweepTables(NamedTuple):
    """The tables of a sweep.

    `rows`: the rows that are there, in the order of their tasks. `summary`: as in ``summary.json``: numbers of ``runs``
    and of those ``finished``, the ``cells``, and what the kind adds. `assumed`: what the figures rest on, each with its
    name.
    """

    rows: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Any]
    assumed: Sequence[tuple[str, str]] = ()

    @property
    def table(self) -> DataTable:
        """The rows as a table with the columns that any of them has."""
        return DataTable.of(self.rows)


def rows_path(path: Path) -> Path:
    """Return the file of the rows: that of the folder of a sweep, or the file that is named itself."""
    return path / ROWS if exists(path) and path.is_dir() else path


def require_own(folder: Path) -> None:
    """Refuse a folder with tables that no sweep made, such as those of a simulation."""
    table = next((name for name in TABLES if exists(folder / name)), None)
    if table is not None and not exists(folder / ROWS):
        told = f"{folder} holds the {table} of another run; take another folder"
        raise UsageError(told, code="mismatch", path=str(folder))


def sweep_into(
    folder: Path,
    tasks: Sequence[SweepTask],
    engine: SweepEngine,
    kind: SweepKind,
    report: Callable[[dict[str, Any], int, int], None],
    stopped: Callable[[], bool] = never,
) -> SweepTables:
    """Run the tasks that the folder has no row of, and write the tables.

    The rows of all tasks that have one, and the summary.

    `folder`: it is there; the rows of earlier runs are in it. `kind`: what is made of the rows. `report`: as that of
    `sweep`.
    """
    with Record(folder / ROWS, kind.is_row) as record:
        sweep(tasks, engine, record, report, stopped)
        rows = rows_of(tasks, record)
    summary = {"runs": len(tasks), "finished": len(rows), "cells": kind.cells(rows), **kind.more(rows)}
    for name, text in zip(TABLES, (kind.csv(rows), json.dumps(summary, indent=2) + "\n"), strict=True):
        write_atomically(folder / name, text.encode())
    return SweepTables(rows, summary)
