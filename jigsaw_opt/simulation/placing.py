"""Finding GPUs for jobs: what is free, and which of it to take."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Sequence
from copy import copy
from itertools import accumulate

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.policy import Active, ClusterSetting

__all__ = ["PLACEMENTS", "FreeGpus", "by_priority", "require_equal_gpus", "too_wide"]

PLACEMENTS = ("packed", "emptiest", "consolidated")
"""How jobs are placed: on few servers where that can be, on the emptiest servers, or only on as few as they can be."""


def require_equal_gpus(setting: ClusterSetting, policy: str) -> None:
    """Refuse what a policy cannot place that gives each job as many GPUs as it asks for without looking at them.

    Raises
    ------
    UsageError
        The GPUs are of several types or have different memory.
    """
    types = dict.fromkeys(server.gpu_type for server in setting.cluster.servers)
    if len(types) > 1:
        raise UsageError(f"policy {policy!r} is for GPUs of one type, not of {', '.join(types)}")
    if len({server.gpu_memory for server in setting.cluster.servers}) > 1:
        raise UsageError(f"policy {policy!r} is for GPUs with the same memory")


def too_wide(setting: ClusterSetting, policy: str, job: TraceJob) -> str | None:
    """Why a policy that gives each job as many GPUs as it asks for cannot run `job`: there are fewer; or None."""
    if job.gpus <= setting.gpu_count:
        return None
    return (
        f"policy {policy!r} gives jobs as many GPUs as they ask for:"
        f" job {job.name!r} asks for {job.gpus} and the cluster has {setting.gpu_count}"
    )


def by_priority(
    setting: ClusterSetting, order: Iterable[Active], placement: str = "packed", down: Collection[int] = ()
) -> tuple[Share, ...]:
    """Shares of the jobs that run, with preemption, where those first in `order` come first.

    A job for which too few GPUs are left is passed over, and one that goes on keeps its GPUs. ``consolidated`` also
    passes over a job that no few servers have room for, and moves jobs that come later out of the way of earlier ones.

    Parameters
    ----------
    setting
        Whose cluster it is.
    order
        The active jobs.
    placement
        A name in `PLACEMENTS`.
    down
        GPUs that are down.
    """
    if placement == "consolidated":
        return _consolidated(setting, list(order), down)
    part_of = {k: number for number, part in enumerate(setting.parts) for k in part}
    left = [sum(gpu not in down for k in part for gpu in setting.gpus_of[k]) for part in setting.parts]
    chosen: list[Active] = []
    for active in order:
        share, count = active.share, active.job.gpus
        parts = range(len(left)) if share is None else (part_of[setting.server_of[share.gpus[0]]],)
        part = next((number for number in parts if left[number] >= count), None)
        if part is not None:
            chosen.append(active)
            left[part] -= count
            if not any(left):
                break
    kept = [active.share for active in chosen if active.share is not None]
    free = FreeGpus(setting, kept, down)
    started = []
    for active in chosen:
        if active.share is None:
            gpus = free.find(active.job.gpus, placement)
            if gpus is not None:  # there are enough, but jobs before may be in another part than counted
                started.append(Share((active.index,), gpus))
    return (*kept, *started)


def _consolidated(setting: ClusterSetting, order: Sequence[Active], down: Collection[int]) -> tuple[Share, ...]:
    """Each job in turn keeps its GPUs, or has some that nobody holds, or some of jobs that come later."""
    open_to = FreeGpus(setting, (), down)
    unheld = FreeGpus(setting, [active.share for active in order if active.share is not None], down)
    shares: list[Share] = []
    hopeless: set[int] = set()  # numbers of GPUs that no few servers have, now or later in the order
    for active in order:
        if open_to.count == 0:
            break
        count, own = active.job.gpus, active.share
        if own is not None and open_to.has(own.gpus):
            open_to.remove(own.gpus)
            shares.append(own)
            continue
        if count in hopeless:
            continue
        gpus = unheld.take_consolidated(count)
        if gpus is not None:
            open_to.remove(gpus)
        else:
            gpus = open_to.take_consolidated(count)
            if gpus is None:
                hopeless.add(count)
                continue
            unheld.remove(gpus)
        shares.append(Share((active.index,), gpus))
    return tuple(shares)


class FreeGpus:
    """The GPUs that no share holds, by server.

    Parameters
    ----------
    setting
        Whose cluster it is.
    shares
        What holds GPUs already.
    down
        GPUs that are down.
    """

    def __init__(self, setting: ClusterSetting, shares: Iterable[Share] = (), down: Collection[int] = ()) -> None:
        self._server_of = setting.server_of
        held = {gpu for share in shares for gpu in share.gpus}.union(down)
        self._free = [[gpu for gpu in gpus if gpu not in held] for gpus in setting.gpus_of]
        self._parts = setting.parts
        self._widths = [sorted((len(setting.gpus_of[k]) for k in part), reverse=True) for part in setting.parts]
        self.count = sum(map(len, self._free))

    def take(self, count: int) -> tuple[int, ...] | None:
        """Take `count` GPUs, or None where there are too few.

        On one server if that is possible, the one that it fills best; else on the servers with the most free GPUs,
        which is the fewest servers. Of equal servers the first.
        """
        return self._take(count, self._room(count))

    def _room(self, count: int) -> Sequence[int]:
        """Return the servers to take `count` GPUs of: of one part of the cluster, if no server has so many."""
        if count > self.count:
            return ()
        if len(self._parts) == 1 or max(map(len, self._free)) >= count:
            return range(len(self._free))
        return next((part for part in self._parts if sum(len(self._free[k]) for k in part) >= count), ())

    def _take(self, count: int, servers: Sequence[int]) -> tuple[int, ...] | None:
        """Take `count` GPUs as `take` does, of servers that have so many; None where there are no servers."""
        if not servers:
            return None
        taken: list[int] = []
        while len(taken) < count:
            want = count - len(taken)
            fitting = [k for k in servers if len(self._free[k]) >= want]
            if fitting:
                best = min(fitting, key=lambda k: len(self._free[k]))
            else:
                best = max(servers, key=lambda k: len(self._free[k]))
            taken += self._free[best][:want]
            self._free[best] = self._free[best][want:]
        self.count -= count
        return tuple(sorted(taken))

    def take_emptiest(self, count: int) -> tuple[int, ...] | None:
        """Take `count` GPUs, or None where there are too few: always from the server with the most free GPUs."""
        servers = self._room(count)
        if not servers:
            return None
        taken: list[int] = []
        while len(taken) < count:
            best = max(servers, key=lambda k: len(self._free[k]))
            want = count - len(taken)
            taken += self._free[best][:want]
            self._free[best] = self._free[best][want:]
        self.count -= count
        return tuple(sorted(taken))

    def take_consolidated(self, count: int) -> tuple[int, ...] | None:
        """Take `count` GPUs on as few servers as they would be on in an empty cluster, or None where there are none."""
        fewest = min(filter(None, (_fewest(widths, count) for widths in self._widths)), default=0)
        for part in self._parts:
            if sum(sorted((len(self._free[k]) for k in part), reverse=True)[:fewest]) >= count:
                return self._take(count, part)
        return None

    def find(self, count: int, placement: str) -> tuple[int, ...] | None:
        """Take `count` GPUs in the way of `placement`, a name in `PLACEMENTS`."""
        takes = {
            "packed": self.take,
            "emptiest": self.take_emptiest,
            "consolidated": self.take_consolidated,
        }
        return takes[placement](count)

    def copy(self) -> FreeGpus:
        """Return the same GPUs, to take from apart."""
        other = copy(self)
        other._free = [list(free) for free in self._free]
        return other

    def add(self, gpus: Iterable[int]) -> None:
        """Free GPUs that are not free."""
        for gpu in gpus:
            insort(self._free[self._server_of[gpu]], gpu)
            self.count += 1

    def has(self, gpus: Iterable[int]) -> bool:
        """Whether all of `gpus` are free."""
        return all(gpu in self._free[self._server_of[gpu]] for gpu in gpus)

    def remove(self, gpus: Iterable[int]) -> None:
        """Take those of `gpus` that are free."""
        for gpu in gpus:
            free = self._free[self._server_of[gpu]]
            if gpu in free:
                free.remove(gpu)
                self.count -= 1


def _fewest(widths: Sequence[int], count: int) -> int:
    """Return how many servers have `count` GPUs, the widest first; 0 where they have too few."""
    most = list(accumulate(widths))
    return 1 + bisect_left(most, count) if most and most[-1] >= count else 0
