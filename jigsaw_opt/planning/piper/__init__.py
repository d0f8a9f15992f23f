"""Stages with degrees of data and tensor parallelism for workloads of Piper."""

from jigsaw_opt.planning.piper.program import PiperPlan, PiperStage, piper_plan

__all__ = ["PiperPlan", "PiperStage", "piper_plan"]
