"""Blocks of GPUs for teams of jobs: those that go on keep theirs, and wide teams come first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.scheduling.policy import ClusterSetting


@dataclass(frozen=True, slots=True)
class Team:
    """Jobs that share GPUs.

    `type`: number of the type of servers that they run on.
    """

    jobs: tuple[int, ...]
    gpus: int
    type: int


class Blocks:
    """GPUs by server, to be given to teams.

    A team within a server gets GPUs side by side, the first a multiple of their number where that number divides the
    server's. Wide teams are placed first, so teams whose numbers are powers of two always fit if they fit by number.

    `servers`: servers of each type, by number of the type. `held`: GPUs that each job has held so far. `down, dead`:
    GPUs and links that are down.
    """

    def __init__(
        self,
        setting: ClusterSetting,
        servers: Sequence[Sequence[int]],
        held: Mapping[int, tuple[int, ...]],
        down: frozenset[int] = frozenset(),
        dead: frozenset[int] = frozenset(),
    ) -> None:
        self._setting, self._servers, self._held = setting, servers, held
        self._parts = [setting.joined(own, dead) for own in servers]
        self._free = [gpu not in down for gpu in range(setting.gpu_count)]
        self._wanted = [False] * setting.gpu_count

    def place(self, teams: Iterable[Team]) -> dict[Team, tuple[int, ...]]:
        """Return GPUs of every team that finds room."""
        found: dict[Team, tuple[int, ...]] = {}
        waiting = sorted(teams, key=lambda team: -team.gpus)
        for team in waiting:
            for gpu in self._own(team) or ():
                self._wanted[gpu] = True
        for width in dict.fromkeys(team.gpus for team in waiting):
            for choose in (self._kept, self._find):
                for team in [team for team in waiting if team.gpus == width and team not in found]:
                    if (gpus := choose(team)) is not None:
                        found[team] = gpus
                        for gpu in gpus:
                            self._free[gpu] = self._wanted[gpu] = False
        return found

    def _own(self, team: Team) -> tuple[int, ...] | None:
        """Return GPUs of a job of the team that suit all of it."""
        servers = set(self._servers[team.type])
        blocks = (self._held[job] for job in team.jobs if job in self._held)
        suiting = (block for block in blocks if len(block) == team.gpus)
        return next((block for block in suiting if all(self._setting.server_of[g] in servers for g in block)), None)

    def _kept(self, team: Team) -> tuple[int, ...] | None:
        """Return GPUs that a job of the team has, as long as they are free."""
        own = self._own(team)
        return own if own is not None and all(self._free[gpu] for gpu in own) else None

    def _find(self, team: Team) -> tuple[int, ...] | None:
        """Free GPUs that the fewest narrower teams would keep, on the fullest servers."""
        ranges = [self._setting.gpus_of[server] for server in self._servers[team.type]]
        if team.gpus <= max(map(len, ranges)):
            blocks = [block for own in ranges for block in self._within(own, team.gpus)]
            return min(blocks, key=self._cost)[1] if blocks else None
        each = max(map(len, ranges))
        for part in self._parts[team.type]:
            in_part = (self._setting.gpus_of[server] for server in part)
            empty = [own for own in in_part if all(self._free[gpu] for gpu in own)]
            empty.sort(key=lambda own: sum(self._wanted[gpu] for gpu in own))
            gpus = sorted(gpu for own in empty[: ceil_div(team.gpus, each)] for gpu in own)[: team.gpus]
            if len(gpus) == team.gpus:
                return tuple(gpus)
        return None

    def _within(self, own: range, count: int) -> list[tuple[range, tuple[int, ...]]]:
        """Return the blocks of a server whose GPUs are all free."""
        step = count if len(own) % count == 0 else 1
        starts = range(own.start, own.stop - count + 1, step)
        blocks = (tuple(range(start, start + count)) for start in starts)
        return [(own, block) for block in blocks if all(self._free[gpu] for gpu in block)]

    def _cost(self, block: tuple[range, tuple[int, ...]]) -> tuple[int, int]:
        own, gpus = block
        return sum(self._wanted[gpu] for gpu in gpus), sum(self._free[gpu] for gpu in own)
