"""Which block of servers each job goes to, by loads alone, without a timetable.

Servers come in groups: whole racks where these have room for the widest job, so that jobs of different groups meet on
no link. Blocks within a group lie inside one another or apart. Such a group can be timed by itself, and almost as if it
were one machine. What is left is to fill all links alike, which is packing with few large parts: annealing over moves
and exchanges of jobs does it, since a step looks at a few servers and links only.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from math import exp

from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.solvers.search.berths import Berth, Catalogue
from jigsaw_opt.solvers.search.loads import Ground
from jigsaw_opt.solvers.search.places import by_type

__all__ = ["COLD", "HOT", "Nesting", "groups_of"]

HOT, COLD = 0.1, 1e-5
"""By how much a step may well make it worse: at first anyone may go anywhere, in the end nothing may."""
_EXCHANGES = 0.5
"""How often two jobs change places, and not one job its own."""
_SAMPLE = 64
"""Berths that are looked at when a job is first placed."""


def groups_of(ground: Ground) -> list[list[int]]:
    """Servers near one another, in groups with room for the widest job, as small as may be.

    A rack is cut into groups of as many servers as the widest job needs, rounded up to a power of two; racks and parts
    of racks that are smaller go together.
    """
    layout = ground.layout
    need = max(ceil_div(job.slots, min(map(len, layout.on_server))) for job in ground.pieces.jobs)
    size = 1 << (need - 1).bit_length()
    found: list[list[int]] = []
    seen: set[int] = set()
    for server in range(len(layout.servers)):
        if server in seen:
            continue
        rack = by_type(layout, sorted({s for ring in layout.near(server)[:2] for s in ring} - seen))
        seen.update(rack)
        for at in range(0, len(rack), size):
            part = rack[at : at + size]
            if found and min(len(part), len(found[-1])) < size:
                found[-1] += part
            else:
                found.append(part)
    return found


class _Choices:
    """Berths of all jobs that ask the same, with what they take of servers and links, as shares of what there is.

    Berths within one group and nested there come alone where there are such.
    """

    def __init__(self, berths: Sequence[Berth], nesting: Nesting, index: int) -> None:
        homes = [nesting.home(berth.servers) for berth in berths]
        nested = [home is not None and nesting.aligned(b.servers) for b, home in zip(berths, homes, strict=True)]
        inside = [home is not None for home in homes]
        kept = nested if any(nested) else inside if any(inside) else [True] * len(berths)
        self.berths = [berth for berth, keep in zip(berths, kept, strict=True) if keep]
        self.homes = [home for home, keep in zip(homes, kept, strict=True) if keep]
        self.takes = [list(nesting.takes(index, berth)) for berth in self.berths]
        self._of_group: dict[int | None, list[int]] = {}
        self._at_server: dict[int, list[int]] = {}
        for number, (berth, home) in enumerate(zip(self.berths, self.homes, strict=True)):
            self._of_group.setdefault(home, []).append(number)
            for server in berth.servers:
                self._at_server.setdefault(server, []).append(number)

    def within(self, group: int) -> Sequence[int]:
        """Numbers of the berths in a group, or of those that are in no group."""
        return self._of_group.get(group) or self._of_group.get(None) or ()

    def at(self, server: int) -> Sequence[int]:
        """Numbers of the berths with a server."""
        return self._at_server.get(server, ())


class Nesting:
    """An assignment of jobs to berths.

    Parameters
    ----------
    catalogue
        All berths. Every job has one.
    target
        Load in microseconds above which a link or a server counts as too full.
    longest
        Berths at which a job takes longer are left out, in microseconds, unless all of its are.
    draw
        Source of chance.

    Attributes
    ----------
    groups
        Groups of servers.
    """

    def __init__(self, catalogue: Catalogue, target: int, longest: int, draw: random.Random) -> None:
        self.ground, self.target, self.draw = catalogue.ground, target, draw
        layout, jobs = self.ground.layout, self.ground.pieces.jobs
        self.groups = groups_of(self.ground)
        self._place = {server: (g, k) for g, group in enumerate(self.groups) for k, server in enumerate(group)}
        # Activations come and go with the blocks; states stay.
        activations = sum(job.activation_bytes[-1] * job.slots for job in jobs) // sum(job.slots for job in jobs)
        self._room = [sum(max(1, layout.memory[gpu] - activations) for gpu in gpus) for gpus in layout.on_server]
        self._load = [0.0] * (layout.links + 2 * len(layout.servers))
        self._on: list[dict[int, None]] = [{} for _ in layout.servers]
        shared: dict[int, _Choices] = {}
        for index in range(len(jobs)):
            berths = catalogue.of(index)
            if id(berths) not in shared:
                fast = [berth for berth in berths if berth.length <= longest]
                shared[id(berths)] = _Choices(fast or berths, self, index)
        self._of = [shared[id(catalogue.of(index))] for index in range(len(jobs))]
        self._now: list[int | None] = [None] * len(jobs)
        self._begin()

    def home(self, servers: Iterable[int]) -> int | None:
        """The group of some servers; None where it is not the same for all."""
        groups = {self._place[server][0] for server in servers}
        return groups.pop() if len(groups) == 1 else None

    def aligned(self, servers: Sequence[int]) -> bool:
        """Whether servers of a group stand in a row that begins at a multiple of their number, rounded up."""
        places = sorted(self._place[server][1] for server in servers)
        size = 1 << (len(places) - 1).bit_length()
        return places[0] % size == 0 and places[-1] - places[0] == len(places) - 1

    def takes(self, index: int, berth: Berth) -> Iterator[tuple[int, float]]:
        """What a job takes at a berth: time of links, mean time and memory of servers, as shares of what there is."""
        layout, job = self.ground.layout, self.ground.pieces.jobs[index]
        for link in berth.alone.links:
            yield link, berth.exchange / self.target
        times: dict[int, list[int]] = {}
        for gpu, slot_us in zip(berth.alone.gpus, berth.alone.slot_us, strict=True):
            times.setdefault(layout.server_of[gpu], []).append(slot_us * job.iterations)
        for server, spent in times.items():
            number = layout.links + 2 * server
            yield number, sum(spent) / len(layout.on_server[server]) / self.target
            yield number + 1, len(spent) * job.state_bytes / self._room[server]

    def berth(self, index: int) -> Berth:
        """Where a job is."""
        return self._of[index].berths[self._number(index)]

    def group(self, index: int) -> int | None:
        """Group in which a job is; None where it reaches over several."""
        return self._of[index].homes[self._number(index)]

    def fullest(self, groups: Iterable[int]) -> float:
        """Largest load of a link or server in some groups, as a share of the target."""
        layout, load = self.ground.layout, self._load
        servers = [server for group in groups for server in self.groups[group]]
        guests = {index for server in servers for index in self._on[server]}
        links = {link for index in guests for link in self.berth(index).alone.links}
        return max([load[link] for link in links] + [load[layout.links + 2 * server] for server in servers])

    def berths(self) -> list[int | None]:
        """All berths by number, to come back to."""
        return list(self._now)

    def restore(self, numbers: Sequence[int | None], jobs: Iterable[int]) -> None:
        """Put jobs back to the berths that they had."""
        for index in jobs:
            self._move(index, numbers[index])

    def anneal(self, jobs: Sequence[int], groups: Sequence[int], steps: int, hot: float, cold: float) -> None:
        """Move jobs about within some groups, so that less is too full.

        Parameters
        ----------
        jobs
            Jobs that are there.
        groups
            Numbers of the groups.
        steps
            Number of steps.
        hot, cold
            By how much the sum of squared excesses, as shares of the target, may well rise in the beginning and in the
            end.
        """
        draw, drawn = self.draw, self.draw.random
        for step in range(steps):
            index = self._pick(jobs, groups)
            options = self._of[index].within(draw.choice(groups))
            if not options:
                continue
            moves = [(index, draw.choice(options))]
            if drawn() < _EXCHANGES:
                moves += self._back(*moves[0])
            rise = self._rise(moves)
            temperature = hot * (cold / hot) ** (step / steps)
            if rise <= 0 or drawn() < exp(-rise / temperature):
                for moved, number in moves:
                    self._move(moved, number)

    def _pick(self, jobs: Sequence[int], groups: Sequence[int]) -> int:
        """A job, the sooner the more servers it has: what is left for the small ones is settled by the wide ones."""
        draw = self.draw
        guests = self._on[draw.choice(self.groups[draw.choice(groups)])]
        index = draw.choice(list(guests)) if guests else draw.choice(jobs)
        return index if self.group(index) is not None else draw.choice(jobs)

    def _back(self, index: int, number: int) -> list[tuple[int, int]]:
        """A job at a berth that another one comes to, and a berth for it where that one was; empty where none is."""
        draw = self.draw
        guests = self._on[draw.choice(self._of[index].berths[number].servers)]
        if not guests:
            return []
        other = draw.choice(list(guests))
        options = self._of[other].at(draw.choice(self.berth(index).servers))
        return [] if other == index or not options or self.group(other) is None else [(other, draw.choice(options))]

    def _rise(self, moves: Iterable[tuple[int, int]]) -> float:
        """By how much moves raise the sum of the squares of what is too full."""
        change: dict[int, float] = {}
        for index, number in moves:
            own = self._of[index]
            for resource, amount in own.takes[self._number(index)]:
                change[resource] = change.get(resource, 0.0) - amount
            for resource, amount in own.takes[number]:
                change[resource] = change.get(resource, 0.0) + amount
        load, rise = self._load, 0.0
        for resource, amount in change.items():
            before = load[resource] - 1.0
            after = before + amount
            if before > 0.0:
                rise -= before * before
            if after > 0.0:
                rise += after * after
        return rise

    def _begin(self) -> None:
        """Every job at the emptiest of some berths, those that take most first."""
        load = self._load
        most = [sum(amount for _, amount in own.takes[0]) for own in self._of]
        for index in sorted(range(len(most)), key=lambda index: -most[index]):
            own = self._of[index]
            numbers = range(len(own.berths))
            some = numbers if len(numbers) <= _SAMPLE else self.draw.sample(numbers, _SAMPLE)
            self._move(
                index, min(some, key=lambda k: max(load[resource] + amount for resource, amount in own.takes[k]))
            )

    def _number(self, index: int) -> int:
        number = self._now[index]
        assert number is not None, "every job has a berth from the beginning on"
        return number

    def _move(self, index: int, number: int | None) -> None:
        """Take a job from its berth to another."""
        for berth, sign in ((self._now[index], -1.0), (number, 1.0)):
            if berth is None:
                continue
            for resource, amount in self._of[index].takes[berth]:
                self._load[resource] += sign * amount
            for server in self._of[index].berths[berth].servers:
                if sign > 0:
                    self._on[server][index] = None
                else:
                    del self._on[server][index]
        self._now[index] = number
