"""The folder of a simulation: a snapshot while it is put aside, and its tables and report once it has ended.

A snapshot is a JSON document, ``jigsaw-snapshot/5``: what it is of, and the state of the simulation as plain values.
The setting is not in it but given again, so that the state fits the inputs it came from. Nothing in it names code,
and nothing of it is trusted: its digests tell damage and other inputs, not who wrote it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jigsaw_opt.documents import exists, make_folder, require_writable, write_atomically
from jigsaw_opt.documents.file_bytes import read_file, require_alone
from jigsaw_opt.documents.parsing import collection_paused, parse
from jigsaw_opt.errors import JigsawError, UsageError, wrong_input
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.scheduling.plain import ANYTHING, TEXT, Plain, checked, fields, require_newest, whole
from jigsaw_opt.simulation.engine.recorded import simulation_of
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.simulation.results.result import SimulationResult, jobs_csv, result_of, rounds_csv, summary_json

_FORMAT = "jigsaw-snapshot/7"
_SHAPE = fields(
    format={"const": _FORMAT}, inputs=TEXT, state_sha256=TEXT, time_us=whole(), ended=whole(), state=ANYTHING
)


def snapshot(simulation: Simulation, inputs: str) -> bytes:
    """Return the state of a simulation as a document."""
    try:
        state = _text(simulation.state(), allow_nan=False)
        digest = _digest(state)
    except (TypeError, ValueError, RecursionError) as error:
        raise JigsawError(f"the policy cannot be put aside: its state is not of plain values: {error}") from error
    header = {
        "format": _FORMAT,
        "inputs": _digest(inputs),
        "state_sha256": digest,
        "time_us": simulation.now_us,
        "ended": simulation.ended,
    }
    return f'{_text(header)[:-1]},\n"state":{state}}}\n'.encode()


def restore(data: bytes, fresh: Simulation, inputs: str, source: str) -> Simulation:
    """Return the simulation of a snapshot.

    `fresh`: the simulation of the same inputs at its beginning. It becomes that of the snapshot; after an error it must
    not be used.
    """
    with collection_paused():
        try:
            tree = _document(data, source)
            _compare(tree, inputs, source)
            fresh.restore(tree["state"], f"{source} $.state")
        except RecursionError:
            raise wrong_input(source, "nested too deeply", code="too-deep") from None
    return fresh


def _document(data: bytes, source: str) -> dict[str, Any]:
    report = Report()
    tree: Any = parse(data, source, report)
    report.raise_if_any()
    require_newest(tree, _FORMAT, source)
    if not isinstance(tree, dict) or tree.get("format") != _FORMAT:
        raise wrong_input(source, "is not a snapshot of a simulation", code="unknown-format")
    return checked(tree, _SHAPE, f"{source} $")  # type: ignore[no-any-return]


def _compare(tree: dict[str, Any], inputs: str, source: str) -> None:
    if tree["inputs"] != _digest(inputs):
        hint = "it goes on only with the inputs, policy and options that it was started with"
        raise wrong_input(source, "is a snapshot of other inputs", hint, code="mismatch")
    if tree["state_sha256"] != _digest(_text(tree["state"])):
        raise wrong_input(source, "is damaged: what it holds is not what was written", code="damaged")


def _text(value: Plain, allow_nan: bool = True) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=allow_nan, separators=(",", ":"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


SNAPSHOT = "snapshot"
SUMMARY = "summary.json"
RESULTS = ("jobs.csv", "rounds.csv", "report.html", SUMMARY)


@dataclass(frozen=True, slots=True)
class ResultFolder:
    """A folder for the results of a simulation, or a snapshot where it is cancelled.

    Parameters
    ----------
    path
        The folder, which is made where there is none.
    resume
        Whether to go on from the snapshot in it.
    force
        Whether to replace the results of another run.
    report
        Makes the page ``report.html`` of the result; None for no page.
    """

    path: Path
    resume: bool = False
    force: bool = False
    report: Callable[[SimulationResult], str] | None = None

    def require(self) -> None:
        """Refuse a folder in which nothing can be written, or that holds what would be lost."""
        require_writable((self.path / SUMMARY).absolute())
        if self.force or self.resume:
            return
        if exists(self.path / SUMMARY):
            message = f"{self.path} holds the results of another run; take another folder, or --force to replace them"
            raise UsageError(message, code="mismatch", path=str(self.path))
        if exists(self.path / SNAPSHOT):
            message = f"{self.path} holds a simulation that was interrupted; --resume goes on, --force begins anew"
            raise UsageError(message, code="unwritable", path=str(self.path))

    def begin(self, setting: Setting) -> Simulation:
        """Return a simulation at its beginning, or where the snapshot in the folder left it."""
        path, simulation = self.path / SNAPSHOT, simulation_of(setting)
        if not self.resume:
            return simulation
        if not exists(path):
            raise UsageError(f"there is no {path} to go on from", code="unreadable", path=str(path))
        return restore(read_file(path), simulation, setting.inputs(), str(path))

    @contextmanager
    def alone(self, inputs: Sequence[str]) -> Iterator[None]:
        """Make the folder, and keep it from other processes in the block; `inputs` are files to be left as they are."""
        make_folder(self.path, (SNAPSHOT, *RESULTS), inputs)
        handle = os.open(self.path, os.O_RDONLY)
        try:
            require_alone(handle, self.path)
            self.require()  # another process may have ended a moment ago
            yield
        finally:
            os.close(handle)

    def put_aside(self, simulation: Simulation) -> SimulationResult:
        """Write a snapshot if the policy can be put aside, and return what the simulation has come to."""
        resumable = simulation.resumable
        if resumable:
            write_atomically(self.path / SNAPSHOT, snapshot(simulation, simulation.setting.inputs()))
        return result_of(simulation, resumable)

    def write(self, simulation: Simulation) -> SimulationResult:
        """Write all tables, the report, and at last the summary: where it is, all others are of the same run."""
        result = result_of(simulation)
        setting, outcome = result.setting, result.outcome
        (self.path / SUMMARY).unlink(missing_ok=True)
        report = None if self.report is None else self.report(result)
        text = summary_json(setting, result.summary, outcome)
        for name, content in zip(RESULTS, (jobs_csv(setting, outcome), rounds_csv(outcome), report, text), strict=True):
            if content is not None:
                write_atomically(self.path / name, content.encode())
        (self.path / SNAPSHOT).unlink(missing_ok=True)
        return result
