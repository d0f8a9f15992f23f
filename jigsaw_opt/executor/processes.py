"""A few processes on this machine that form one process group."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch
import torch.distributed as dist

__all__ = ["run_group"]

T = TypeVar("T")

_TIMEOUT = timedelta(minutes=2)


def run_group(function: Callable[..., T], count: int, *arguments: Any, backend: str = "gloo") -> list[T]:
    """Call `function` in `count` new processes that have joined a process group, each with one thread.

    Parameters
    ----------
    function
        A function of a module; finds its rank with `torch.distributed.get_rank`.
    count
        Number of processes.
    *arguments
        Its arguments; like its result, something that can be pickled.
    backend
        ``gloo``, or ``nccl`` with a GPU for each process.

    Returns
    -------
    list
        Its results by rank. If it raises in a process, the others lose their connection to it and fail too,
        and what it raised is raised here.
    """
    context = multiprocessing.get_context("forkserver")
    # Importing torch takes seconds, and so does what its first optimiser imports; the server does it once.
    context.set_forkserver_preload([__name__, "torch._dynamo"])
    with TemporaryDirectory() as folder, ProcessPoolExecutor(count, mp_context=context) as pool:
        meeting = (Path(folder) / "store").as_uri()
        calls = [pool.submit(_member, meeting, rank, count, backend, function, arguments) for rank in range(count)]
        errors = [error for call in calls if (error := call.exception()) is not None]
        if errors:  # who lost the connection fails with a RuntimeError of torch; the cause is another error, if any is
            raise min(errors, key=lambda error: isinstance(error, RuntimeError))
        return [call.result() for call in calls]


def _member(
    meeting: str, rank: int, count: int, backend: str, function: Callable[..., T], arguments: tuple[Any, ...]
) -> T:
    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=count, timeout=_TIMEOUT)
    try:
        return function(*arguments)
    finally:  # closes the connections, so that nobody waits for a process that has failed
        dist.destroy_process_group()
