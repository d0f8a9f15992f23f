"""Is a plan correct? Every rule (specification: correct-plan), written from that page alone.

The room takes nothing but the dataclasses of `problem` (and the hash of `documents`): costs, routes,
memory and objective are worked out here a second time, so that a mistake in the code that plans are
made with cannot hide itself.
"""

from jigsaw_opt.checking.checker import check
from jigsaw_opt.checking.violation import RULES, Rule, Violation

__all__ = ["RULES", "Rule", "Violation", "check"]
