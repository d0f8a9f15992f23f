"""The kinds of argument by name: each returns the lower bound that it proves, or says which step fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jigsaw_opt.checking.proofs.bins import bins
from jigsaw_opt.checking.proofs.cases import cases
from jigsaw_opt.checking.proofs.facts import Facts
from jigsaw_opt.checking.proofs.step import ProofStep

Check = Callable[[ProofStep, Facts], int]
"""Given an argument and the facts of the instance, return the least objective that it leaves to any correct plan."""


def proven(step: ProofStep, facts: Facts) -> int:
    """Return what an argument proves."""
    kind = step.text("kind")
    check = kinds().get(kind)
    step.require(check is not None, f"{kind!r} is no kind of argument", "kind")
    assert check is not None, "the line above raises otherwise"
    value = check(step, facts)
    step.done()
    return value


def kinds() -> Mapping[str, Check]:
    """Return all kinds of argument."""
    return {"none": lambda step, facts: 0, "bins": bins, "cases": cases}
