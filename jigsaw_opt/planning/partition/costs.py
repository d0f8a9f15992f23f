"""What a stage costs on one level of the machines: as PipeDream's released optimiser counts, and as its paper does.

Rows of a matrix stand for the position at which a stage begins, columns for that at which it ends. Times are seconds a
minibatch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Literal

from jigsaw_opt.planning.partition.positions import CutPositions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Times = NDArray[np.float64]

Variant = Literal["released", "paper"]
"""``released``: gradients are sent after the compute, ``4 (m - 1) / m`` times their bytes. ``paper``: sent meanwhile,
``2 (m - 1)`` times; outputs between stages are always paid for."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the machines.

    `machines`: how many of the level below (of GPUs, on the innermost one) it joins.
    """

    machines: int
    bandwidth: float


class LevelCosts:
    """Costs of stages on one level.

    `level`: the machines that the stages share. `inner_s`: time of each stage on one machine of the level below;
    infinite where there is none. `inner_machines`: how many machines that one joins in turn; 1 on the innermost level.
    `activations`: whether outputs sent between stages are paid for where the variant leaves that open. `memory`: bytes
    of a GPU; None for no limit. `keeps_own`: whether a stage keeps the minibatch that it works at, which the released
    optimiser leaves out: its last stage keeps nothing.
    """

    def __init__(
        self,
        positions: CutPositions,
        level: Level,
        inner_s: Times,
        inner_machines: int,
        variant: Variant,
        activations: bool,
        memory: int | None,
        keeps_own: bool = True,
    ) -> None:
        self.level, self.inner_s, self.inner_machines, self.variant = level, inner_s, inner_machines, variant
        self.memory, self.keeps_own = memory, keeps_own
        self.parameters = positions.between(lambda layer: layer.parameter_bytes)
        self.state = (positions.graph.state_factor - 1) * self.parameters
        self.stashed = self.parameters + positions.between(lambda layer: layer.activation_bytes)
        self.sent = positions.released_sent_bytes if variant == "released" else positions.sent_bytes
        self.pays = activations or variant == "paper"

    def alone(self, replicas: int, begin: int) -> Times:
        """Return times of the stages that begin at a position and are the first of the model.

        Seconds by end; infinite where memory does not suffice.
        """
        import numpy as np

        rows = slice(begin, begin + 1)
        times: Times = self._replicated(replicas, rows)[0]
        if self.variant == "released":
            # Only here does the released optimiser share gradients among the machines inside.
            gradients = 4 * (replicas - 1) * self.parameters[begin] / (self.level.bandwidth * replicas)
            times = (self.inner_s[begin] + gradients / self.inner_machines) / replicas
        if self.memory is None:
            return times
        held = self._in_flight(replicas, replicas) * self.stashed[begin] + self.state[begin]
        return np.where(held > self.memory, np.inf, times)

    def behind_another(self, replicas: int) -> Times:
        """Return times of stages behind another one, on so many machines."""
        import numpy as np

        times = self._replicated(replicas, slice(None))
        if not self.pays:
            return times
        if self.variant == "paper":
            return _larger(times, (2 * self.sent / self.level.bandwidth)[:, None])
        moved = 2 * self.sent / (self.level.bandwidth * replicas)
        onward = np.append(moved[:-1], 0.0)
        return _larger(_larger(times, moved[:, None]), onward)

    def fits_behind_another(self, replicas: int, machines: int) -> NDArray[np.bool_] | None:
        """Return for which stages memory suffices; None where there is no limit."""
        if self.memory is None:
            return None
        return self._in_flight(replicas, machines) * self.stashed + self.state <= self.memory

    def _replicated(self, replicas: int, rows: slice) -> Times:
        inner, parameters = self.inner_s[rows], self.parameters[rows]
        if self.variant == "paper":
            return _larger(inner, 2 * (replicas - 1) * parameters / self.level.bandwidth) / replicas
        return (inner + 4 * (replicas - 1) * parameters / (self.level.bandwidth * replicas)) / replicas

    def _in_flight(self, replicas: int, machines: int) -> int:
        """Return minibatches whose activations and weights a stage keeps."""
        return ceil((self.level.machines - machines) / replicas) + self.keeps_own


def _larger(one: Times, other: Times) -> Times:
    import numpy as np

    found: Times = np.maximum(one, other)
    return found
