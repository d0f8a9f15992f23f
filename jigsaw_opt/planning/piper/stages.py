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
"""Cells that numpy fills at once, which bounds the memory for them, not the graph."""


class StageCosts:
    """Times of stages at one degree of tensor parallelism.

    Where the fastest way to run each node does not fit into memory, nodes change to their other way, those first that
    lose least time for each byte, until it does. Piper's released planner does so as well.

    `allowed`: for each node, whether it can be run at this degree.
    """

    def __init__(self, graph: PiperGraph, degree: int) -> None:
        import numpy as np

        self.graph = graph
        own = [node.options.get(degree, ()) for node in graph.nodes]
        self.allowed: Members = np.array([bool(options) for options in own])
        # A node with one way has it twice, and one without any is in no stage.
        pairs = [(options[0], options[-1]) if options else None for options in own]

        def column(name: str) -> Array:
            """Return for each way the values of all nodes."""
            return np.array([[getattr(pair[way], name) if pair else 0.0 for pair in pairs] for way in (0, 1)])

        self.time, self.parameter_bytes = column("time"), column("parameter_bytes")
        self.flight_bytes, self.static_bytes = column("flight_bytes"), column("static_bytes")
        count = len(graph.nodes)
        # By way, bytes that a node (column) adds where another one (row) is not in its stage.
        across: Array = np.zeros((MOST_OPTIONS, count, count))
        for edge in graph.edges:
            for way in range(MOST_OPTIONS):
                tail, head = pairs[edge.source], pairs[edge.target]
                if head:
                    across[way, edge.source, edge.target] += 2 * (edge.bytes + head[way].received_bytes[edge.source])
                if tail:
                    across[way, edge.target, edge.source] += 2 * (edge.bytes + tail[way].sent_bytes[edge.target])
        # Mostly both ways send the same, which takes one product then.
        self.across = across[:1] if np.array_equal(across[0], across[1]) else across

    def outside_bytes(self, members: Members) -> Array:
        """Return by way, stage and node the bytes sent out of the stage; once if both ways send the same."""
        found: Array = self.across.sum(axis=1)[:, None] - members.astype(float) @ self.across
        return found

    def times(self, members: Members, outside: Array, copies: int, most: int, limit: float) -> Array:
        """Return times by stage and micro-batches in flight, 0 to `most`; infinite where there is no room, or none.

        `members`: by stage (row), whether it has a node (column).
        """
        import numpy as np

        rows = max(1, _MOST_CELLS // (members.shape[1] * (most + 1)))
        parts = [
            self._times(members[at : at + rows], outside[:, at : at + rows], copies, np.arange(1, most + 1), limit)
            for at in range(0, len(members), rows)
        ]
        return np.pad(np.concatenate(parts), ((0, 0), (1, 0)), constant_values=np.inf)

    def ways(self, members: Members, copies: int, flight: int) -> list[int]:
        """Return for each node which way a single stage runs it.

        For each node, 0 for its first option and 1 for its last one.
        """
        import numpy as np

        own = members[None]
        fastest, _, swapped = self._choice(own, self.outside_bytes(own), copies, np.array([flight]), np.inf)
        chosen = fastest[0].copy()
        for row in swapped[2]:
            chosen ^= row
        return [int(way) for way in chosen]

    def _times(self, members: Members, outside: Array, copies: int, flight: NDArray[np.int64], limit: float) -> Array:
        _, times, (row, column, swapped, lost) = self._choice(members, outside, copies, flight, limit)
        times[row, column] += (lost * swapped).sum(axis=1)
        return times

    def _choice(
        self, members: Members, outside: Array, copies: int, flight: NDArray[np.int64], limit: float
    ) -> tuple[Members, Array, tuple[NDArray[np.int64], NDArray[np.int64], Members, Array]]:
        """Return the fastest ways, their times (infinite without room), and which nodes change at what cost."""
        import numpy as np

        exchanged = 4 * (copies - 1) * self.parameter_bytes / copies / self.graph.micro_batches
        alone = exchanged / self.graph.bandwidth + self.time / copies
        sent = outside / (copies * self.graph.bandwidth)
        # By node and stage, what a node adds to the time: the first way, and how much more the second one.
        first, more = sent[0] + alone[0], sent[-1] - sent[0] + (alone[1] - alone[0])
        fastest: Members = more < 0
        total = ((first + np.minimum(more, 0)) * members).sum(axis=1)

        def fast_and_saved(values: Array) -> tuple[Array, Array]:
            """Return bytes of the fastest ways by stage, and what each node saves by the other one."""
            difference = values[0] - values[1]
            whole: Array = members @ values[0] - (fastest & members) @ difference
            return whole, np.where(fastest, -difference, difference)

        (flying, saved_flying), (lying, saved_lying) = map(fast_and_saved, (self.flight_bytes, self.static_bytes))
        above = flying[:, None] * flight + lying[:, None] - self.graph.memory
        times = np.where(above <= 0, total[:, None], np.inf)
        row, column = np.nonzero((above > 0) & (total <= limit)[:, None])
        saved = (saved_flying[row] * flight[column][:, None] + saved_lying[row]) * members[row]
        saved[saved <= _NOTHING] = 0
        enough = saved.sum(axis=1) >= above[row, column]
        row, column, saved = row[enough], column[enough], saved[enough]
        times[row, column] = total[row]
        lost = np.abs(more[row])
        return fastest, times, (row, column, _changed(saved, lost, above[row, column]), lost)


def _changed(saved: Array, lost: Array, above: Array) -> Members:
    """Return which nodes (columns) change until enough is saved, those first that lose least for each byte."""
    import numpy as np

    useful = saved > 0
    ratio = np.divide(lost, saved, out=np.full_like(lost, np.inf), where=useful)
    order = np.argsort(ratio, axis=1, kind="stable")
    in_order = np.take_along_axis(saved, order, axis=1)
    # What is still too much when it is each node's turn, in the order in which they change.
    left = above[:, None] - np.cumsum(in_order, axis=1) + in_order
    found = np.zeros(saved.shape, dtype=np.bool_)
    np.put_along_axis(found, order, left >= _NOTHING, axis=1)
    return found & useful
