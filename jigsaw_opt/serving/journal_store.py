"""A file of SQLite that holds all that a service has taken in: journal, snapshots, changes, stories and a lease.

The journal and the snapshots are the truth. Changes and stories follow from them, and are written in one transaction
with the entries that they follow from.
"""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from jigsaw_opt.errors import JigsawError, UsageError, wrong_input

_log = logging.getLogger(__name__)
_APPLICATION = 0x4A696773  # marks the file as one of a service
_VERSION = 3
_DAY_US, _MOST_USAGE = 86_400_000_000, 1440
_BUSY_S = 2.0  # how long a write waits for somebody who holds the file, such as a backup
_TABLES = f"""
BEGIN IMMEDIATE;
CREATE TABLE entries (sequence INTEGER PRIMARY KEY, who TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE snapshots (sequence INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE changes (sequence INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE stories (sequence INTEGER, part INTEGER, job TEXT, body BLOB NOT NULL, PRIMARY KEY (sequence, part));
CREATE INDEX stories_of_job ON stories (job, sequence, part);
CREATE TABLE usage (time_us INTEGER PRIMARY KEY, in_use INTEGER, up INTEGER, waiting INTEGER);
CREATE TABLE requests (who TEXT, key TEXT, digest BLOB, time_us INTEGER, body BLOB, PRIMARY KEY (who, key));
CREATE TABLE lease (id INTEGER PRIMARY KEY CHECK (id = 1), owner TEXT NOT NULL, until_us INTEGER NOT NULL);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
COMMIT;
"""


class StoreError(JigsawError):
    """The file cannot be written now: the disk is full, or somebody else holds it."""


class LeaseLostError(JigsawError):
    """Another service has taken the file over."""


