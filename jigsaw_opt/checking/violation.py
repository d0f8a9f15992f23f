"""The rules of a correct plan by name, and one broken rule (specification: correct-plan)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Rule = Literal[
    "document",
    "placement",
    "levels",
    "coverage",
    "mean-depth",
    "progress",
    "balance",
    "duration",
    "readiness",
    "order",
    "release",
    "deadline",
    "barrier",
    "edges",
    "exclusive",
    "power",
    "phases",
    "groups",
    "moves",
    "memory",
    "licences",
    "objective",
    "bound",
    "period",
    "pace",
]
RULES: tuple[Rule, ...] = get_args(Rule)


@dataclass(frozen=True, slots=True)
class Violation:
    """One place where a plan breaks a rule.

    Parameters
    ----------
    rule
        Name of the rule in the specification.
    path
        Path in the plan, as in ``$.jobs[0].iterations[1].blocks[0]``.
    message
        What is wrong there, in the user's terms.
    """

    rule: Rule
    path: str
    message: str

    @property
    def read(self) -> str:
        """Where the rule stands, as in ``docs/specification.md#memory``."""
        return f"docs/specification.md#{self.rule}"

    def __str__(self) -> str:
        """Return all of it in one line, for messages."""
        return f"{self.rule} at {self.path}: {self.message} ({self.read})"
