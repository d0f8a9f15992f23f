"""Is a plan correct? Every rule (specification: correct-plan), written from that page alone.

The room takes nothing but the dataclasses of `problem` (and the hash and the rules of `documents`): costs, routes,
memory and objective are worked out here a second time, so that a mistake in the code that plans are
made with cannot hide itself.
"""

from jigsaw_opt.checking.checker import check, violations
from jigsaw_opt.checking.violation import RULES, Rule, Violation

__all__ = ["RULES", "Rule", "Violation", "check", "violations"]
