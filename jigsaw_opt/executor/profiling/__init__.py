"""Measured profiles: time and memory of a model's segments and levels, of any model (extra ``torch``)."""

from jigsaw_opt.executor import require_torch

require_torch()

from jigsaw_opt.executor.profiling.any_model import (  # noqa: E402 - says first what to install
    measure_any,
    profile,
    profile_replica,
    told_wide,
)
from jigsaw_opt.executor.profiling.results import LevelProfile, ModelProfile, SegmentProfile  # noqa: E402

__all__ = ["LevelProfile", "ModelProfile", "SegmentProfile", "measure_any", "profile", "profile_replica", "told_wide"]
