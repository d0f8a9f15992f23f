"""When servers and links of a simulated cluster fail and come back, whatever the policy does; also in words."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from jigsaw_opt.documents.file_bytes import read_text
from jigsaw_opt.documents.readers.outages import OutageEvent, read_outages
from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.text import nearest, readable

CHECKPOINT_US = 1_800_000_000
"""Time between two checkpoints of a job where nothing else is said: half an hour, chosen here."""


@dataclass(frozen=True, slots=True)
class ListedEvents:
    """Events that are given, in order of time; each part goes down and comes back in turn."""

    listed: tuple[OutageEvent, ...]

    def of(self, _cluster: Cluster) -> Iterator[OutageEvent]:
        """Yield the listed events."""
        return iter(self.listed)


@dataclass(frozen=True, slots=True)
class RandomEvents:
    """Events that are drawn: exponential times up and down, for each part from a stream of its own.

    `mtbf_us`: mean time for which a server is up, in microseconds. `mttr_us`: mean time for which a server or a link is
    down. `links_us`: mean time for which a link is up; None where no link fails. `seed`: seed from which, with the name
    of a part, the stream of that part follows.
    """

    mtbf_us: int
    mttr_us: int
    links_us: int | None
    seed: int

    def of(self, cluster: Cluster) -> Iterator[OutageEvent]:
        """Yield the events of a cluster in order of time, without end; they depend on nothing but names and seed."""
        servers = [self._part("server", k, one.name, self.mtbf_us) for k, one in enumerate(cluster.servers)]
        failing = () if self.links_us is None else cluster.links
        links = [self._part("link", k, one.name, self.links_us or 0) for k, one in enumerate(failing)]
        return heapq.merge(*servers, *links)

    def _part(self, kind: str, number: int, name: str, mean_up_us: int) -> Iterator[OutageEvent]:
        draw = random.Random(f"{self.seed} {kind} {name}")
        time_us, down = 0, False
        while True:
            mean_us = self.mttr_us if down else mean_up_us
            time_us += max(1, round(draw.expovariate(1.0) * mean_us))
            down = not down
            yield OutageEvent(time_us, kind, number, down)


@dataclass(frozen=True, slots=True)
class Failures:
    """The failures of a simulation, and what they cost jobs.

    `events`: when servers and links go down and come back. `checkpoint_us`: A running job keeps what it has done at
    every multiple of this time since its start was over. Writing it takes no time.
    """

    events: ListedEvents | RandomEvents
    checkpoint_us: int = CHECKPOINT_US


def server_outages(failures: Failures | None, cluster: Cluster, end_us: int) -> Iterator[tuple[int, int, int]]:
    """Yield the outages of servers up to a time.

    Number of the server, and when it went down and came back, in microseconds.

    `failures`: the failures; None for none. `end_us`: the time, in microseconds; a server that is down then is taken to
    be up again.
    """
    if failures is None:
        return
    since = dict[int, int]()
    servers = (event for event in failures.events.of(cluster) if event.kind == "server")
    for time_us, _, number, down in takewhile(lambda event: event.time_us < end_us, servers):
        if down:
            since[number] = time_us
        else:
            yield number, since.pop(number), time_us
    yield from ((number, start_us, end_us) for number, start_us in since.items())


def down_gpu_us(failures: Failures | None, cluster: Cluster, start_us: int, end_us: int) -> int:
    """Return the GPU-microseconds of servers that are down between two times."""
    outages = server_outages(failures, cluster, end_us)
    return sum(cluster.servers[k].gpus * max(0, up_us - max(start_us, down_us)) for k, down_us, up_us in outages)


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
    name, sign, _ = given.partition("=")
    if sign and name.isalpha():
        times = _times(given, _REQUIRED)
        events: RandomEvents | ListedEvents = RandomEvents(times["mtbf"], times["mttr"], times.get("links"), seed)
    else:
        file, _, checkpoint = given.partition(",checkpoint=")
        times = _times(f"checkpoint={checkpoint}") if checkpoint else {}
        events = _listed(file, cluster) if cluster.servers else ListedEvents(())
    return Failures(events, times.get("checkpoint", CHECKPOINT_US))


def _times(text: str, required: Sequence[str] = ()) -> dict[str, int]:
    """Return times in microseconds by word."""
    times, report = dict[str, int](), Report()
    for word in text.split(","):
        name, _, value = word.partition("=")
        if name not in _UNITS:
            told = f"no word {name!r} in the failures; {nearest(name, _UNITS)}"
            report.add("failures", told, code="unknown-option")
        elif name in times:
            report.add("failures", f"{name!r} is there twice in the failures", code="duplicate-name")
        else:
            times[name] = _microseconds(value, _UNITS[name])
            if not times[name]:
                told = f"{name!r} of the failures is a time above 0 and at most 285 years, not {value!r}"
                report.add("failures", told, code="out-of-range")
    for name in required:
        if name not in times:
            report.add("failures", f"the failures need {name}=HOURS", code="missing-option")
    if report.problems:
        raise UsageError.of(report.problems)
    return times


def _microseconds(text: str, unit_us: int) -> int:
    """Return a time in microseconds; 0 for what is none, or is out of range."""
    try:
        time_us = float(text) * unit_us
    except ValueError:
        return 0
    return round(time_us) if 1 <= time_us <= _MOST_US else 0


def _listed(file: str, cluster: Cluster) -> ListedEvents:
    """Return the events of a file, by the numbers of servers and links."""
    numbers = {
        "server": {server.name: k for k, server in enumerate(cluster.servers)},
        "link": {link.name: k for k, link in enumerate(cluster.links)},
    }
    return ListedEvents(tuple(read_outages(read_text(file), readable(file), numbers)))
