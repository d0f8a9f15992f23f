"""Failures of servers and links in CSV: an event a line. Described in docs/simulation.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from jigsaw_opt.documents.csv_text import restored
from jigsaw_opt.documents.readers.table import JobTable, Row
from jigsaw_opt.errors import Code
from jigsaw_opt.text import nearest

_TIMES: Mapping[str, int] = {"time_us": 1, "time_ms": 1000, "time_s": 1_000_000, "time_h": 3_600_000_000}
_REQUIRED = ("kind", "name", "state")
_STATES = ("down", "up")


class OutageEvent(NamedTuple):
    """A server or a link, by its number in the cluster, goes down or comes back at a time in microseconds."""

    time_us: int
    kind: str
    number: int
    down: bool


def read_outages(data: bytes | str, source: str, known: Mapping[str, Mapping[str, int]]) -> list[OutageEvent]:
    """Read events, in any order; those that it gives are in order of time.

    `known`: by kind, the number of each name.
    """
    table = JobTable(data, source, _REQUIRED, strict=True)
    times = [name for name in _TIMES if table.has(name)]
    if len(times) != 1:
        code: Code = "ambiguous" if times else "missing-field"
        told = f"{len(times)} columns with the time of the event"
        table.lines.add(1, told, f"one of {', '.join(_TIMES)}", code=code)
    for name in table.columns:
        if name not in (*_TIMES, *_REQUIRED):
            table.lines.add(1, f"unknown column {name!r}", nearest(name, (*_TIMES, *_REQUIRED)), code="unknown-field")
    table.lines.raise_if_any()
    read = [(_event(row, times[0], known), row) for row in table]
    good = sorted((pair for pair in read if pair[1].good), key=lambda pair: (pair[0].time_us, pair[1].number))
    _refuse_out_of_turn(good)
    table.lines.raise_if_any()
    return [event for event, _ in good]


def _event(row: Row, column: str, known: Mapping[str, Mapping[str, int]]) -> OutageEvent:
    kind, name, state = row.text("kind"), restored(row.text("name")), row.text("state")
    if kind and kind not in known:
        row.add(f"kind is {' or '.join(known)}, not {kind!r}", code="unknown-value")
    elif name and kind and name not in known[kind]:
        row.add(f"the cluster has no {kind} {name!r}", code="unknown-name")
    if state and state not in _STATES:
        row.add(f"state is {' or '.join(_STATES)}, not {state!r}", code="unknown-value")
    number = known.get(kind, {}).get(name, 0)
    return OutageEvent(row.microseconds(column, _TIMES[column]), kind, number, state == "down")


def _refuse_out_of_turn(events: list[tuple[OutageEvent, Row]]) -> None:
    """Note events of a part that is down, or up, already, and second events of a part at one time."""
    last: dict[tuple[str, str], OutageEvent] = {}
    for event, row in events:
        name = restored(row.text("name"))
        before = last.get((event.kind, name))
        if event.down == (before is not None and before.down):
            row.add(f"{event.kind} {name!r} is {'down' if event.down else 'up'} already", code="contradiction")
        elif before is not None and before.time_us == event.time_us:
            row.add(f"{event.kind} {name!r} has two events at the same time", code="contradiction")
        last[event.kind, name] = event
