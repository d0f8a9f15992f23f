"""Which jobs share GPUs by stages: a set-packing program over groups. `docs/interleave.md` states the mathematics."""

from __future__ import annotations

from jigsaw_opt.formulations.interleave.rotation import MOST_JOBS, SLOWDOWN, Rotation, group_times
from jigsaw_opt.formulations.interleave.set_packing import Group, Model, StagedJob, build, normalised_throughput

__all__ = [
    "MOST_JOBS",
    "SLOWDOWN",
    "Group",
    "Model",
    "Rotation",
    "StagedJob",
    "build",
    "group_times",
    "normalised_throughput",
]
