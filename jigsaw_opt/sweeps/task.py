"""Tasks of a sweep: what they are, what came of each, and running those that have no row yet."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from jigsaw_opt.sweeps.record import Record


def never() -> bool:
    """Return False: nobody stops a sweep."""
    return False


@dataclass(frozen=True, slots=True)
class SweepTask:
    """A call that can be made in any process on any machine.

    `key`: names the task for ever: tasks that would give the same result have the same key, all others another one.
    `function`: A function of a module that returns values for JSON. `arguments`: its arguments; they can be pickled.
    `labels`: what a row says of the task itself, so that a row without a result still tells what it is about.
    """

    key: str
    function: Callable[..., Mapping[str, Any]]
    arguments: tuple[Any, ...] = ()
    labels: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """The outcome of a task.

    `values`: what its function returned; empty where there is an error. `error`: why it gave no result in any attempt,
    or None.
    """

    task: SweepTask
    values: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None

    def row(self) -> dict[str, Any]:
        """Return key, labels, error and values as one flat row; a function may return an ``error`` of its own."""
        return {"key": self.task.key, **self.task.labels, "error": self.error, **self.values}


@runtime_checkable
class SweepEngine(Protocol):
    """Something that runs tasks."""

    def run(
        self, tasks: Sequence[SweepTask], stopped: Callable[[], bool] = never
    ) -> Generator[TaskOutcome, None, None]:
        """Yield the outcome of every task, each once, in the order in which they end.

        A task whose process dies is tried again. Closing the generator ends all that is under way, and so does
        `stopped` soon after it says yes, which it may be asked at any time.

        Parameters
        ----------
        tasks
            The tasks.
        stopped
            Asked from time to time whether to stop.
        """


class InProcess:
    """Runs tasks one after the other in this process."""

    def run(
        self, tasks: Sequence[SweepTask], stopped: Callable[[], bool] = never
    ) -> Generator[TaskOutcome, None, None]:
        """Yield the outcome of every task until `stopped` says yes."""
        for task in tasks:
            if stopped():
                return
            yield TaskOutcome(task, task.function(*task.arguments))


def sweep(
    tasks: Sequence[SweepTask],
    engine: SweepEngine,
    record: Record,
    report: Callable[[dict[str, Any], int, int], None] = lambda *_: None,
    stopped: Callable[[], bool] = never,
) -> None:
    """Run every task that the record has no row of; append each row as soon as its task ends.

    `record`: the rows of earlier runs, and where new ones go. `report`: receives each new row after it was appended,
    how many tasks have one by then, and how many there are. `stopped`: once it says yes, the sweep ends within a
    moment; tasks under way are lost and have no row.
    """
    left = unfinished(tasks, record)
    if not left:
        return
    with closing(engine.run(left, stopped)) as outcomes:
        for outcome in outcomes:
            row = outcome.row()
            record.append(row)
            report(row, len(tasks) - len(unfinished(tasks, record)), len(tasks))


def unfinished(tasks: Sequence[SweepTask], record: Record) -> list[SweepTask]:
    """Return the tasks without a row, in their order."""
    return [task for task in tasks if task.key not in record.rows]


def rows_of(tasks: Sequence[SweepTask], record: Record) -> list[dict[str, Any]]:
    """Return the rows that are there of these tasks, in the tasks' order; rows of other tasks are left out.

    What a row says of its task is taken from the task: a row may have been written under another name.
    """
    return [{**record.rows[task.key], **task.labels} for task in tasks if task.key in record.rows]
