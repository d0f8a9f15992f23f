"""Settings of torch that hold for a whole process, kept for each of the jobs that it hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch


class TorchSettings:
    """The settings of torch by one job's code; at first those that hold when it is made."""

    def __init__(self) -> None:
        self._own = [get() for get, _ in _WAYS]

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Have them hold in the block, keep what its code sets, and return to those before it at its end."""
        before = [get() for get, _ in _WAYS]
        _set(self._own)
        try:
            yield
        finally:
            self._own = [get() for get, _ in _WAYS]
            _set(before)


def _set(values: list[Any]) -> None:
    """Set what differs."""
    for (get, put), value in zip(_WAYS, values, strict=True):
        if get() != value:
            put(value)


_WAYS: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda values: torch.use_deterministic_algorithms(values[0], warn_only=values[1]),
    ),
    (lambda: torch.backends.cudnn.benchmark, partial(setattr, torch.backends.cudnn, "benchmark")),
)
"""How each is found, and how it is set."""
