"""A process that is killed is told as one, wherever the pipe to it breaks off."""

from __future__ import annotations

import struct
from multiprocessing import Pipe
from typing import Any

import pytest
import torch.distributed as dist

from jigsaw_opt.errors import RunFailedError
from jigsaw_opt.executor import processes
from jigsaw_opt.executor.processes import LostProcessError, _ProcessHandle, run_group
from tests.refusals import fails


class Ended:
    """Stands for a process that has ended, or that ends only when it is killed."""

    def __init__(self, stays: bool = False) -> None:
        self.pid, self.stays = 2**22 + 1, stays  # no process has this number

    def join(self, timeout: float | None = None) -> None:
        assert not self.stays or timeout is not None

    def kill(self) -> None:
        self.stays = False


@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize(
    "sent", [b"", b"\0\0", struct.pack("!i", 1000) + b"half of it", struct.pack("!i", 3) + b"\x80\x05]"]
)
def test_a_pipe_that_closes_before_or_within_a_message_is_a_lost_process(sent: bytes, stays: bool) -> None:
    parent, there = Pipe()
    with parent:
        with there, open(there.fileno(), "wb", closefd=False) as stream:
            stream.write(sent)
        process: Any = Ended(stays)
        handle = _ProcessHandle(process, parent)
        handle.hear()
        assert handle.lost and handle.said is None and not process.stays


@pytest.mark.parametrize("error", [EOFError("unexpected EOF"), BrokenPipeError(), ConnectionResetError()])
def test_a_process_killed_before_it_begins_is_a_lost_process(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def killed(_: object) -> None:
        raise error

    monkeypatch.setattr(processes, "start_deaf", killed)
    with fails(LostProcessError, "process 0", "before it began") as caught:
        run_group(print, 2)
    assert caught.value.rank == 0  # type: ignore[attr-defined]


def loses_a_child() -> None:
    """Have one process read from a child of its own that has gone."""
    if dist.get_rank() == 1:
        here, there = Pipe()
        there.close()
        here.recv()
    dist.barrier()


def test_a_lost_child_of_a_process_is_no_internal_error() -> None:
    with fails(RunFailedError, "process 1", "EOFError"):
        run_group(loses_a_child, 2)


def meets_on_a_full_disk() -> None:
    raise dist.DistStoreError("No space left on device")


def test_a_full_disk_where_processes_meet_is_no_internal_error() -> None:
    with fails(RunFailedError, "No space left on device"):
        run_group(meets_on_a_full_disk, 2)
