"""Configurations of GPUs (Sia, SOSP 2023, section 3.2), and where on the servers they go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jigsaw_opt.errors import UsageError
from jigsaw_opt.formulations.sia_round import configurations
from jigsaw_opt.scheduling.allocation import Share
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
    shares: list[Share] = []
    for gpu_type in dict.fromkeys(one.gpu_type for one in wanted.values()):
        own = {index: one for index, one in wanted.items() if one.gpu_type == gpu_type}
        type_ = _Type(setting, gpu_type, observation)
        for index, one in own.items():
            if has(setting, observation.jobs[index].share, one):
                type_.hold(index, observation.jobs[index].gpus)
        type_.place(own)
        shares += [Share((index,), gpus) for index, gpus in type_.held.items()]
    return tuple(shares)


def has(setting: ClusterSetting, share: Share | None, wanted: Configured) -> bool:
    """Return whether a share is what a job of a configuration has."""
    if share is None:
        return False
    return (setting.cluster.gpus.types[share.gpus[0]], len(share.gpus)) == (wanted.gpu_type, wanted.gpus)


class _Type:
    """The servers of one type and who holds their GPUs that are up."""

    def __init__(self, setting: ClusterSetting, gpu_type: str, observation: Observation) -> None:
        self._server_of = setting.server_of
        servers = [k for k, server in enumerate(setting.cluster.servers) if server.gpu_type == gpu_type]
        self._free = {k: set(setting.gpus_of[k]) - observation.down for k in servers}
        self._parts = setting.joined(servers, observation.dead)
        self.held: dict[int, tuple[int, ...]] = {}

    def hold(self, index: int, gpus: tuple[int, ...]) -> None:
        """Give GPUs to a job."""
        self.held[index] = gpus
        for gpu in gpus:
            self._free[self._server_of[gpu]].remove(gpu)

    def place(self, wanted: Mapping[int, Configured]) -> None:
        """Find GPUs for all jobs that hold none, the largest first."""
        waiting = sorted((index for index in wanted if index not in self.held), key=lambda k: (-wanted[k].gpus, k))
        while waiting:
            index = waiting.pop(0)
            one = wanted[index]
            part = self._part_for(one)
            taken: list[int] = []
            for _ in range(one.servers):
                server, evicted = self._server_for(one.gpus // one.servers, part, taken)
                if server is None:
                    break
                waiting = sorted([*waiting, *evicted], key=lambda k: (-wanted[k].gpus, k))
                taken += sorted(self._free[server])[: one.gpus // one.servers]
            if len(taken) == one.gpus:
                self.hold(index, tuple(sorted(taken)))

    def _part_for(self, wanted: Configured) -> Sequence[int]:
        """Return the servers to choose from: all for one, else those of the part with most room without evictions.

        There are none where no part has room for the configuration.
        """
        if wanted.servers == 1:
            return tuple(self._free)
        count, found, most = wanted.gpus // wanted.servers, tuple[int, ...](), -1
        for part in self._parts:
            fitting = sum(len(self._free[k]) >= count for k in part)
            able = sum(len(self._free[k]) >= count or self._leaving(k, count) is not None for k in part)
            if able >= wanted.servers and min(fitting, wanted.servers) > most:
                found, most = part, min(fitting, wanted.servers)
        return found

    def _server_for(self, count: int, part: Sequence[int], taken: list[int]) -> tuple[int | None, list[int]]:
        """Return the server of a part that `count` GPUs fill best, and the jobs that had to leave it."""
        free = {k: self._free[k] for k in part if self._free[k].isdisjoint(taken)}
        fitting = [k for k, gpus in free.items() if len(gpus) >= count]
        if fitting:
            return min(fitting, key=lambda k: len(free[k])), []
        for server in sorted(free, key=lambda k: -len(free[k])):
            leaving = self._leaving(server, count)
            if leaving is not None:
                for index in leaving:
                    self._free[server].update(self.held.pop(index))
                return server, leaving
        return None, []

    def _leaving(self, server: int, count: int) -> list[int] | None:
        """Return the smallest jobs of a server whose GPUs make `count` with those free, or None."""
        room = len(self._free[server])
        # Only smaller jobs leave, so that none is driven out by what it has driven out, and placing ends.
        on_it = [k for k, gpus in self.held.items() if len(gpus) < count and self._server_of[gpus[0]] == server]
        leaving: list[int] = []
        for index in sorted(on_it, key=lambda k: len(self.held[k])):
            if room >= count:
                break
            leaving.append(index)
            room += len(self.held[index])
        return leaving if room >= count else None
