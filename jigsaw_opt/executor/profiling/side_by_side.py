"""Profiles measured in several processes at once, as a replay runs them.

On a CPU the cores share caches and the way to the memory, so a block takes longer while another core is at work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import torch
import torch.distributed as dist

from jigsaw_opt.executor.devices import Spread
from jigsaw_opt.executor.models.building import build_network, even_segments, replica
from jigsaw_opt.executor.processes import keep_to_share, run_group
from jigsaw_opt.executor.profiling import ModelProfile, profile_replica
from jigsaw_opt.executor.user_code.importing import blame_own_code
from jigsaw_opt.executor.worker import TrainingRecipe


def profiles_side_by_side(
    entries: Sequence[Mapping[str, Any]],
    segments: int,
    processes: int,
    recipe: TrainingRecipe,
    warm_up: int,
    repeats: int,
    trusted: Sequence[str] = (),
) -> list[ModelProfile]:
    """Profile models on the CPU in several processes at once, each on its share of the cores with one thread.

    `entries`: for each model its `executor` entry.
    """
    found = run_group(_profiles, processes, tuple(entries), segments, recipe, warm_up, repeats, tuple(trusted))
    return [_mean(own) for own in zip(*found, strict=True)]


def _profiles(
    entries: Sequence[Mapping[str, Any]],
    segments: int,
    recipe: TrainingRecipe,
    warm_up: int,
    repeats: int,
    trusted: Sequence[str],
) -> list[ModelProfile]:
    keep_to_share(dist.get_rank(), dist.get_world_size())
    found = []
    for entry in entries:
        network = build_network(entry["zoo"], entry["arguments"], trusted)
        with blame_own_code(entry["zoo"]):
            built = replica(network, even_segments(network, segments), entry["batch_size"])
            dist.barrier()
            cpu, rank = torch.device("cpu"), dist.get_rank()
            # All measure equally often, so that none measures while others are done.
            found.append(profile_replica(built, recipe, cpu, warm_up, repeats, number=rank, most=repeats))
    return found


def _mean(profiles: Sequence[ModelProfile]) -> ModelProfile:
    first = profiles[0]
    segments = tuple(
        replace(
            segment,
            forward=_mean_spread([p.segments[k].forward for p in profiles]),
            backward=_mean_spread([p.segments[k].backward for p in profiles]),
            input_gradients=_mean_spread([p.segments[k].input_gradients for p in profiles]),
            weight_gradients=_mean_spread([p.segments[k].weight_gradients for p in profiles]),
            step_us=fmean(p.segments[k].step_us for p in profiles),
        )
        for k, segment in enumerate(first.segments)
    )
    levels = tuple(
        replace(level, block=_mean_spread([p.levels[k].block for p in profiles]))
        for k, level in enumerate(first.levels)
    )
    return replace(first, segments=segments, levels=levels)


def _mean_spread(spreads: Sequence[Spread]) -> Spread:
    return Spread(*(fmean(part) for part in zip(*((s.median, s.low, s.high) for s in spreads), strict=True)))
