"""Cuts of a model, order of passes, memory and micro-batches of a pipeline, decided together and with a bound."""

from jigsaw_opt.planning.joint.choices import PipelineChoices
from jigsaw_opt.planning.joint.planning import CutPipeline, plan_pipeline

__all__ = ["CutPipeline", "PipelineChoices", "plan_pipeline"]
