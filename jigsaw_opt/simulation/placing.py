"""Finding GPUs for jobs: what is free, and which of it to take."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

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
    left = setting.gpu_count - len(down)
    chosen: list[Active] = []
    for active in order:
        if active.job.gpus <= left:
            chosen.append(active)
            left -= active.job.gpus
            if left == 0:
                break
    kept = [active.share for active in chosen if active.share is not None]
    free = FreeGpus(setting, kept, down)
    started = []
    for active in chosen:
        if active.share is None:
            gpus = free.find(active.job.gpus, placement)
            assert gpus is not None  # the chosen jobs ask for no more than there is
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
        self._widths = sorted((len(gpus) for gpus in setting.gpus_of), reverse=True)
        self.count = sum(map(len, self._free))

    def take(self, count: int) -> tuple[int, ...] | None:
        """Take `count` GPUs, or None where there are too few.

        On one server if that is possible, the one that it fills best; else on the servers with the most free GPUs,
        which is the fewest servers. Of equal servers the first.
        """
        if count > self.count:
            return None
        taken: list[int] = []
        while len(taken) < count:
            want = count - len(taken)
            fitting = [k for k, free in enumerate(self._free) if len(free) >= want]
            if fitting:
                best = min(fitting, key=lambda k: len(self._free[k]))
            else:
                best = max(range(len(self._free)), key=lambda k: len(self._free[k]))
            taken += self._free[best][:want]
            self._free[best] = self._free[best][want:]
        self.count -= count
        return tuple(sorted(taken))

    def take_emptiest(self, count: int) -> tuple[int, ...] | None:
        """Take `count` GPUs, or None where there are too few: always from the server with the most free GPUs."""
        if count > self.count:
            return None
        taken: list[int] = []
        while len(taken) < count:
            best = max(range(len(self._free)), key=lambda k: len(self._free[k]))
            want = count - len(taken)
            taken += self._free[best][:want]
            self._free[best] = self._free[best][want:]
        self.count -= count
        return tuple(sorted(taken))

    def take_consolidated(self, count: int) -> tuple[int, ...] | None:
        """Take `count` GPUs on as few servers as they would be on in an empty cluster, or None where there are none."""
        most, fewest = 0, 0
        for width in self._widths:
            if most >= count:
                break
            most, fewest = most + width, fewest + 1
        if sum(sorted(map(len, self._free), reverse=True)[:fewest]) < count:
            return None
        return self.take(count)

    def find(self, count: int, placement: str) -> tuple[int, ...] | None:
        """Take `count` GPUs in the way of `placement`, a name in `PLACEMENTS`."""
        takes = {
            "packed": self.take,
            "emptiest": self.take_emptiest,
            "consolidated": self.take_consolidated,
        }
        return takes[placement](count)

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
