"""One broken rule."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Violation"]


@dataclass(frozen=True, slots=True)
class Violation:
    """One place where a plan breaks a rule.

    Parameters
    ----------
    rule
        ``"4.1"`` to ``"4.7"``, or ``"5"`` for what only a period can break, as numbered in SPEC.
    path
        Where in the plan, as in ``$.jobs[0].iterations[1].blocks[0]``.
    message
        What is wrong there, in the user's terms.
    """

    rule: str
    path: str
    message: str
