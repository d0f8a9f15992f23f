"""Contiguous placements: a dynamic program over sets of groups that are closed under what comes before.

A device has what lies between two such sets (Tarnawski et al., NeurIPS'20, section 5.1.1). Sets whose work alone is
above the load of a known placement are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jigsaw_opt.errors import InfeasibleError
from jigsaw_opt.planning.closed_sets import closed_sets
from jigsaw_opt.planning.placement.loads import Groups, Placed, placed
from jigsaw_opt.problem.clock import check_deadline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["contiguous_placement"]

_NEVER = 2**62
"""Load where there is no placement: more than any, and its sum with a load fits 64 bits."""


def contiguous_placement(groups: Groups) -> Placed:
    """Return the placement of least maximum load in which each device has what lies between two closed sets."""
    chain = [0]
    for at in range(len(groups.members)):
        chain.append(chain[-1] | 1 << at)
    rough = _ContiguousProgram(groups, chain, _NEVER)
    found = _ContiguousProgram(groups, closed_sets(groups.before), rough.least)
    if found.least >= _NEVER:
        raise InfeasibleError("no devices have room for all operators")
    return placed(groups, found.sets(), found.least)


class _ContiguousProgram:
    """The dynamic program.

    `least`: the least maximum load; `_NEVER` where there is none at most `limit`.
    """

    def __init__(self, groups: Groups, closed: Sequence[int], limit: int) -> None:
        import numpy as np

        self.groups, self.closed, self.limit = groups, closed, limit
        self.number = {own: at for at, own in enumerate(closed)}
        self.touching = _touching(groups)
        self.shorter: dict[int, list[tuple[int, int]]] = {}
        # best[c, a, k]: least maximum load, in nanoseconds, of closed set k on at most c CPUs and a accelerators.
        # Closed sets come in order of size, so those that are left when something is cut off an end are solved before.
        shape = (groups.graph.cpus + 1, groups.graph.accelerators + 1, len(closed))
        self.best = np.full(shape, _NEVER, dtype=np.int64)
        self.best[:, :, 0] = 0
        for at in range(1, len(closed)):
            check_deadline()
            self._solve(at)
        self.least = int(self.best[-1, -1, -1])

    def sets(self) -> list[tuple[int, str]]:
        """Return sets of groups on devices of a kind that reach the least load."""
        found: list[tuple[int, str]] = []
        devices, at = (self.groups.graph.cpus, self.groups.graph.accelerators), len(self.closed) - 1
        while at:
            to, kind, devices = self._step(devices, at)
            if to != at:
                found.append((self.closed[at] & ~self.closed[to], kind))
            at = to
        return found[::-1]

    def _step(self, devices: tuple[int, int], at: int) -> tuple[int, str, tuple[int, int]]:
        """Backtrack one step: return the previous closed set, the kind of the last device, and the devices left."""
        cpus, accelerators = devices
        value = self.best[cpus, accelerators, at]
        before, loads, cpu_loads = self._parts(at)
        options = (("cpu", cpu_loads, (cpus - 1, accelerators)), ("accelerator", loads, (cpus, accelerators - 1)))
        for kind, own, fewer in options:
            if min(fewer) < 0:
                continue
            if self.best[fewer][at] == value:
                return at, kind, fewer
            reached = (_larger(self.best[fewer][before], own) == value).nonzero()[0]
            if len(reached):
                return int(before[reached[0]]), kind, fewer
        raise ValueError("nothing reaches the least load")

    def _solve(self, at: int) -> None:
        """Solve the dynamic program: least maximum loads of a closed set by devices."""
        best = self.best
        before, loads, cpu_loads = self._parts(at)
        for cpus in range(best.shape[0]):
            for accelerators in range(best.shape[1]):
                value = _NEVER
                if cpus:
                    value = min(value, best[cpus - 1, accelerators, at])
                    if len(before):
                        value = min(value, _larger(best[cpus - 1, accelerators, before], cpu_loads).min())
                if accelerators:
                    value = min(value, best[cpus, accelerators - 1, at])
                    if len(before):
                        value = min(value, _larger(best[cpus, accelerators - 1, before], loads).min())
                # What exceeds the load of a known placement is in no better one.
                best[cpus, accelerators, at] = value if value <= self.limit else _NEVER

    def _parts(self, at: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the numbers of smaller closed sets, and loads of an accelerator and a CPU with what lies between."""
        import numpy as np

        whole = self.closed[at]
        found = self._between(whole)
        numbers = np.array([self.number[whole & ~own] for own in found], dtype=np.int64)
        loads = np.array([load[0] for load in found.values()], dtype=np.int64)
        cpu_loads = np.array([load[1] for load in found.values()], dtype=np.int64)
        return numbers, loads, cpu_loads

    def _between(self, whole: int) -> dict[int, tuple[int, int]]:
        """Return by set cut off at the end of a closed set the loads of an accelerator and of a CPU with it."""
        groups, limit = self.groups, self.limit
        found: dict[int, tuple[int, int]] = {}
        pending: list[tuple[int, int, int, int, int]] = [(0, 0, 0, 0, 0)]
        seen = {0}
        for own, work, cpu, size, sent in pending:
            rest = whole & ~own
            for at, left in self._shorter(rest):
                more = whole ^ left
                if more in seen:
                    continue
                seen.add(more)
                time = groups.accelerator_ns[at]
                state = (
                    work + (_NEVER if time is None else time),
                    cpu + groups.cpu_ns[at],
                    size + groups.bytes[at],
                    sent + self._change(own, more, at),
                )
                # Work and memory only grow with a set, so they prune. What is moved does not: it falls once all groups
                # that an output joins are on the device.
                fits = state[0] <= limit and state[2] <= groups.graph.memory
                if not fits and state[1] > limit:
                    continue
                found[more] = (min(_NEVER, state[0] + state[3]) if fits else _NEVER, state[1])
                pending.append((more, *state))
        return found

    def _shorter(self, rest: int) -> list[tuple[int, int]]:
        """Return groups that can be cut off at the end of a closed set so that another one is left, and that one."""
        if rest not in self.shorter:
            own = [at for at in range(rest.bit_length()) if rest >> at & 1]
            before = 0
            for at in own:
                before |= self.groups.before[at]
            self.shorter[rest] = [
                (at, rest ^ 1 << at) for at in own if not before >> at & 1 and rest ^ 1 << at in self.number
            ]
        return self.shorter[rest]

    def _change(self, own: int, more: int, at: int) -> int:
        """Return how much more is moved where a set takes a group."""
        change = 0
        for mask, time in self.touching[at]:
            # The group is the first one of the output's on the device: it is moved from now on.
            if not mask & own:
                change += time
            # All groups of the output are on the device: it is moved no more.
            if not mask & ~more:
                change -= time
        return change


def _larger(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the elementwise maximum of two arrays."""
    import numpy as np

    found: NDArray[np.int64] = np.maximum(one, other)
    return found


def _touching(groups: Groups) -> list[list[tuple[int, int]]]:
    """Return for each group the outputs that join it with others."""
    found: list[list[tuple[int, int]]] = [[] for _ in groups.members]
    for mask, time in groups.outputs:
        for at in range(len(groups.members)):
            if mask >> at & 1:
                found[at].append((mask, time))
    return found
