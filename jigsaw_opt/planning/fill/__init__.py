"""Foreground jobs keep a period, background jobs get what they leave of GPUs and links."""

from jigsaw_opt.planning.fill.fill import fill
from jigsaw_opt.planning.fill.insertion import insert
from jigsaw_opt.planning.fill.result import FillResult

__all__ = ["FillResult", "fill", "insert"]
