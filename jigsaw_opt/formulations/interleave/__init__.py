"""Choose jobs that share GPUs by stages: a set-packing program over groups. `docs/policies.md` has it in formulas."""

from __future__ import annotations

from jigsaw_opt.formulations.interleave.rotation import MOST_JOBS, SLOWDOWN, Group, StagedJob, Timing
from jigsaw_opt.formulations.interleave.rounds import Round, group_round, normalised_throughput
from jigsaw_opt.formulations.interleave.set_packing import GroupPacking, build

__all__ = [
    "MOST_JOBS",
    "SLOWDOWN",
    "Group",
    "GroupPacking",
    "Round",
    "StagedJob",
    "Timing",
    "build",
    "group_round",
    "normalised_throughput",
]
