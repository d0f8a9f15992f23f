"""Failures in words, as on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from jigsaw_opt.documents.file_bytes import read_text
from jigsaw_opt.documents.files import exists
from jigsaw_opt.documents.readers.outages import read_outages
from jigsaw_opt.errors import Problem, UsageError
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.simulation.outages import CHECKPOINT_US, Failures, ListedEvents, OutageEvent, RandomEvents
from jigsaw_opt.text import nearest, readable

__all__ = ["are_times", "failures_of"]

_HOUR_US, _SECOND_US = 3_600_000_000, 1_000_000
_MOST_US = 9 * 10**15
_UNITS = {"mtbf": _HOUR_US, "mttr": _HOUR_US, "links": _HOUR_US, "checkpoint": _SECOND_US}
_REQUIRED = ("mtbf", "mttr")


def failures_of(given: str | Failures, cluster: Cluster, seed: int) -> Failures | None:
    """Return failures from ``mtbf=100,mttr=2,links=500,checkpoint=600``, ``FILE`` or ``FILE,checkpoint=600``.

    `given`: the words, empty for no failures; or the failures themselves.
    """
    if not isinstance(given, str):
        return given
    if not given:
        return None
    if are_times(given):
        times = _times(given, _REQUIRED)
        events: RandomEvents | ListedEvents = RandomEvents(times["mtbf"], times["mttr"], times.get("links"), seed)
    else:
        file, _, checkpoint = given.partition(",checkpoint=")
        times = _times(f"checkpoint={checkpoint}") if checkpoint else {}
        events = _listed(file, cluster)
    return Failures(events, times.get("checkpoint", CHECKPOINT_US))


def are_times(text: str) -> bool:
    """Return whether failures in words are times in the mean, and no file of events."""
    name, sign, _ = text.partition("=")
    return name in _UNITS or (bool(sign) and name.isalpha() and not exists(text))


def _times(text: str, required: Sequence[str] = ()) -> dict[str, int]:
    """Return times in microseconds by word."""
    times: dict[str, int] = {}
    problems: list[Problem] = []
    for word in text.split(","):
        name, _, value = word.partition("=")
        if name not in _UNITS:
            problems.append(
                Problem("failures", f"no word {name!r} in the failures; {nearest(name, _UNITS)}", code="unknown-option")
            )
        elif name in times:
            problems.append(Problem("failures", f"{name!r} is there twice in the failures", code="duplicate-name"))
        else:
            times[name] = 0
            try:
                times[name] = _microseconds(value, _UNITS[name])
            except ValueError:
                problems.append(
                    Problem(
                        "failures",
                        f"{name!r} of the failures is a time above 0 and at most 285 years, not {value!r}",
                        code="out-of-range",
                    )
                )
    problems += [
        Problem("failures", f"the failures need {name}=HOURS", code="missing-option")
        for name in required
        if name not in times
    ]
    if problems:
        raise UsageError.of(problems)
    return times


def _microseconds(text: str, unit_us: int) -> int:
    time_us = float(text) * unit_us
    if not 1 <= time_us <= _MOST_US:
        raise ValueError("out of range")
    return round(time_us)


def _listed(file: str, cluster: Cluster) -> ListedEvents:
    """Return the events of a file, by the numbers of servers and links."""
    numbers = {
        "server": {server.name: k for k, server in enumerate(cluster.servers)},
        "link": {link.name: k for k, link in enumerate(cluster.links)},
    }
    read = read_outages(read_text(file), readable(file), numbers)
    return ListedEvents(
        tuple(OutageEvent(one.time_us, one.kind, numbers[one.kind][one.name], one.down) for one in read)
    )
