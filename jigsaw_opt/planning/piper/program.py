"""Piper's dynamic program: stages with degrees of data and tensor parallelism, the slowest as fast as possible.

From the last stage on, it goes over closed sets of nodes, devices and sums of data-parallel degrees (Tarnawski et al.,
NeurIPS'21, section 4). It looks for plans below a limit, which rises until there is one. Sets that the work or the
memory of their nodes rules out under the limit are left out, so a plan that is found is the best of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import TopologicalSorter
from math import ceil, inf
from typing import TYPE_CHECKING

from jigsaw_opt.documents.readers.piper import PiperGraph
from jigsaw_opt.errors import InfeasibleError, UsageError
from jigsaw_opt.planning.closed_sets import closed_sets
from jigsaw_opt.planning.piper.stages import MOST_OPTIONS, StageCosts
from jigsaw_opt.problem.clock import check_deadline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["PiperPlan", "PiperStage", "piper_plan"]

_LIMITS = (1.001, 1.01, 1.05, 1.2, 1.5, 2.5)
"""Limits of the time of a plan that are tried, as multiples of what the work alone takes."""
_ROUNDING = 1e-9
"""Share by which a sum of floats may pass a limit that it keeps exactly."""
_MOST_CELLS = 200_000_000
"""Cells of the table above which a graph is refused: they take 1.6 GB of memory."""


@dataclass(frozen=True, slots=True)
class PiperStage:
    """A stage.

    `options`: for each node, the way to run it. `time`: for each micro-batch, in the unit of the workload.
    """

    nodes: tuple[int, ...]
    options: tuple[str, ...]
    data_parallel: int
    tensor_parallel: int
    time: float


@dataclass(frozen=True, slots=True)
class PiperPlan:
    """Stages, first to last, and the time of the slowest."""

    time_per_sample: float
    stages: tuple[PiperStage, ...]


def piper_plan(graph: PiperGraph) -> PiperPlan:
    """Return the plan of least time."""
    for node in graph.nodes:
        if any(len(options) > MOST_OPTIONS for options in node.options.values()):
            raise UsageError(f"node {node.number} has more than {MOST_OPTIONS} ways at one degree", code="too-large")
    before = [0] * len(graph.nodes)
    for edge in graph.edges:
        before[edge.target] |= 1 << edge.source
    closed, chain = closed_sets(before), _chain(before)
    # Where there are few sets besides, the plan of one order takes as long as that of all.
    rough = _least_plan(graph, _Sets(graph, chain), inf) if len(closed) > 4 * len(chain) else None
    found = _least_plan(graph, _Sets(graph, closed), rough.least if rough else inf)
    if found is None:
        raise InfeasibleError(f"no stages on {graph.devices} devices fit into {graph.memory:.0f} bytes of memory")
    return PiperPlan(found.least, tuple(found.stages()))


def _chain(before: list[int]) -> list[int]:
    """Return the closed sets of one order of the nodes."""
    members = {
        node: [other for other in range(len(before)) if before[node] >> other & 1] for node in range(len(before))
    }
    found = [0]
    for node in TopologicalSorter(members).static_order():
        found.append(found[-1] | 1 << node)
    return found


def _least_plan(graph: PiperGraph, sets: _Sets, known: float) -> _PiperProgram | None:
    """Return the program under the first limit with a plan; None where no plan is as good as a known one."""
    least = sets.least_time
    limits = [factor * least for factor in _LIMITS] if least else [inf]
    for limit in [each for each in limits if each < known] + [known]:
        program = _PiperProgram(graph, sets, limit)
        if program.least < inf:
            return program
    return None


class _Sets:
    """Closed sets of nodes, and how many devices what is in them takes at least."""

    def __init__(self, graph: PiperGraph, closed: list[int]) -> None:
        import numpy as np

        count = len(graph.nodes)
        packed = b"".join(bits.to_bytes((count + 7) // 8, "little") for bits in closed)
        bits = np.frombuffer(packed, dtype=np.uint8).reshape(len(closed), -1)
        self.members: NDArray[np.bool_] = np.unpackbits(bits, axis=1, count=count, bitorder="little").astype(np.bool_)
        self.graph, work, memory = graph, [], []
        for node in graph.nodes:
            ways = [
                (degree, option) for degree, own in node.options.items() if degree <= graph.devices for option in own
            ]
            work.append(min((degree * way.time for degree, way in ways), default=inf))
            memory.append(min((degree * (way.flight_bytes + way.static_bytes) for degree, way in ways), default=inf))
        # Device-time of a micro-batch, and memory over all devices.
        self.work, self.memory = self._summed(work), self._summed(memory)
        self.least_time = float(self.work[-1]) / graph.devices

    def _summed(self, values: list[float]) -> NDArray[np.float64]:
        import numpy as np

        if inf in values:
            raise InfeasibleError("a node cannot be run on so few devices")
        found: NDArray[np.float64] = self.members @ np.array(values)
        return found

    def devices(self, work: NDArray[np.float64], memory: NDArray[np.float64], limit: float) -> NDArray[np.float64]:
        """Return how many devices work and memory take at least, where no stage takes longer than a limit."""
        import numpy as np

        by_memory = np.ceil(memory / self.graph.memory * (1 - _ROUNDING))
        if limit == inf:
            return by_memory
        return np.maximum(by_memory, np.ceil(work / limit * (1 - _ROUNDING)))


class _PiperProgram:
    """The dynamic program under a limit.

    `least`: the least time at most `limit`; infinite where there is none.
    """

    def __init__(self, graph: PiperGraph, sets: _Sets, limit: float) -> None:
        import numpy as np

        self.graph, self.sets, self.limit = graph, sets, limit
        self.sum = min(graph.devices, graph.micro_batches)
        before = sets.devices(sets.work, sets.memory, limit)
        behind = sets.devices(sets.work[-1] - sets.work, sets.memory[-1] - sets.memory, limit)
        # Sets for which devices suffice, what is in them and what is behind.
        self.kept = np.flatnonzero(before + behind <= graph.devices)
        self.fewest, self.most = behind[self.kept].astype(int), graph.devices - before[self.kept].astype(int)
        self.members = sets.members[self.kept]
        self.work, self.memory = sets.work[self.kept], sets.memory[self.kept]
        # best[k, n, s]: least time of the nodes behind kept set k on at most n devices, where the data-parallel degrees
        # add up to at most s. The sum tells how many micro-batches are in flight in the first of these stages.
        shape = (len(self.kept), graph.devices + 1, self.sum + 1)
        if shape[0] * shape[1] * shape[2] > _MOST_CELLS:
            raise UsageError(f"{shape[0]} contiguous parts on {graph.devices} devices are too many", code="too-large")
        degrees = sorted({degree for node in graph.nodes for degree in node.options if degree <= graph.devices})
        self.costs = {degree: StageCosts(graph, degree) for degree in degrees}
        # Each copy of a stage takes the same number of micro-batches.
        self.copies = [d for d in range(1, self.sum + 1) if graph.micro_batches % d == 0]
        self.best = np.full(shape, np.inf)
        self.least = inf
        if shape[0] and self.kept[0] == 0:
            self.best[-1] = 0
            for at in range(shape[0] - 2, -1, -1):
                check_deadline()
                self._solve(at)
            self.least = float(self.best[0, -1, -1])

    def stages(self) -> list[PiperStage]:
        """Return stages that reach the least time, first to last."""
        found, at, devices, total = [], 0, self.graph.devices, self.sum
        while at < len(self.kept) - 1:
            value = self.best[at, devices, total]
            while devices and self.best[at, devices - 1, total] == value:
                devices -= 1
            while total and self.best[at, devices, total - 1] == value:
                total -= 1
            to, degree, copies, time = self._step(at, devices, total)
            own = self.members[to] & ~self.members[at]
            ways = self.costs[degree].ways(own, copies, ceil(total / copies))
            nodes = [(node, way) for node, way, mine in zip(self.graph.nodes, ways, own, strict=True) if mine]
            names = tuple(node.options[degree][min(way, len(node.options[degree]) - 1)].name for node, way in nodes)
            found.append(PiperStage(tuple(node.number for node, _ in nodes), names, copies, degree, time))
            at, devices, total = to, devices - degree * copies, total - copies
        return found

    def _step(self, at: int, devices: int, total: int) -> tuple[int, int, int, float]:
        """Backtrack one step: return the set behind the first stage, and that stage's degrees and time."""
        import numpy as np

        value = self.best[at, devices, total]
        for degree, copies, rows, times in self._stages(at):
            if degree * copies <= devices and copies <= total:
                own = times[:, ceil(total / copies)]
                rest = self.best[rows, devices - degree * copies, total - copies]
                reached = np.flatnonzero(np.maximum(own, rest) == value)
                if len(reached):
                    return int(rows[reached[0]]), degree, copies, float(own[reached[0]])
        raise ValueError("nothing reaches the least time")

    def _solve(self, at: int) -> None:
        """Solve the dynamic program: least times behind each set, by devices and by sum of data-parallel degrees."""
        import numpy as np

        best, fewest, most = self.best[at], self.fewest[at], self.most[at]
        for degree, copies, rows, times in self._stages(at):
            taken = degree * copies
            first = max(fewest, taken)
            if first > most:
                continue
            flight = -(-np.arange(copies, self.sum + 1) // copies)
            rest = self.best[rows, first - taken : most + 1 - taken, : self.sum + 1 - copies]
            reached = np.maximum(rest, times[:, None, flight]).min(axis=0)
            np.minimum(best[first : most + 1, copies:], reached, out=best[first : most + 1, copies:])
        best[best > self.limit] = np.inf
        # Devices may be left over, and degrees may add up to less.
        np.minimum.accumulate(best, axis=0, out=best)
        np.minimum.accumulate(best, axis=1, out=best)

    def _stages(self, at: int) -> list[tuple[int, int, NDArray[np.int64], NDArray[np.float64]]]:
        """Return degrees, sets behind the stage that begins behind a set, and times by micro-batches in flight."""
        import numpy as np

        rows = at + 1 + np.flatnonzero(~(self.members[at] & ~self.members[at + 1 :]).any(axis=1))
        work, memory = self.work[rows] - self.work[at], self.memory[rows] - self.memory[at]
        needed = self.sets.devices(work, np.zeros(len(rows)), self.limit)
        found = []
        for degree, costs in self.costs.items():
            own = self.members[rows] & ~self.members[at]
            fits = (memory * (1 - _ROUNDING) <= degree * self.graph.memory) & ~(own & ~costs.allowed).any(axis=1)
            fits &= needed <= self.most[at]
            own, behind, least = own[fits], rows[fits], needed[fits]
            outside = costs.outside_bytes(own)
            for copies in self.copies:
                chosen = least <= degree * copies
                if degree * copies <= self.most[at] and chosen.any():
                    most = ceil(self.sum / copies)
                    times = costs.times(own[chosen], outside[:, chosen], copies, most, self.limit)
                    found.append((degree, copies, behind[chosen], times))
        return found
