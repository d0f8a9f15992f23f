"""Durations, buckets and memory of a model, from its segments (specification: models, block, transfer, memory)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from math import ceil

from jigsaw_opt.problem.exchange import JobExchange
from jigsaw_opt.problem.model import Model, Segment


@dataclass(frozen=True, slots=True)
class ModelTerms:
    """The data of a model that the rules need.

    `durations`: ``duration(d, t)`` in microseconds by GPU type and level (index ``d - 1``); only types that may run it.
    `bucket_bytes`: ``P_b`` by bucket (index ``b - 1``). `state_bytes`: ``state_factor`` times the bytes of all
    parameters. `activation_bytes`: ``activations(d)`` by level (index ``d - 1``). `power_w`: watts that a GPU draws
    during a block, by GPU type; 0 where there is none. `efficiency`: noise scale and weight by bucket, where known.
    """

    depth: int
    durations: dict[str, tuple[int, ...]]
    bucket_bytes: tuple[int, ...]
    state_bytes: int
    activation_bytes: tuple[int, ...]
    power_w: Mapping[str, int]
    efficiency: tuple[tuple[int, ...], tuple[int, ...]] | None


def model_terms(model: Model) -> ModelTerms:
    """Return the terms of a model."""
    segments, count = model.segments, len(model.segments)
    # A level is a number of last segments; `split` is the first of them. Bucket b has the parameters between two
    # successive splits.
    splits = [count - last for last in model.levels]
    tables = [table for s in segments for table in (s.forward_us, s.backward_us)]
    types = set(tables[0]).intersection(*tables)
    bounds = [count, *splits]
    return ModelTerms(
        depth=len(splits),
        durations={t: _durations(segments, splits, t) for t in types},
        bucket_bytes=tuple(
            sum(s.parameter_bytes for s in segments[low:high]) for high, low in zip(bounds, splits, strict=False)
        ),
        state_bytes=model.state_factor * sum(s.parameter_bytes for s in segments),
        activation_bytes=_activations(segments, splits),
        power_w=model.power_w or {},
        efficiency=None if model.efficiency is None else (model.efficiency.noise_scale, model.efficiency.weight),
    )


def exchanged(terms: ModelTerms, exchange: JobExchange | None) -> ModelTerms:
    """Return the terms of a model for a job that exchanges less than all gradients (specification: exchange)."""
    if exchange is None:
        return terms
    share, steps = Fraction(1 if exchange.bytes is None else exchange.bytes), exchange.every or 1
    return replace(
        terms,
        durations={
            gpu_type: tuple((steps - 1) * table[-1] + own for own in table)
            for gpu_type, table in terms.durations.items()
        },
        bucket_bytes=tuple(ceil(share * size) for size in terms.bucket_bytes),
    )


def transfer_duration(payload: int, contributors: int, workers: int, rate: int, latency_us: int) -> int:
    """Return the least duration of a transfer in microseconds (specification: transfer).

    `contributors`: number of workers that contribute to it, at least 1.
    """
    # The contributors reduce and all workers receive: ``(c - 1) / c + (w - 1) / w`` of the payload, here over ``c w``.
    steps = (contributors - 1) * workers + (workers - 1) * contributors
    moving = Fraction(payload * steps * 10**6, contributors * workers * rate)
    return ceil(moving) + (contributors + workers - 2) * latency_us


def _durations(segments: tuple[Segment, ...], splits: list[int], gpu_type: str) -> tuple[int, ...]:
    """Return durations by type and level: forward through all segments, backward from the output to each split."""
    forward = sum(s.forward_us[gpu_type] for s in segments)
    backward = _from([s.backward_us[gpu_type] for s in segments])
    return tuple(forward + backward[split] for split in splits)


def _activations(segments: tuple[Segment, ...], splits: list[int]) -> tuple[int, ...]:
    """Return the activation bytes of each level: all segments after the split, and the largest single one before it."""
    sizes = [s.activation_bytes for s in segments]
    kept, largest = _from(sizes), [0, *accumulate(sizes, max)]
    return tuple(kept[split] + largest[split] for split in splits)


def _from(values: list[int]) -> list[int]:
    """Return the sum of the values from each index on."""
    return [0, *accumulate(reversed(values))][::-1]
