"""Data-sheet figures of GPU types, and the roofline that turns counts into time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from jigsaw_opt.problem.cluster import Server
from jigsaw_opt.problem.gpu_types import is_part, matching_types


@dataclass(frozen=True, slots=True)
class GpuType:
    """A type of GPU.

    `peak_flops`: operations per second of the matrix units at 16 bits, as on the data sheet. `memory_bandwidth`: bytes
    per second between the GPU and its memory. `fabric_bandwidth`: bytes per second to the other GPUs of the server, one
    direction. `efficiency`: share of `peak_flops` that training reaches, in percent.
    """

    peak_flops: int
    memory_bandwidth: int
    memory: int
    fabric_bandwidth: int
    efficiency: int = 40

    def layer_us(self, flops: int, moved_bytes: int) -> Fraction:
        """Return the microseconds of a layer: ``max(flops / (peak * efficiency), bytes / bandwidth)``."""
        arithmetic = Fraction(flops * 100 * 10**6, self.peak_flops * self.efficiency)
        return max(arithmetic, Fraction(moved_bytes * 10**6, self.memory_bandwidth))


GPU_TYPES: Mapping[str, GpuType] = {
    "v100": GpuType(125 * 10**12, 900 * 10**9, 32 * 10**9, 150 * 10**9),
    "a100": GpuType(312 * 10**12, 1555 * 10**9, 40 * 10**9, 300 * 10**9),
    "h100": GpuType(989 * 10**12, 3350 * 10**9, 80 * 10**9, 450 * 10**9),
    "h200": GpuType(989 * 10**12, 4800 * 10**9, 141 * 10**9, 450 * 10**9),
    "b200": GpuType(2250 * 10**12, 8000 * 10**9, 180 * 10**9, 900 * 10**9),
    "l40s": GpuType(362 * 10**12, 864 * 10**9, 48 * 10**9, 32 * 10**9),
    "t4": GpuType(65 * 10**12, 300 * 10**9, 16 * 10**9, 16 * 10**9),
    "mi300x": GpuType(1307 * 10**12, 5300 * 10**9, 192 * 10**9, 448 * 10**9),
}
"""Makers' figures, without sparsity; docs/instances.md names the variant of each.

They stand in the data sheets *NVIDIA V100 Tensor Core GPU*, *NVIDIA A100 Tensor Core GPU*, *NVIDIA H100 Tensor Core
GPU*, *NVIDIA H200 Tensor Core GPU*, *NVIDIA DGX B200* (an eighth of its figures), *NVIDIA L40S*, *NVIDIA T4 Tensor Core
GPU* and *AMD Instinct MI300X Accelerator*. The fabric is one direction of NVLink, of seven links of Infinity Fabric
(``mi300x``), or of a slot of PCI Express.
"""


_PCIE_BANDWIDTH: Mapping[str, int] = {"v100": 16 * 10**9, "a100": 32 * 10**9, "h100": 64 * 10**9}
"""The fabric of cards: a slot of PCI Express 3.0, 4.0 or 5.0 with 16 lanes, one direction."""
_PCIE = re.compile(r"(?<![a-z])pcie(?![a-z])")
_MEMORY = re.compile(
    r"(?:(?<![0-9])([0-9]{1,4})gb|(?<![a-z0-9])([0-9]{1,4})g|(?<=[_-])(16|24|32|40|48|64|80|94|96|141|192))(?![a-z0-9.])"
)
"""Gigabytes, as in ``a100-80gb``, ``a100-80g`` (not ``a10g``) and, of usual sizes alone, ``a100_80``."""
_SUPERCHIP = re.compile(r"(?<![a-z])g[hb][0-9]")
"""Names of these tell the memory of the processor, as ``nvidia_gh200_480gb``."""
_GPU_MEMORY, _FABRIC_BANDWIDTH = 16 * 10**9, 12 * 10**9
_NVLINK = 25 * 10**9
_NVLINK_5 = 50 * 10**9
_FIFTH_GENERATION = re.compile(r"(?<![a-z])g?b[23]00(?![0-9])")


def data_sheet(name: str) -> GpuType | None:
    """Return the figures of the type that a name means by its words; None where it has no data sheet.

    Memory and PCI Express in the name replace those of the data sheet, as in ``nvidia_a100-sxm4-80gb`` and
    ``nvidia_h100_pcie``. A part of a GPU (MIG) has no data sheet.
    """
    memory = memory_in(name)
    found = () if is_part(name) else matching_types(name, GPU_TYPES)
    if len(found) != 1:
        return None
    figures = GPU_TYPES[found[0]]
    is_card = _PCIE.search(name.lower()) and found[0] in _PCIE_BANDWIDTH
    fabric = _PCIE_BANDWIDTH[found[0]] if is_card else figures.fabric_bandwidth
    return replace(figures, memory=memory or figures.memory, fabric_bandwidth=fabric)


def memory_in(name: str) -> int | None:
    """Return the bytes of memory that the name of a type tells, as in ``a100_3g.20gb``; None where it tells none."""
    found = [] if _SUPERCHIP.search(name.lower()) else _MEMORY.findall(name.lower())
    return int("".join(found[-1])) * 10**9 or None if found else None


def nvlink_bandwidth(name: str) -> int:
    """Return the bytes a second of one NVLink of a type, one direction: of the fifth generation, or of those before."""
    return _NVLINK_5 if _FIFTH_GENERATION.search(name.lower()) else _NVLINK


def type_name(text: str) -> str:
    """Return the name of a type of GPU: in small letters where it has a data sheet, as ``A100``; else as it is."""
    return text.lower() if text.lower() in GPU_TYPES else text


def server(name: str, gpu_type: str, gpus: int) -> Server:
    """Return a server with the memory and fabric of its type's data sheet, or else 16 GB and 12 GB/s.

    The name of a type without a data sheet may tell its memory.
    """
    gpu_type = type_name(gpu_type)
    memory, figures = memory_in(gpu_type) or _GPU_MEMORY, data_sheet(gpu_type)
    if figures is None:
        return Server(name, gpu_type, gpus, memory, _FABRIC_BANDWIDTH)
    return Server(name, gpu_type, gpus, figures.memory, figures.fabric_bandwidth, fabric_latency_us=5)
