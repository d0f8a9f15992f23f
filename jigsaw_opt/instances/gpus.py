"""Data-sheet figures of GPU types, and the roofline that turns counts into time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from jigsaw_opt.problem.cluster import Server

__all__ = ["GPU_TYPES", "GpuType", "server"]


@dataclass(frozen=True, slots=True)
class GpuType:
    """A type of GPU.

    Parameters
    ----------
    peak_flops
        Operations per second of the matrix units at 16 bits, as on the data sheet.
    memory_bandwidth
        Bytes per second between the GPU and its memory.
    memory
        Bytes of memory.
    fabric_bandwidth
        Bytes per second to the other GPUs of the server, one direction.
    efficiency
        Share of `peak_flops` that training reaches, in percent.
    """

    peak_flops: int
    memory_bandwidth: int
    memory: int
    fabric_bandwidth: int
    efficiency: int = 40

    def layer_us(self, flops: int, moved_bytes: int) -> Fraction:
        """Microseconds of a layer: ``max(flops / (peak * efficiency), bytes / bandwidth)``."""
        arithmetic = Fraction(flops * 100 * 10**6, self.peak_flops * self.efficiency)
        return max(arithmetic, Fraction(moved_bytes * 10**6, self.memory_bandwidth))


GPU_TYPES: Mapping[str, GpuType] = {
    "v100": GpuType(125 * 10**12, 900 * 10**9, 32 * 10**9, 150 * 10**9),
    "a100": GpuType(312 * 10**12, 1555 * 10**9, 40 * 10**9, 300 * 10**9),
    "h200": GpuType(989 * 10**12, 4800 * 10**9, 141 * 10**9, 450 * 10**9),
}
"""V100 SXM2 32 GB, A100 SXM4 40 GB and H200 SXM 141 GB by the names used in the bundled instances."""


def server(name: str, gpu_type: str, gpus: int) -> Server:
    """A server of `gpus` GPUs with the memory and the fabric of their type."""
    figures = GPU_TYPES[gpu_type]
    return Server(name, gpu_type, gpus, figures.memory, figures.fabric_bandwidth, fabric_latency_us=5)
