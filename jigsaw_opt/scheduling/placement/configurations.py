"""Configurations of GPUs (Sia, SOSP 2023, section 3.2), and where on the servers they go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jigsaw_opt.errors import UsageError
from jigsaw_opt.formulations.sia_round import configurations
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.placement.placing import FreeGpus
from jigsaw_opt.scheduling.policy import ClusterSetting, Observation


@dataclass(frozen=True, slots=True)
class Configured:
    """Some GPUs of one type: a part of one server, or whole servers."""

    gpu_type: str
    servers: int
    gpus: int


def all_configurations(setting: ClusterSetting) -> tuple[Configured, ...]:
    """Return the configurations of every type of GPU, in the order of the cluster."""
    found: list[Configured] = []
    for gpu_type in dict.fromkeys(server.gpu_type for server in setting.cluster.servers):
        widths = [server.gpus for server in setting.cluster.servers if server.gpu_type == gpu_type]
        if len(set(widths)) > 1:
            message = f"servers of type {gpu_type!r} have {min(widths)} to {max(widths)} GPUs; all need as many"
            raise UsageError(message, code="unsupported")
        found += [Configured(gpu_type, *one) for one in configurations(len(widths), widths[0])]
    return tuple(found)


def place(setting: ClusterSetting, wanted: Mapping[int, Configured], observation: Observation) -> tuple[Share, ...]:
    """Return shares of jobs with the configurations that they are to have; those that have them already stay.

    Where the GPUs left do not suit, the smallest jobs move away. With powers of two as numbers of GPUs every set of
    configurations within the capacity finds room; without, or in a cluster of several parts, a job may be left out.
    """
    placing = _PlacingByType(setting, wanted, observation)
    placing.place()
    types = dict.fromkeys(one.gpu_type for one in wanted.values())
    return tuple(
        Share((index,), gpus)
        for gpu_type in types
        for index, gpus in placing.held.items()
        if wanted[index].gpu_type == gpu_type
    )


def has(setting: ClusterSetting, share: Share | None, wanted: Configured) -> bool:
    """Return whether a share is what a job of a configuration has."""
    if share is None:
        return False
    return (setting.cluster.gpus.types[share.gpus[0]], len(share.gpus)) == (wanted.gpu_type, wanted.gpus)


class _PlacingByType:
    """The GPUs that are up, and who is to hold them."""

    def __init__(self, setting: ClusterSetting, wanted: Mapping[int, Configured], observation: Observation) -> None:
        self._setting, self._wanted, self._dead = setting, wanted, observation.dead
        before = {index: observation.jobs[index].share for index in wanted}
        self.held = {k: one.gpus for k, one in before.items() if one is not None and has(setting, one, wanted[k])}
        self._free = FreeGpus(setting, (Share((k,), gpus) for k, gpus in self.held.items()), observation.down)

    def place(self) -> None:
        """Find GPUs for all jobs that hold none, the largest first."""
        wanted, waiting = self._wanted, [index for index in self._wanted if index not in self.held]
        while waiting:
            waiting.sort(key=lambda k: (-wanted[k].gpus, k))
            index = waiting.pop(0)
            each, taken = wanted[index].gpus // wanted[index].servers, list[int]()
            part = self._part_for(wanted[index])
            while len(taken) < wanted[index].gpus and (found := self._server_for(each, part)) is not None:
                server, leaving = found
                for other in leaving:
                    self._free.add(self.held.pop(other))
                waiting += leaving
                taken += self._free.on(server)[:each]
                part = [k for k in part if k != server]
            if len(taken) == wanted[index].gpus:
                self.held[index] = tuple(sorted(taken))
                self._free.remove(taken)

    def _part_for(self, wanted: Configured) -> Sequence[int]:
        """Return the servers to choose from: all for one, else those of the part with most room without evictions.

        There are none where no part has room for the configuration.
        """
        servers = [k for k, server in enumerate(self._setting.cluster.servers) if server.gpu_type == wanted.gpu_type]
        if wanted.servers == 1:
            return servers
        count, found, most = wanted.gpus // wanted.servers, tuple[int, ...](), -1
        for part in self._setting.joined(servers, self._dead):
            fitting = sum(self._free.count_on(k) >= count for k in part)
            able = sum(self._leaving(k, count) is not None for k in part)
            if able >= wanted.servers and min(fitting, wanted.servers) > most:
                found, most = part, min(fitting, wanted.servers)
        return found

    def _server_for(self, count: int, part: Sequence[int]) -> tuple[int, list[int]] | None:
        """Return the server of a part that `count` GPUs fill best, and the jobs that have to leave it."""
        fitting = [k for k in part if self._free.count_on(k) >= count]
        if fitting:
            return min(fitting, key=self._free.count_on), []
        fullest_last = sorted(part, key=lambda k: -self._free.count_on(k))
        return next(((k, gone) for k in fullest_last if (gone := self._leaving(k, count)) is not None), None)

    def _leaving(self, server: int, count: int) -> list[int] | None:
        """Return the smallest jobs of a server whose GPUs make `count` with those free, or None."""
        room, leaving, server_of = self._free.count_on(server), list[int](), self._setting.server_of
        if room >= count:
            return leaving
        # Only smaller jobs leave, so that none is driven out by what it has driven out, and placing ends.
        on_it = [k for k, gpus in self.held.items() if len(gpus) < count and server_of[gpus[0]] == server]
        for index in sorted(on_it, key=lambda k: len(self.held[k])):
            leaving.append(index)
            room += len(self.held[index])
            if room >= count:
                return leaving
        return None
