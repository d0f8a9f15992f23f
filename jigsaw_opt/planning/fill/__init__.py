"""Foreground jobs keep a period, background jobs get what they leave of GPUs and links."""

from jigsaw_opt.planning.fill.fill import FilledHoles, fill
from jigsaw_opt.planning.fill.insertion import insert

__all__ = ["FilledHoles", "fill", "insert"]