class JournalStore:
    """The file of one service, written by one thread and read by any.

    `path`: the file, which is made where there is none; one of another program is refused. `lease_s`: seconds that the
    lease lasts after each write.
    """

    def __init__(self, path: Path, lease_s: float) -> None:
        self.path, self._lease_us = path, round(lease_s * 1_000_000)
        self._owner = f"process {os.getpid()} of {socket.gethostname()}, {uuid4().hex}"
        try:
            self._db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            self._set_up()
        except sqlite3.OperationalError as error:
            raise StoreError(f"{path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise wrong_input(str(path), f"is no database of a service: {error}", code="unknown-format") from error

    def _set_up(self) -> None:
        found = [self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        is_new = not self._db.execute("SELECT 1 FROM sqlite_master").fetchone()
        if not is_new and found != [_APPLICATION, _VERSION]:
            told = "is a database of another program, or of another version of this one"
            raise wrong_input(str(self.path), told, code="unknown-format")
        self._db.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;" + _TABLES * is_new)

    # The lease ----------------------------------------------------------------------------------------------

    def take_lease(self, sleep: Callable[[float], object] = time.sleep) -> None:
        """Become the only one who writes; wait until the lease of one who is gone has run out.

        One that is not renewed for as long as leases last has run out whatever the clock says, which may have been set
        back. A service that renews its lease meanwhile is named in a `UsageError`.
        """
        first, until_s = None, 0.0
        while True:
            with self._transaction() as db:
                found = db.execute("SELECT owner, until_us FROM lease").fetchone()
                is_old = found is not None and found == first and time.monotonic() >= until_s
                if found is None or found[1] <= _now_us() or is_old:
                    until_us = _now_us() + self._lease_us
                    db.execute("INSERT OR REPLACE INTO lease VALUES (1, ?, ?)", (self._owner, until_us))
                    return
            if first is None:
                first, until_s = found, time.monotonic() + self._lease_us / 1_000_000
                _log.warning("%s is held by %s: waiting whether that still writes", self.path, found[0])
            elif found != first:
                told = f"another service writes to {self.path}: {found[0]}; end it, or give another file"
                raise UsageError(told, code="not-allowed", path="database")
            sleep(0.2)

    # Writing ------------------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        db = self._db
        try:
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from error
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write all that is executed in the block, or nothing; it is on disk at the end, and the lease lasts longer."""
        with self._transaction():
            self._renew()
            yield
            self._renew()  # what is done in the block may take long, and the lease lasts from its end

    def _renew(self) -> None:
        until_us = _now_us() + self._lease_us
        held = self._db.execute("UPDATE lease SET until_us = ? WHERE owner = ?", (until_us, self._owner))
        if held.rowcount == 0:
            raise LeaseLostError(f"another service has taken {self.path} over")

    def execute(self, statement: str, *values: Any) -> None:
        """Carry out a statement in a block of `writing`, which may raise what this raises."""
        self._db.execute(statement, values)

    def compact(self, sequence: int, snapshot: bytes, oldest: int) -> None:
        """Write a snapshot of the state after an entry, in place of the entries up to it, in a block of `writing`.

        `oldest`: changes and stories up to this number are forgotten.
        """
        old = [("changes", "sequence <= ?", oldest), ("stories", "sequence <= ?", oldest)]
        old += [("snapshots", "sequence <= ?", sequence), ("entries", "sequence <= ?", sequence)]
        old += [("requests", "time_us < ?", _now_us() - _DAY_US)]
        old += [("usage", "time_us < (SELECT max(time_us) FROM usage) - ?", 7 * _DAY_US)]
        for table, which, value in old:
            self.execute(f"DELETE FROM {table} WHERE {which}", value)
        self.execute("INSERT INTO snapshots VALUES (?, ?)", sequence, snapshot)

    def close(self) -> None:
        """Give the lease back, if it is held, and close the file."""
        try:
            with self._transaction() as db:
                db.execute("DELETE FROM lease WHERE owner = ?", (self._owner,))
        finally:
            self._db.close()

    # Reading ------------------------------------------------------------------------------------------------

    def start(self) -> tuple[tuple[int, bytes] | None, list[tuple[int, str, bytes]]]:
        """Return the last snapshot with its number, and the entries since: number, who caused it, and what it says."""
        snapshot = self._db.execute("SELECT sequence, body FROM snapshots").fetchone()
        return snapshot, self._db.execute("SELECT sequence, who, body FROM entries ORDER BY sequence").fetchall()

    def request(self, who: str, key: str) -> tuple[bytes, bytes] | None:
        """Return digest and answer of an earlier request by its key; None where there was none."""
        sql = "SELECT digest, body FROM requests WHERE who = ? AND key = ?"
        found: tuple[bytes, bytes] | None = self._db.execute(sql, (who, key)).fetchone()
        return found

    def last_change(self) -> int:
        """Return the number of the last change; 0 where there is none."""
        return int(self._db.execute("SELECT coalesce(max(sequence), 0) FROM changes").fetchone()[0])

    def changes(self, after: int, most: int) -> list[tuple[int, bytes]]:
        """Return changes of larger numbers, the oldest first."""
        sql = "SELECT sequence, body FROM changes WHERE sequence > ? ORDER BY sequence LIMIT ?"
        return self._read(sql, (after, most))

    def story(self, job: str, most: int) -> list[bytes]:
        """Return the last things that happened to a job, the oldest first."""
        sql = "SELECT body FROM stories WHERE job = ? ORDER BY sequence DESC, part DESC LIMIT ?"
        return [body for (body,) in reversed(self._read(sql, (job, most)))]

    def usage(self) -> list[tuple[int, int, int, int]]:
        """Return the last minutes in which something happened: time, GPUs in use and up, jobs that wait."""
        return self._read("SELECT * FROM usage ORDER BY time_us DESC LIMIT ?", (_MOST_USAGE,))[::-1]

    def _read(self, sql: str, values: Sequence[Any]) -> list[Any]:
        """Read in any thread, over a connection of its own, which waits for nobody who writes."""
        try:
            uri = f"{self.path.resolve().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_S)) as db:
                return db.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from error


def _now_us() -> int:
    return time.time_ns() // 1000
