"""Times on a device, and their spread."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import quantiles
from time import perf_counter, thread_time

import torch

__all__ = ["Spread", "spread", "wall_us", "work_us"]


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
