"""Models: segments, levels, buckets and memory (specification: models, memory)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from jigsaw_opt.problem.efficiency import Efficiency
from jigsaw_opt.problem.gpu_types import is_part, matching_types
from jigsaw_opt.problem.rules.part import CheckedPart


@dataclass(frozen=True, slots=True)
class Segment(CheckedPart, definition="segment"):
    """A stretch of layers that is backpropagated as a whole.

    Parameters
    ----------
    name
        Its name.
    forward_us, backward_us
        Time of its forward and backward pass by GPU type.
    parameter_bytes, activation_bytes
        Size of its parameters, and of the activations that its backward pass needs.
    """

    name: str
    forward_us: Mapping[str, int]
    backward_us: Mapping[str, int]
    parameter_bytes: int
    activation_bytes: int


@dataclass(frozen=True, slots=True)
class Model(CheckedPart, definition="model"):
    """Segments from the input to the output, and the levels at which a backward pass may stop.

    Parameters
    ----------
    segments
        At least one, from input to output.
    levels
        Level ``d`` (1-based) backpropagates the last ``levels[d-1]`` segments; empty means 1, 2, ..., L.
    state_factor
        Bytes held for weights, gradients and optimiser state per byte of parameters.
    executor
        Description from which the executor builds the model; solvers ignore it.
    power_w
        Watts that a GPU draws while it runs a block, by GPU type; 0 on types that are not named.
    efficiency
        What iterations at lower levels are worth; None where it is not known.
    """

    segments: tuple[Segment, ...]
    levels: tuple[int, ...] = ()
    state_factor: int = 4
    executor: Mapping[str, Any] | None = None
    power_w: Mapping[str, int] | None = None
    efficiency: Efficiency | None = None

    def __post_init__(self) -> None:
        if not self.levels and isinstance(self.segments, list | tuple):
            object.__setattr__(self, "levels", tuple(range(1, len(self.segments) + 1)))
        CheckedPart.__post_init__(self)

    @property
    def depth(self) -> int:
        """Number of levels, ``D``."""
        return len(self.levels)

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """Types that every segment has in both tables, in the order of the first segment."""
        tables = [table for s in self.segments for table in (s.forward_us, s.backward_us)]
        return tuple(t for t in tables[0] if all(t in table for table in tables))

    @property
    def state_bytes(self) -> int:
        """Bytes that a resident worker holds for weights, gradients and optimiser state (specification: memory)."""
        return self.state_factor * sum(s.parameter_bytes for s in self.segments)

    def names_matching(self, names: Iterable[str]) -> dict[str, str]:
        """Return those of some names that mean one type of the model, and are not its own, each with that type."""
        own = self.gpu_types
        found = {name: matching_types(name, own) for name in names if name not in own}
        return {name: one[0] for name, one in found.items() if len(one) == 1 and is_part(name) == is_part(one[0])}

    def also_named(self, names: Mapping[str, str]) -> Model:
        """Return the model with its times and powers under further names of its types of GPU too.

        Parameters
        ----------
        names
            Types of the model, by their further names.
        """

        def named(table: Mapping[str, int]) -> dict[str, int]:
            return {**table, **{name: table[own] for name, own in names.items() if own in table}}

        if not names:
            return self
        segments = (replace(s, forward_us=named(s.forward_us), backward_us=named(s.backward_us)) for s in self.segments)
        return replace(self, segments=tuple(segments), power_w=None if self.power_w is None else named(self.power_w))

    def block_us(self, gpu_type: str) -> tuple[int, ...]:
        """Return the duration of a block on `gpu_type`, by level (specification: block)."""
        forward = sum(s.forward_us[gpu_type] for s in self.segments)
        return tuple(forward + backward for backward in self._of_levels(s.backward_us[gpu_type] for s in self.segments))

    def bucket_bytes(self) -> tuple[int, ...]:
        """Return the parameter bytes ``P_b`` of buckets 1 to D; bucket 1 is at the output side."""
        suffix = self._of_levels(s.parameter_bytes for s in self.segments)
        return tuple(high - low for low, high in zip([0, *suffix], suffix, strict=False))

    def activation_bytes(self) -> tuple[int, ...]:
        """Return the bytes ``activations(d)`` by level (specification: memory); they never fall with the level."""
        sizes = [s.activation_bytes for s in self.segments]
        largest = [0, *accumulate(sizes, max)]
        kept = zip(self._of_levels(sizes), self.levels, strict=True)
        return tuple(stored + largest[len(sizes) - k] for stored, k in kept)

    def _of_levels(self, values: Iterable[int]) -> list[int]:
        """Return sums of values of the segments over the segments that each level backpropagates."""
        suffix = [0, *accumulate(reversed(list(values)))]
        return [suffix[k] for k in self.levels]
