"""The log of the client: JSON lines, each with a time, which tell all that it saw, decided and did."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from jigsaw_opt.documents.file_bytes import require_alone, unwritable
from jigsaw_opt.errors import reason_of, wrong_input
from jigsaw_opt.serving.slurm.reading import SlurmJob
from jigsaw_opt.text import json_text

Entry: TypeAlias = Mapping[str, Any]
_DURABLE = ("command", "given-back")
_OPEN_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND


class ClientLog:
    """A log that one client at a time writes to, inside a `with` block.

    What it wrote outlives a crash of the client, and what Slurm was told outlives a crash of the machine too.

    `path`: its file, which is made where there is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1

    def __enter__(self) -> ClientLog:
        self._is_new = not self.path.exists()
        try:
            self._file = os.open(self.path, _OPEN_FLAGS, 0o640)
        except OSError as error:
            raise unwritable(self.path, error) from None
        require_alone(self._file, self.path)
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":  # a crash cut the last line
            os.write(self._file, b"\n")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_new and not os.fstat(self._file).st_size:
            self.path.unlink(missing_ok=True)  # the client never began
        os.close(self._file)

    def write(self, time_us: int, entry: str, **facts: object) -> None:
        """Append an entry."""
        data = f"{json_text({'time_us': time_us, 'entry': entry, **facts})}\n".encode()
        while data:
            data = data[os.write(self._file, data) :]
        if entry in _DURABLE:
            os.fsync(self._file)


def read_log(path: Path) -> Iterator[Entry]:
    """Yield the entries of a log; lines that a crash has cut are passed over."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            good, bad = 0, 0
            for line in file:
                try:
                    entry = json.loads(line)
                    is_entry = isinstance(entry["entry"], str) and type(entry["time_us"]) is int
                except (ValueError, KeyError, TypeError):
                    is_entry = False
                good, bad = good + is_entry, bad + (not is_entry)
                if is_entry:
                    yield entry
    except OSError as error:
        raise wrong_input(str(path), f"cannot be read: {reason_of(error)}", code="unreadable") from None
    if bad and not good:
        raise wrong_input(str(path), "is no log of jigsaw slurm", code="unknown-format")


def read_begun(path: Path) -> tuple[Entry, list[Entry]]:
    """Return how the client began that last found other nodes, and the entries from there on."""
    begin, entries = None, list[Entry]()
    for entry in read_log(path):
        if entry["entry"] == "begin" and (begin is None or entry["nodes"] != begin["nodes"]):
            begin, entries = entry, []
        entries.append(entry)
    if begin is None:
        told = "says of no client that it began" if entries else "is empty: no client has written to it"
        raise wrong_input(str(path), told, code="empty")
    return begin, entries


def open_jobs(path: Path) -> dict[str, SlurmJob]:
    """Return the jobs that a client has seen and whose end it has not, by its log; none where there is no log."""
    found: dict[str, SlurmJob] = {}
    for entry in read_log(path) if path.exists() else ():
        name = str(entry.get("job"))
        if entry["entry"] in ("job", "running"):
            job = SlurmJob(name, "runs", "", entry["gpus"], submit_us=entry["submit_us"])
            found[name] = replace(job, start_us=entry.get("start_us"))
        elif entry["entry"] == "ended":
            found.pop(name, None)
    return found


def released_jobs(path: Path) -> set[str]:
    """Return the jobs that a client has placed and not given back, by its log; none where there is no log."""
    found: set[str] = set()
    for entry in read_log(path) if path.exists() else ():
        words = entry.get("command")
        if entry["entry"] == "command" and isinstance(words, list) and words[1] in ("update", "requeuehold"):
            found.add(str(words[2]).removeprefix("jobid="))
        elif entry["entry"] in ("given-back", "ended"):
            found.discard(str(entry.get("job")))
    return found
