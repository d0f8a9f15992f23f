"""Memory of GPUs and power caps in models of CP-SAT (specification: memory, power)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd
from typing import TYPE_CHECKING, Any

from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.power import PowerCap

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


class PowerUse:
    """The watts that blocks draw under each cap of a cluster.

    Modulo a period, every block is laid down twice, a period apart, and lasts at most one. Between one and two periods
    those that run are then the ones that run at that moment of a period, each once, and before and after no others do.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._servers = [server.name for server in cluster.servers]
        self._caps: list[tuple[PowerCap, list[cp_model.IntervalVar], list[int]]]
        self._caps = [(cap, [], []) for cap in cluster.capacities]

    def add(self, server: int, blocks: Sequence[cp_model.IntervalVar], watts: int) -> None:
        """Let blocks on a GPU of a server draw so many watts each."""
        for cap, intervals, demands in self._caps if watts else ():
            if self._servers[server] in cap.servers:
                intervals += blocks
                # What is above the cap is as impossible as what exceeds it by one watt, and keeps the numbers small.
                demands += [min(watts, cap.watts + 1)] * len(blocks)

    def close(self, model: cp_model.CpModel) -> None:
        """State that no more is drawn at any moment than each cap allows."""
        for cap, intervals, demands in self._caps:
            if sum(demands) > cap.watts:
                unit = gcd(*demands)
                model.add_cumulative(intervals, [demand // unit for demand in demands], cap.watts // unit)


def add_gpu_memory(
    model: cp_model.CpModel, gpu: int, memory: int, states: Iterable[Any], activations: Iterable[Any]
) -> None:
    """State that a GPU holds the states of all its workers and the largest activations among them."""
    # Nothing gains by a larger value, so that lower bounds are enough.
    largest = model.new_int_var(0, memory, f"activations on {gpu}")
    for size in activations:
        model.add(largest >= size)
    model.add(sum(states) + largest <= memory)
