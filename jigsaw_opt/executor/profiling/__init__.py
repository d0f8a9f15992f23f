"""Measured profiles: time and memory of a model's segments and levels, of any model (extra ``torch``)."""

from jigsaw_opt.executor import require_torch

require_torch()

from jigsaw_opt.executor.profiling.any_model import measure_any, profile, told_wide  # noqa: E402 - says first what to install
from jigsaw_opt.executor.profiling.of_replica import profile_replica  # noqa: E402
from jigsaw_opt.executor.profiling.results import LevelProfile, ModelProfile, SegmentProfile  # noqa: E402

__all__ = ["LevelProfile", "ModelProfile", "SegmentProfile", "measure_any", "profile", "profile_replica", "told_wide"]
