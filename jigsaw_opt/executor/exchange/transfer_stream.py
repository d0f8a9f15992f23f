"""Where transfers run, beside the blocks of a worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class TransferStream:
    """The stream of a device in which transfers run; on a CPU a bucket that is announced is there."""

    def mark(self, bucket: int) -> None:
        """Note that the gradients of `bucket` have been asked for."""

    @contextmanager
    def of(self, bucket: int) -> Iterator[None]:
        """Run what is inside when `bucket` is there, and leave when it is done."""
        yield


class _CudaTransferStream(TransferStream):
    """A stream beside that of the blocks, so that a transfer need not wait for the rest of the backward pass."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._complete: dict[int, torch.cuda.Event] = {}

    def mark(self, bucket: int) -> None:
        self._complete[bucket] = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._complete[bucket].record()

    @contextmanager
    def of(self, bucket: int) -> Iterator[None]:
        if bucket in self._complete:
            self._complete.pop(bucket).synchronize()
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            yield
        self._stream.synchronize()


def transfer_stream(device: torch.device) -> TransferStream:
    """Return a new one for a device."""
    return TransferStream() if device.type == "cpu" else _CudaTransferStream(device)
