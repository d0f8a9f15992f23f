"""The cost of an all-reduce, measured and fitted: latency and bandwidth for an instance's links.

A ring all-reduce of ``P`` bytes among ``w`` processes takes ``2(w-1) * latency + 2(w-1)/w * P / bandwidth``
(specification: transfer); the fit has the least sum of squared relative residuals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from jigsaw_opt.executor.devices import Spread, fit_two, spread, wall_us
from jigsaw_opt.executor.processes import run_group

_WARM_UP = 5
_SIZES = tuple(2**k for k in range(12, 25, 2))
_MOST = 2**53 - 1


@dataclass(frozen=True, slots=True)
class AllReduceSample:
    """All-reduces of `size` bytes among `workers` processes, alone, or two such groups at once."""

    workers: int
    size: int
    time: Spread
    alone: bool = True

    @property
    def steps(self) -> float:
        """Messages one behind the other."""
        return 2 * (self.workers - 1)

    @property
    def volume(self) -> float:
        """Bytes that each process sends."""
        return self.steps / self.workers * self.size


@dataclass(frozen=True, slots=True)
class LinkFit:
    """Latency in microseconds, at least 0, and time a byte in microseconds."""

    latency_us: float
    byte_us: float

    @property
    def bandwidth(self) -> int:
        """Bytes per second, in the range of an instance."""
        return max(1, min(_MOST, round(1e6 / self.byte_us))) if self.byte_us else _MOST

    def time_us(self, sample: AllReduceSample) -> float:
        """Return what the fit says of a sample."""
        return self.latency_us * sample.steps + self.byte_us * sample.volume

    def residual(self, sample: AllReduceSample) -> float:
        """Return the relative residual of a sample: 0.1 where it took a tenth longer than the fit says."""
        return sample.time.median / self.time_us(sample) - 1


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """Samples of single groups, of two groups at once, and the fit of the former."""

    samples: tuple[AllReduceSample, ...]
    shared: tuple[AllReduceSample, ...]
    fit: LinkFit


def measure_all_reduces(workers: int, repeats: int, device: torch.device) -> LinkProfile:
    """Measure all-reduces among 2 to `workers` processes of this machine; by NCCL where each has a GPU, else by Gloo.

    The samples, and the latency and time a byte that fit those of all-reduces alone.
    """
    is_nccl = device.type == "cuda" and torch.cuda.device_count() >= workers
    samples = run_group(_samples, workers, _SIZES, repeats, "nccl" if is_nccl else "gloo")[0]
    alone = tuple(sample for sample in samples if sample.alone)
    return LinkProfile(alone, tuple(sample for sample in samples if not sample.alone), fit(alone))


def fit(samples: Sequence[AllReduceSample]) -> LinkFit:
    """Return the latency and time a byte that fit the samples best, which differ in size."""
    return LinkFit(*fit_two((s.steps, s.volume, s.time.median) for s in samples))


def _samples(sizes: tuple[int, ...], repeats: int, backend: str) -> list[AllReduceSample]:
    """Run by every process; the first one's times count."""
    device = torch.device("cuda", dist.get_rank()) if backend == "nccl" else torch.device("cpu")
    samples = []
    for workers in range(2, dist.get_world_size() + 1):
        pair = [dist.new_group(list(range(workers))) for _ in range(2)]
        for size in sizes if dist.get_rank() < workers else ():
            buffers = [torch.zeros(size // 4, device=device) for _ in pair]
            for count in (1, 2):
                times = [_all_reduce(buffers[:count], pair[:count], device) for _ in range(_WARM_UP + repeats)]
                samples.append(AllReduceSample(workers, size, spread(times[_WARM_UP:]), alone=count == 1))
        dist.barrier()
    return samples


def _all_reduce(buffers: Sequence[torch.Tensor], groups: Sequence[dist.ProcessGroup], device: torch.device) -> float:
    dist.barrier(groups[0])
    start = wall_us(device)
    works = [dist.all_reduce(b, group=g, async_op=True) for b, g in zip(buffers, groups, strict=True)]
    for work in works:
        work.wait()
    return wall_us(device) - start
