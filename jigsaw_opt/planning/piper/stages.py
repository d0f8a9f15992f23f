"""What a stage takes, for many stages at once (Tarnawski et al., NeurIPS'21, section 3 and appendix C).

A stage on `d` groups of `t` devices takes, for each micro-batch, a `d`-th of its compute and of twice the bytes on
edges that enter or leave it, and `4 (d - 1) / d` of its parameters once a batch. A device holds as many
micro-batches as the data-parallel degrees of this stage and those behind it come to, divided by `d` and rounded up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jigsaw_opt.documents.readers.piper import PiperGraph

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Members = NDArray[np.bool_]

__all__ = ["MOST_OPTIONS", "StageCosts"]

MOST_OPTIONS = 2
"""Ways to run a node at a degree that the choice among them is defined for."""
_NOTHING = 1e-9
"""Bytes that count as none, as in the released planner."""
_MOST_CELLS = 20_000_000


class StageCosts:
    """Times of stages at one degree of tensor parallelism.

    Where the fastest way to run each node does not fit into memory, nodes change to their other way, those first that
    lose least time for each byte, until it does. Piper's released planner does so as well.

    Parameters
    ----------
    graph
        The workload.
    degree
        Of tensor parallelism.

    Attributes
    ----------
    allowed
        By node, whether it can be run at this degree.
    """

    def __init__(self, graph: PiperGraph, degree: int) -> None:
        import numpy as np

        self.graph = graph
        own = [node.options.get(degree, ()) for node in graph.nodes]
        self.allowed: Members = np.array([bool(options) for options in own])
        # A node with one way has it twice, and one without any is in no stage.
        pairs = [(options[0], options[-1]) if options else None for options in own]

        def column(name: str) -> Array:
            return np.array([[getattr(it, name) for it in pair] if pair else [0.0, 0.0] for pair in pairs], dtype=float)

        self.time, self.parameter_bytes = column("time"), column("parameter_bytes")
        self.flight_bytes, self.static_bytes = column("flight_bytes"), column("static_bytes")
        count = len(graph.nodes)
        # By way, bytes that a node (column) adds where another one (row) is not in its stage.
        self.across: list[Array] = [np.zeros((count, count)) for _ in range(MOST_OPTIONS)]
        for edge in graph.edges:
            for way in range(MOST_OPTIONS):
                tail, head = pairs[edge.source], pairs[edge.target]
                if head:
                    received = edge.bytes + head[way].received_bytes[edge.source]
                    self.across[way][edge.source, edge.target] += 2 * received
                if tail:
                    self.across[way][edge.target, edge.source] += 2 * (edge.bytes + tail[way].sent_bytes[edge.target])

    def times(self, members: Members, copies: int, most: int, limit: float) -> Array:
        """Times by stage and micro-batches in flight, from 0 to `most`; infinite where there is no room, or none.

        Parameters
        ----------
        members
            By stage (row), whether it has a node (column).
        copies
            The degree of data parallelism.
        most
            Micro-batches in flight at most.
        limit
            Times above may be infinite.
        """
        import numpy as np

        rows = max(1, _MOST_CELLS // (members.shape[1] * (most + 1)))
        parts = [
            self._times(members[at : at + rows], copies, np.arange(1, most + 1), limit)
            for at in range(0, len(members), rows)
        ]
        return np.pad(np.concatenate(parts), ((0, 0), (1, 0)), constant_values=np.inf)

    def ways(self, members: Members, copies: int, flight: int) -> list[int]:
        """By node, which way a single stage runs it."""
        import numpy as np

        fastest, _, swapped = self._choice(members[None], copies, np.array([flight]), np.inf)
        chosen = fastest[0].copy()
        for row in swapped[2]:
            chosen ^= row
        return [int(way) for way in chosen]

    def _times(self, members: Members, copies: int, flight: NDArray[np.int64], limit: float) -> Array:
        _, times, (row, column, swapped, lost) = self._choice(members, copies, flight, limit)
        times[row, column] += (lost * swapped).sum(axis=1)
        return times

    def _choice(
        self, members: Members, copies: int, flight: NDArray[np.int64], limit: float
    ) -> tuple[NDArray[np.int64], Array, tuple[NDArray[np.int64], NDArray[np.int64], Members, Array]]:
        """Fastest ways; their times, infinite where there is no room; and where which nodes change at what cost."""
        import numpy as np

        cost = self._cost(members, copies)
        fastest = cost.argmin(axis=2)
        nodes = np.arange(members.shape[1])
        lost = (cost.max(axis=2) - cost.min(axis=2)) * members

        def of(values: Array, way: NDArray[np.int64]) -> Array:
            found: Array = values[nodes, way] * members
            return found

        flying, lying = of(self.flight_bytes, fastest), of(self.static_bytes, fastest)
        saved_flying = flying - of(self.flight_bytes, 1 - fastest)
        saved_lying = lying - of(self.static_bytes, 1 - fastest)
        total = (cost.min(axis=2) * members).sum(axis=1)
        above = flying.sum(axis=1)[:, None] * flight + lying.sum(axis=1)[:, None] - self.graph.memory
        row, column = np.nonzero((above > 0) & (total <= limit)[:, None])
        saved = saved_flying[row] * flight[column][:, None] + saved_lying[row]
        saved[saved <= _NOTHING] = 0
        enough = saved.sum(axis=1) >= above[row, column]
        row, column, saved = row[enough], column[enough], saved[enough]
        times = np.where(above <= 0, total[:, None], np.inf)
        times[row, column] = total[row]
        return fastest, times, (row, column, _changed(saved, lost[row], above[row, column]), lost[row])

    def _cost(self, members: Members, copies: int) -> Array:
        """By stage, node and way, what the node adds to the stage's time."""
        import numpy as np

        inside = members.astype(np.float64)
        exchanged = 4 * (copies - 1) * self.parameter_bytes / copies / self.graph.micro_batches
        found = np.empty((*members.shape, MOST_OPTIONS))
        for way, across in enumerate(self.across):
            outside = across.sum(axis=0) - inside @ across
            sent = (outside / copies + exchanged[:, way]) / self.graph.bandwidth
            found[:, :, way] = sent + self.time[:, way] / copies
        return found


def _changed(saved: Array, lost: Array, above: Array) -> Members:
    """Which nodes (columns) change until enough is saved, those first that lose least for each byte."""
    import numpy as np

    useful = saved > 0
    ratio = np.divide(lost, saved, out=np.full_like(lost, np.inf), where=useful)
    order = np.argsort(ratio, axis=1, kind="stable")
    in_order = np.take_along_axis(saved, order, axis=1)
    left = above[:, None] - np.cumsum(in_order, axis=1) + in_order
    found = np.zeros(saved.shape, dtype=np.bool_)
    np.put_along_axis(found, order, left >= _NOTHING, axis=1)
    return found & useful
