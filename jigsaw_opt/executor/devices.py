"""Devices of this machine by name, times on them and costs fitted to times, and settings of torch of a process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import fmean, quantiles
from time import perf_counter, thread_time
from typing import Any

import torch

from jigsaw_opt.errors import unsupported


def device_of(kind: str) -> torch.device:
    """Return the device of a kind, ``cpu`` or ``cuda``."""
    if kind == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise unsupported("device", "this PyTorch finds no CUDA device; --device cpu runs on the CPU")
    return torch.device("cuda", 0)


def device_name(device: torch.device) -> str:
    """Return what a device is called, as a name in documents."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return name.lower().replace(" ", "-").replace("/", "-")


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles of repeated measurements, in microseconds."""

    median: float
    low: float
    high: float

    @property
    def iqr(self) -> float:
        """Interquartile range."""
        return self.high - self.low


def spread(times_us: Iterable[float]) -> Spread:
    """Return the median and quartiles of at least one time."""
    times = list(times_us)
    low, median, high = quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3
    return Spread(median, low, high)


def work_us(device: torch.device) -> float:
    """Return microseconds from some fixed moment, for timing work that the calling thread has `device` do.

    On CUDA it waits for the device and tells the time. On a CPU it tells the time that the thread has run, so that
    other programs on the machine are not measured; where torch uses several threads, it tells the time.
    """
    if device.type == "cpu" and torch.get_num_threads() == 1:
        return thread_time() * 1e6
    return wall_us(device)


def wall_us(device: torch.device) -> float:
    """Return the time when everything that `device` was asked for is done, in microseconds from some fixed moment."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter() * 1e6


def fit_two(rows: Iterable[tuple[float, float, float]]) -> tuple[float, float]:
    """Fit ``time = x * first + y * second`` with the least sum of squared relative residuals, x and y at least 0.

    `rows`: first and second quantity, at least 0, and time, above 0; both quantities are above 0 somewhere.
    """
    scaled = [(first / time, second / time) for first, second, time in rows]
    aa, ab, bb = (sum(row[i] * row[j] for row in scaled) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = sum(row[0] for row in scaled), sum(row[1] for row in scaled)
    determinant = aa * bb - ab * ab
    # Where the normal equations have no solution above 0, the best one lies where one of the two is 0.
    if determinant > 1e-12 * aa * bb and a * bb >= b * ab and b * aa >= a * ab:
        return (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant
    return (a / aa, 0.0) if a * a * bb >= b * b * aa else (0.0, b / bb)


def isotonic(values: Sequence[float]) -> list[float]:
    """Return the sequence that never falls and is nearest to `values` in squares, by the max-min formula of means."""
    ends = range(1, len(values) + 1)
    means = {(first, end): fmean(values[first:end]) for end in ends for first in range(end)}
    return [max(min(means[first, last] for last in ends[end - 1 :]) for first in range(end)) for end in ends]


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
