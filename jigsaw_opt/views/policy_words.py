"""What policies of the simulation say of themselves, for pages that compare them."""

from __future__ import annotations

from collections.abc import Iterable

from jigsaw_opt.scheduling.policy import find, names
from jigsaw_opt.system.plugins import loadable
from jigsaw_opt.text import printable

__all__ = ["described"]


def described(policies: Iterable[str]) -> list[tuple[str, str]]:
    """Return each installed policy among some, in words as in ``las:threshold=8``, once, and what it does."""
    asked, known = dict.fromkeys(words.partition(":")[0] for words in policies), set(names())
    return [
        (printable(policy.name), policy.display_name)
        for policy in loadable(find, [name for name in asked if name in known])
    ]
