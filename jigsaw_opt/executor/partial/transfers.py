"""The thread of this process that exchanges gradients, in the order in which they are handed over."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import count
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from jigsaw_opt.errors import wrong_order
from jigsaw_opt.executor.exchange.transfer_stream import TransferStream

T = TypeVar("T")
_Task = tuple[Future[Any], Callable[[], Any]]

_numbers = count()
_wrappers: WeakKeyDictionary[dist.ProcessGroup, Iterator[int]] = WeakKeyDictionary()
_groups: WeakKeyDictionary[dist.ProcessGroup, dist.ProcessGroup] = WeakKeyDictionary()


class _TransferThread:
    """A thread that does what it is given, one after the other; it does not keep the process alive."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._thread: Thread | None = None

    def submit(self, work: Callable[[], T]) -> Future[T]:
        if self._thread is None or not self._thread.is_alive():  # as in a process that was forked
            self._tasks = SimpleQueue()
            self._thread = Thread(target=_do_all, args=(self._tasks,), name="transfers", daemon=True)
            self._thread.start()
        future: Future[T] = Future()
        self._tasks.put((future, work))
        return future

    def finish(self, longest_s: float = 2) -> None:
        """End the thread when all is done, or return after `longest_s` seconds.

        Python stops threads where they wait for its lock, which aborts the process if that is within code of torch, as
        where the thread sends something or lets go of what it has sent.
        """
        if self._thread is not None and self._thread.is_alive():
            self._tasks.put(None)
            self._thread.join(longest_s)


def _do_all(tasks: SimpleQueue[_Task | None]) -> None:
    while _is_done(tasks.get()):
        pass


def _is_done(task: _Task | None) -> bool:
    """Do a task and return True, or return False if there is to be none any more."""
    if task is None:
        return False
    future, work = task
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - who waits for it gets it
        future.set_exception(error)
    return True


_thread = _TransferThread()
"""One for all models of a process: groups have a process once, so all processes must send in one order."""
atexit.register(_thread.finish)


def send(work: Callable[[], T], stream: TransferStream) -> Future[T]:
    """Have `work` done in the thread of transfers, after what the device has been asked for until now."""
    number = next(_numbers)
    stream.mark(number)

    def do() -> T:
        with stream.of(number):
            return work()

    return _thread.submit(do)


def own_group(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """Return a group of the same processes for the thread of transfers alone; all of them call this at the same time.

    What the backward pass itself sends, as that of `SyncBatchNorm` does, goes another way.
    """
    whole = _whole(group)
    if whole not in _groups:
        _groups[whole] = _copied(whole)
    return _groups[whole]


def next_number(group: dist.ProcessGroup | None) -> int:
    """Return how often a group has been asked this, the same in all its processes if they ask at the same time."""
    return next(_wrappers.setdefault(_whole(group), count(1)))


def _whole(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    whole = group or dist.group.WORLD
    if whole is None:
        raise wrong_order("group", "the process group of this training has been destroyed")
    return whole


def _copied(group: dist.ProcessGroup) -> dist.ProcessGroup:
    ranks, rank = dist.get_process_group_ranks(group), dist.get_rank()
    options = getattr(group._get_backend(_device_of(group)), "options", None)
    timeout = getattr(options, "_timeout", None)
    backend = dist.get_backend_config(group)
    if len(ranks) == dist.get_world_size():
        whole: dist.ProcessGroup = dist.new_group(ranks, timeout, backend)
        return whole
    # Only these processes know of it. By ranks and by how many groups a process has, torch names such a group.
    own = torch.tensor([len(dist.distributed_c10d._world.pg_names)], device=_device_of(group))
    held = [torch.empty_like(own) for _ in ranks]
    dist.all_gather(held, own, group=group)
    for _ in range(int(max(held)) - int(own)):
        dist.new_group([rank], timeout, backend, use_local_synchronization=True)
    part: dist.ProcessGroup = dist.new_group(ranks, timeout, backend, use_local_synchronization=True)
    return part


def _device_of(group: dist.ProcessGroup) -> torch.device:
    """Return a device whose tensors the group sends."""
    has_cpu = "cpu:" in dist.get_backend_config(group)
    return torch.device("cpu") if has_cpu else torch.device("cuda", torch.cuda.current_device())
