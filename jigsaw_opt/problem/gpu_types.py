"""Names of types of GPU, which every system spells in its own way."""

from __future__ import annotations

import re
from collections.abc import Iterable

_WORD = re.compile(r"[a-z0-9.]+")
_PART = re.compile(r"[0-9]+g\.[0-9]+gb")
"""The word of a part of a GPU (MIG), by its slices and its memory."""


def is_part(name: str) -> bool:
    """Return whether a type is a part of a GPU (MIG), as in ``a100_3g.20gb``."""
    return bool(_words(name)[1])


def matching_types(asked: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return those of the `known` types that a name means, in their order.

    A name means the type of the same name in letters of any case. Where there is none, it means those whose words are
    all among its own, or the other way round: ``a100`` means ``NVIDIA-A100-SXM4-80GB``. A name of whole GPUs never
    means parts of them (MIG); that of a part means whole GPUs only where no such part is known.
    """
    known = tuple(dict.fromkeys(known))
    if same := tuple(name for name in known if name.lower() == asked.lower()):
        return same
    words, part = _words(asked)
    found = [(name, other) for name in known for own, other in (_words(name),) if (own or other) and _agree(words, own)]
    of_part = [name for name, other in found if part and other == part]
    return tuple(of_part or [name for name, other in found if not other and words])


def _words(name: str) -> tuple[set[str], set[str]]:
    """Return the words of a name, and apart from them those of a part of a GPU."""
    words = set(_WORD.findall(name.lower()))
    part = set(filter(_PART.fullmatch, words))
    return words - part, part


def _agree(one: set[str], other: set[str]) -> bool:
    return one <= other or other <= one
