"""Which jobs share which GPUs: column generation over patterns of servers, rounded and repaired."""

from jigsaw_opt.solvers.allocation.packing.generation import Memory
from jigsaw_opt.solvers.allocation.packing.packing import PackedQueue, fill, pack
from jigsaw_opt.solvers.allocation.packing.rate_bound import rate_bound
from jigsaw_opt.solvers.allocation.packing.timetables import ITERATIONS, Timetables, cyclic_plan, shortest_period

__all__ = [
    "ITERATIONS",
    "Memory",
    "PackedQueue",
    "Timetables",
    "cyclic_plan",
    "fill",
    "pack",
    "rate_bound",
    "shortest_period",
]
