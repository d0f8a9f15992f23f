"""Which jobs share which GPUs: column generation over patterns of servers, rounded and repaired."""

from jigsaw_opt.solvers.allocation.packing.generation import Memory
from jigsaw_opt.solvers.allocation.packing.packing import Packed, fill, pack
from jigsaw_opt.solvers.allocation.packing.timetables import Timetables

__all__ = ["Memory", "Packed", "Timetables", "fill", "pack"]
