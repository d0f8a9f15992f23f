"""Which jobs share which GPUs: column generation over patterns of servers, rounded and repaired."""

from jigsaw_opt.solvers.allocation.packing.generation import (
    ITERATIONS,
    Memory,
    Timetables,
    cyclic_plan,
    shortest_period,
)
from jigsaw_opt.solvers.allocation.packing.packing import PackedQueue, fill, pack

__all__ = [
    "ITERATIONS",
    "Memory",
    "PackedQueue",
    "Timetables",
    "cyclic_plan",
    "fill",
    "pack",
    "shortest_period",
]
