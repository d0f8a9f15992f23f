"""Finding GPUs for jobs: what is free, and which of it to take."""

from __future__ import annotations

from collections.abc import Iterable

from jigsaw_opt.simulation.allocation import Share
from jigsaw_opt.simulation.policy import Setting

__all__ = ["FreeGpus"]


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

    def give_back(self, gpus: Iterable[int]) -> None:
        """Return GPUs that were taken."""
        for gpu in gpus:
            free = self._free[self._server_of[gpu]]
            free.append(gpu)
            free.sort()
            self.count += 1
