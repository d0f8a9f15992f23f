"""The order of transfers of different jobs on one link."""

from __future__ import annotations

from collections import Counter
from threading import Condition
from typing import TYPE_CHECKING

from jigsaw_opt.executor.schedules.order import ReplayExtent, ReplayOrder, TransferKey

if TYPE_CHECKING:  # torch.distributed does not export it to type checkers
    from torch._C._distributed_c10d import HashStore, PrefixStore, TCPStore
    from torch._C._distributed_c10d import Store as AnyStore
else:
    from torch.distributed import HashStore, PrefixStore, TCPStore
    from torch.distributed import Store as AnyStore

__all__ = ["AnyStore", "HashStore", "LinkOrder", "PrefixStore", "TCPStore"]


class LinkOrder:
    """Keeps transfers on a link in the plan's order.

    A transfer waits until the one before it on each of its links has ended. Where every worker of that one shares its
    process with a worker of this one, each process waits for its own part, which costs nothing; otherwise the
    last worker that has ended tells all through the store.

    `run`: number of the run, so that its messages are not taken for another's.
    """

    def __init__(self, order: ReplayOrder, progress: ReplayExtent, rank: int, run: int) -> None:
        self._order, self._progress, self._rank, self.run = order, progress, rank, run
        self._ended: Counter[tuple[int, int]] = Counter()
        for job, done in enumerate(progress.done):
            self._ended.update({(job, bucket): done for bucket in range(1, order.depths[job] + 1)})
        self._change = Condition()

    def wait(self, key: TransferKey, store: TCPStore) -> None:
        """Wait until the links of a transfer are free for it."""
        for earlier in self._order.before(key, self._progress):
            if not set(self._order.ranks[earlier.job]) <= set(self._order.ranks[key.job]):
                store.wait([self._name(earlier)])  # a process has a worker of the earlier job alone
            elif self._rank in self._order.ranks[earlier.job]:
                with self._change:
                    self._change.wait_for(lambda one=earlier: self._ended[one.job, one.bucket] > one.iteration)  # type: ignore[misc]

    def end(self, key: TransferKey, store: TCPStore) -> None:
        """Note that the part of this process in a transfer has ended."""
        with self._change:
            self._ended[key.job, key.bucket] = key.iteration + 1
            self._change.notify_all()
        if not self._order.must_notify(key.job):
            return
        if store.add(f"parts {self._name(key)}", 1) == len(self._order.ranks[key.job]):
            store.set(self._name(key), "")
            # Who waited for the same bucket an iteration ago stood before this transfer on the link.
            before = self._name(key._replace(iteration=key.iteration - 1))
            store.delete_key(before)
            store.delete_key(f"parts {before}")

    def _name(self, key: TransferKey) -> str:
        return f"end {self.run} {key.job} {key.bucket} {key.iteration}"
