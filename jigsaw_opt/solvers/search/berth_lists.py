"""Berths of all jobs in flat lists, for the nesting."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers, Reals
from jigsaw_opt.solvers.search.berths import Berth

if TYPE_CHECKING:
    from jigsaw_opt.solvers.search.nesting import Nesting

__all__ = ["Choices", "Lists", "Options"]


class Options(NamedTuple):
    """What may be: berths of all jobs, jobs that ask the same (a *kind*) sharing theirs.

    Parameters
    ----------
    kind
        By job.
    home
        By berth: its group, or -1.
    take_at, resource
        Resources that a berth takes are ``resource[take_at[b]:take_at[b + 1]]``.
    server_at, server
        Likewise its servers.
    within_from, within_to, within
        Berths of a kind in a group, or outside of all where it has none inside, by kind and group.
    at_from, at_to, at
        Berths of a kind with a server, by kind and server.
    group_at, member
        Servers of a group.
    inside_at, inside
        Resources that the berths of a group take.
    """

    kind: Numbers
    home: Numbers
    take_at: Numbers
    resource: Numbers
    server_at: Numbers
    server: Numbers
    within_from: Numbers
    within_to: Numbers
    within: Numbers
    at_from: Numbers
    at_to: Numbers
    at: Numbers
    group_at: Numbers
    member: Numbers
    inside_at: Numbers
    inside: Numbers


class Choices:
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


class Lists:
    """The berths of all kinds in flat lists.

    Parameters
    ----------
    kind
        By job, the number of its kind.
    choices
        By kind.
    groups
        Groups of servers.
    servers
        How many there are.
    """

    def __init__(
        self, kind: Sequence[int], choices: Sequence[Choices], groups: Sequence[Sequence[int]], servers: int
    ) -> None:
        self.first = [0, *accumulate(len(own.berths) for own in choices)]
        homes = [home for own in choices for home in own.homes]
        takes = [take for own in choices for take in own.takes]
        berths = [berth for own in choices for berth in own.berths]
        taken: list[set[int]] = [set() for _ in groups]
        for home, own_takes in zip(homes, takes, strict=True):
            if home is not None:
                taken[home].update(resource for resource, _ in own_takes)
        within: list[int] = []
        within_from, within_to = [0] * (len(choices) * len(groups)), [0] * (len(choices) * len(groups))
        at: list[int] = []
        at_from, at_to = [0] * (len(choices) * servers), [0] * (len(choices) * servers)
        for k, own in enumerate(choices):
            of_group: dict[int | None, list[int]] = {}
            at_server: dict[int, list[int]] = {}
            for number, (berth, home) in enumerate(zip(own.berths, own.homes, strict=True), self.first[k]):
                of_group.setdefault(home, []).append(number)
                for server in berth.servers:
                    at_server.setdefault(server, []).append(number)
            for home, numbers in of_group.items():
                for g in range(len(groups)) if home is None else (home,):
                    if home is not None or g not in of_group:
                        cell = k * len(groups) + g
                        within_from[cell], within_to[cell] = len(within), len(within) + len(numbers)
                within += numbers
            for server, numbers in at_server.items():
                cell = k * servers + server
                at_from[cell], at_to[cell] = len(at), len(at) + len(numbers)
                at += numbers
        self.options = Options(
            kind=list(kind),
            home=[-1 if home is None else home for home in homes],
            take_at=[0, *accumulate(map(len, takes))],
            resource=[resource for own in takes for resource, _ in own],
            server_at=[0, *accumulate(len(berth.servers) for berth in berths)],
            server=[server for berth in berths for server in berth.servers],
            within_from=within_from,
            within_to=within_to,
            within=within or [0],
            at_from=at_from,
            at_to=at_to,
            at=at or [0],
            group_at=[0, *accumulate(map(len, groups))],
            member=[server for group in groups for server in group],
            inside_at=[0, *accumulate(map(len, taken))],
            inside=[resource for inside in taken for resource in sorted(inside)] or [0],
        )
        self.amount: Reals = [amount for own in takes for _, amount in own]
