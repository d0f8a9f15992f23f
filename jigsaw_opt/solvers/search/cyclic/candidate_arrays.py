"""Candidate server sets of all jobs as flat lists, for the annealing of assignments."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from jigsaw_opt.solvers.engines.compiled import Reals
from jigsaw_opt.solvers.kernels.assignment import CandidateSets
from jigsaw_opt.solvers.search.cyclic.candidate_table import Berth

if TYPE_CHECKING:
    from jigsaw_opt.solvers.search.cyclic.hierarchy import Nesting

__all__ = ["CandidateArrays", "Choices"]


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


class CandidateArrays:
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
        self.options = CandidateSets(
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
