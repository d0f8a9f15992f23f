"""Runs the tasks that have no row yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from jigsaw_opt.sweeps.record import Record
from jigsaw_opt.sweeps.task import SweepEngine, SweepTask, never

__all__ = ["rows_of", "sweep", "unfinished"]


def sweep(
    tasks: Sequence[SweepTask],
    engine: SweepEngine,
    record: Record,
    report: Callable[[dict[str, Any]], None] | None = None,
    stopped: Callable[[], bool] = never,
) -> None:
    """Run every task that the record has no row of; append each row as soon as its task ends.

    `record`: the rows of earlier runs, and where new ones go. `report`: receives each new row after it was appended.
    `stopped`: once it says yes, the sweep ends within a moment; tasks under way are lost and have no row.
    """
    left = unfinished(tasks, record)
    if not left:
        return
    with closing(engine.run(left, stopped)) as outcomes:
        for outcome in outcomes:
            row = outcome.row()
            record.append(row)
            if report is not None:
                report(row)


def unfinished(tasks: Sequence[SweepTask], record: Record) -> list[SweepTask]:
    """Return the tasks without a row, in their order."""
    return [task for task in tasks if task.key not in record.rows]


def rows_of(tasks: Sequence[SweepTask], record: Record) -> list[dict[str, Any]]:
    """Return the rows that are there of these tasks, in the tasks' order; rows of other tasks are left out.

    What a row says of its task is taken from the task: a row may have been written under another name.
    """
    return [{**record.rows[task.key], **task.labels} for task in tasks if task.key in record.rows]
