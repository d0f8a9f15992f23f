"""The independent checker: every rule of a correct plan, from the definitions alone."""

from jigsaw_opt.checking.check import check
from jigsaw_opt.checking.violation import Violation

__all__ = ["Violation", "check"]
