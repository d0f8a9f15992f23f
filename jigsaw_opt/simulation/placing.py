"""Finding GPUs for jobs: what is free, and which of it to take."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jigsaw_opt.simulation.allocation import Share
from jigsaw_opt.simulation.policy import Active, Setting

__all__ = ["FreeGpus", "by_priority"]

Take = Callable[["FreeGpus", int], tuple[int, ...] | None]


def by_priority(setting: Setting, order: Iterable[Active], take: Take | None = None) -> tuple[Share, ...]:
    """Shares of the jobs that run, with preemption, where those first in `order` come first.

    A job for which too few GPUs are left is passed over. Jobs that go on keep their GPUs; `take` finds those of the
    others (default `FreeGpus.take`).
    """
    left = setting.gpu_count
    chosen: list[Active] = []
    for active in order:
        if active.job.gpus <= left:
            chosen.append(active)
            left -= active.job.gpus
            if left == 0:
                break
    kept = [active.share for active in chosen if active.share is not None]
    free = FreeGpus(setting, kept)
    started = []
    for active in chosen:
        if active.share is None:
            gpus = (take or FreeGpus.take)(free, active.job.gpus)
            assert gpus is not None  # the chosen jobs ask for no more than there is
            started.append(Share((active.index,), gpus))
    return (*kept, *started)


class FreeGpus:
    """The GPUs that no share holds, by server.

    Parameters
    ----------
    setting
        Whose cluster it is.
    shares
        What holds GPUs already.
    """

    def __init__(self, setting: Setting, shares: Iterable[Share] = ()) -> None:
        self._server_of = setting.server_of
        held = {gpu for share in shares for gpu in share.gpus}
        self._free = [[gpu for gpu in gpus if gpu not in held] for gpus in setting.gpus_of]
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

    def give_back(self, gpus: Iterable[int]) -> None:
        """Return GPUs that were taken."""
        for gpu in gpus:
            free = self._free[self._server_of[gpu]]
            free.append(gpu)
            free.sort()
            self.count += 1
