"""The option that chooses a depth rule, the same for every command, and what is said of all rules but the full one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from jigsaw_opt.problem.depth import CHOICES

__all__ = ["add_depth", "warn_of_policies", "warn_of_spb"]


def add_depth(parser: argparse._ActionsContainer, default: str) -> None:
    """Add `--depth`."""
    names = f"{', '.join(CHOICES[:-1])} or {CHOICES[-1]}"
    parser.add_argument("--depth", default=default, metavar="RULE", help=f"{names} (default: {default})")


def warn_of_spb(*rules: str | None) -> None:
    """Say once on standard error what depth rules may cost that stop backward passes early; None is no rule."""
    from jigsaw_opt.cli.output import note
    from jigsaw_opt.text import named

    if bent := [rule for rule in dict.fromkeys(rules) if rule not in (None, "full")]:
        told = f"depth rule {named(bent)}: workers stop backward passes early, so accuracy may fall"
        note(f"{told}; see docs/spb-learning.md")


def warn_of_policies(policies: Sequence[str]) -> None:
    """Say the same of policies of the simulation, with their options, that choose such a rule."""
    from jigsaw_opt.scheduling.policy import choose

    warn_of_spb(*(choose(policy)[1].get("depth") for policy in policies))
