"""What the checker reports."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Findings", "Violation"]


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule.

    Parameters
    ----------
    rule
        Section of SPEC.md that states it: ``4.1`` to ``4.7``, or ``5`` for what only cyclic plans owe.
    path
        Where in the plan document.
    message
        What is broken, with the numbers.
    """

    rule: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"rule {self.rule} at {self.path}: {self.message}"


class Findings(list[Violation]):
    """Violations in the order in which they were found."""

    def add(self, rule: str, path: str, message: str) -> None:
        """Report one broken rule."""
        self.append(Violation(rule, path, message))
