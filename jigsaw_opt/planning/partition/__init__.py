"""Partitions of a model into the stages of a pipeline (PipeDream; Narayanan et al., SOSP'19)."""

from jigsaw_opt.planning.partition.costs import Level, Variant
from jigsaw_opt.planning.partition.result import OuterStage, Partition, Stage, partition

__all__ = ["Level", "OuterStage", "Partition", "Stage", "Variant", "partition"]
