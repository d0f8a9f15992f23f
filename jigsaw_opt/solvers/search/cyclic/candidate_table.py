"""Where a job may be laid on a circle: where it has been put, or wherever it fits best as the circle is now."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from jigsaw_opt.solvers.greedy.placed import PlacedJob
from jigsaw_opt.solvers.search.candidates import Places
from jigsaw_opt.solvers.search.loads import Ground, Loads

__all__ = ["Berth", "Berths", "Catalogue", "Fits", "Given"]

_MOST_FITTING, _MOST_EMPTY = 4, 2
_LENGTH_WEIGHT, _WORK_WEIGHT = 3.0, 0.1
_BLUR = 0.3


class Berths(Protocol):
    """Offers of spots for jobs."""

    def spots(self, loads: Loads, index: int) -> Iterable[PlacedJob]:
        """Where a job may be laid, what is worth trying first before the rest."""

    def target(self, index: int) -> PlacedJob:
        """A spot at which room may be made for a job."""


class Given:
    """Every job has one spot.

    Parameters
    ----------
    spots
        Where every job is.
    """

    def __init__(self, spots: Sequence[PlacedJob]) -> None:
        self._spots = spots

    def spots(self, loads: Loads, index: int) -> Iterable[PlacedJob]:
        """The spot."""
        return (self._spots[index],)

    def target(self, index: int) -> PlacedJob:
        """The spot."""
        return self._spots[index]


class Berth(NamedTuple):
    """Servers for a job, and the job there if it is alone on them.

    Parameters
    ----------
    servers
        Numbers of the servers.
    alone
        The job on their first GPUs.
    length, exchange
        Time of all its iterations, and of all its transfers, in microseconds.
    """

    servers: tuple[int, ...]
    alone: PlacedJob
    length: int
    exchange: int


class Catalogue:
    """All berths of all jobs: single servers, or aligned blocks of them for a job that is wider.

    Parameters
    ----------
    ground
        The instance.
    """

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self._places = Places(ground, random.Random(0))
        self._berths: dict[int, list[Berth]] = {}

    def of(self, index: int) -> list[Berth]:
        """All berths of a job; one list for all jobs that ask the same."""
        key = id(self.ground.demands[index])
        if key not in self._berths:
            berths = [self._berth(index, servers) for servers in self._places.blocks(index)]
            self._berths[key] = [berth for berth in berths if berth is not None]
        return self._berths[key]

    def spot(self, loads: Loads, index: int, berth: Berth, period: int) -> PlacedJob | None:
        """The job on the least loaded GPUs of a berth; None where they have not the memory or the time."""
        inside, load = self.ground.layout.on_server, loads.gpu_us
        gpus = [gpu for server in berth.servers for gpu in sorted(inside[server], key=load.__getitem__)]
        chosen = self._places.chosen(loads, index, gpus)
        spot = None if chosen is None else loads.spot(index, chosen)
        if spot is None:
            return None
        iterations = spot.job.iterations
        times = zip(spot.gpus, spot.slot_us, strict=True)
        return spot if all(load[gpu] + slot_us * iterations <= period for gpu, slot_us in times) else None

    def _berth(self, index: int, servers: tuple[int, ...]) -> Berth | None:
        ground = self.ground
        job = ground.pieces.jobs[index]
        gpus = [gpu for server in servers for gpu in ground.layout.on_server[server]][: job.slots]
        alone = ground.spot(index, ground.demands[index], gpus, [job.levels] * job.slots)
        if alone is None:
            return None
        return Berth(servers, alone, alone.iteration_us * job.iterations, sum(map(sum, alone.exchange)))


class Fits:
    """Every job goes where it fits best: onto few links, full ones, and the slowest GPUs that are fast enough for it.

    What is left then is whole: empty links, and fast GPUs for those jobs that need them. A job of many servers is
    offered aligned blocks of them, so that jobs lie inside one another or apart.

    Parameters
    ----------
    catalogue
        All berths.
    period
        Length of the circle in microseconds: nothing is offered that takes longer, or that is fuller.
    draw
        Source of chance.
    before
        Where every job was when all had room last; offered first.
    """

    def __init__(
        self, catalogue: Catalogue, period: int, draw: random.Random, before: Sequence[PlacedJob] | None = None
    ) -> None:
        self.catalogue, self.period, self.draw, self.before = catalogue, period, draw, before
        self._fast: dict[int, list[Berth]] = {}

    def spots(self, loads: Loads, index: int) -> Iterator[PlacedJob]:
        """The spot of before, then the best few with room for a job, blurred by chance, then the emptiest few."""
        if self.before is not None and loads.admits(index, self.before[index]):
            yield self.before[index]
        link_us, blur = loads.link_us, _BLUR * self.period
        fitting: list[tuple[float, int, Berth]] = []
        emptiest: list[tuple[float, int, Berth]] = []
        for number, berth in enumerate(self._of(index)):
            if all(link_us[link] + berth.exchange <= self.period for link in berth.alone.links):
                full, work = self._full(loads, berth)
                whole = len(berth.alone.links) * self.period - _LENGTH_WEIGHT * berth.length
                fitting.append((whole - full + _WORK_WEIGHT * work + blur * self.draw.random(), number, berth))
                emptiest.append((full + work, number, berth))
        yield from islice(self._admitted(loads, index, fitting), _MOST_FITTING)
        yield from islice(self._admitted(loads, index, emptiest), _MOST_EMPTY)

    def _admitted(self, loads: Loads, index: int, ranked: list[tuple[float, int, Berth]]) -> Iterator[PlacedJob]:
        """Spots at berths, by rank, where there is memory and time."""
        for *_, berth in sorted(ranked):
            spot = self.catalogue.spot(loads, index, berth, self.period)
            if spot is not None:
                yield spot

    def target(self, index: int) -> PlacedJob:
        """Any of the spots, as if the job were alone."""
        return self.draw.choice(self._of(index)).alone

    def quickest(self) -> list[PlacedJob]:
        """For every job the spot at which it is done soonest if it is alone."""
        jobs = range(len(self.catalogue.ground.pieces.jobs))
        return [min(self._of(index), key=lambda berth: berth.length).alone for index in jobs]

    def _full(self, loads: Loads, berth: Berth) -> tuple[float, float]:
        """Mean load of the links of a berth, and of a GPU of each of its servers."""
        links, inside = berth.alone.links, self.catalogue.ground.layout.on_server
        full = sum(loads.link_us[link] for link in links) / max(1, len(links))
        return full, sum(loads.gpu_us[inside[server][0]] for server in berth.servers) / len(berth.servers)

    def _of(self, index: int) -> list[Berth]:
        """The berths of a job that are fast enough, or all where none is."""
        all_of_it = self.catalogue.of(index)
        if id(all_of_it) not in self._fast:
            self._fast[id(all_of_it)] = [berth for berth in all_of_it if berth.length <= self.period] or all_of_it
        return self._fast[id(all_of_it)]
