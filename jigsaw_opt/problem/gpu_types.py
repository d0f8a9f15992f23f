"""Names of types of GPU, which every system spells in its own way."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["matching_types"]

_WORD = re.compile(r"[a-z0-9.]+")


def matching_types(asked: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return those of the `known` types that a name means, in their order.

    A name means the type of the same name in letters of any case. Where there is none, it means those whose words are
    all among its own, or the other way round: ``a100`` means ``NVIDIA-A100-SXM4-80GB``.

    Parameters
    ----------
    asked
        The name.
    known
        Names of types.
    """
    known = tuple(dict.fromkeys(known))
    if same := tuple(name for name in known if name.lower() == asked.lower()):
        return same
    words = set(_WORD.findall(asked.lower()))
    others = ((name, set(_WORD.findall(name.lower()))) for name in known)
    return tuple(name for name, own in others if words and own and (own <= words or words <= own))
