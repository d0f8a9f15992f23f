"""Measured throughputs of Gavel (OSDI 2020): one JSON object.

By GPU type and kind of job, it has iterations a second alone (``"null"``) or with another kind on the same GPUs (its
own, and the other's). ``TYPE_unconsolidated`` is for GPUs spread over more servers than need be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from jigsaw_opt.documents.parsing import parsed
from jigsaw_opt.problem.rules.report import Report, quoted

_KIND = re.compile(r"\('(?P<model>[^']+)', (?P<gpus>[1-9][0-9]{0,5})\)")
_LEAST, _MOST = 1e-9, 1e9
"""Least and largest iterations a second that are taken."""


class GavelJobType(NamedTuple):
    """A type of job and its number of GPUs."""

    model: str
    gpus: int


Throughputs = Mapping[str, Mapping[GavelJobType, Mapping[GavelJobType | None, tuple[float, ...]]]]
"""Iterations a second by GPU type and kind: under None the one of the kind alone, else its own and its partner's."""


def read_throughputs(data: bytes | str, source: str = "$") -> Throughputs:
    """Read measured throughputs.

    Iterations a second by type of GPU, kind of job, and the kind beside it on the same GPUs (None for alone).

    `data`: the content of the file; text, or bytes in UTF-8.
    """
    found: dict[str, dict[GavelJobType, dict[GavelJobType | None, tuple[float, ...]]]] = {}

    def read(tree: dict[str, Any], report: Report) -> None:
        found.update((gpu, _of_type(table, gpu, report)) for gpu, table in tree.items())

    parsed(data, source, read)
    return found


def _of_type(table: Any, gpu: str, report: Report) -> dict[GavelJobType, dict[GavelJobType | None, tuple[float, ...]]]:
    if not isinstance(table, dict):
        report.add(("$", gpu), "the throughputs of a GPU type are an object by kind of job", code="wrong-type")
        return {}
    return {
        kind: _of_kind(rates, (gpu, key), report)
        for key, rates in table.items()
        if (kind := _kind(key, ("$", gpu), report)) is not None
    }


def _of_kind(rates: Any, where: tuple[str, str], report: Report) -> dict[GavelJobType | None, tuple[float, ...]]:
    place = (("$", where[0]), where[1])
    if not isinstance(rates, dict) or "null" not in rates:
        told = 'the throughputs of a kind of job are an object with "null", its throughput alone'
        report.add(place, told, code="wrong-type")
        return {}
    found: dict[GavelJobType | None, tuple[float, ...]] = {}
    for key, value in rates.items():
        other = None if key == "null" else _kind(key, place, report)
        numbers = value if isinstance(value, list) else [value]
        if len(numbers) == (1 if key == "null" else 2) and all(map(_is_rate, numbers)):
            found[other] = tuple(map(float, numbers))
        else:
            told = f"expected 0 or a number from {_LEAST:g} to {_MOST:g}, for a pair a list of two"
            report.add((place, key), told, code="out-of-range")
    return found


def _kind(key: str, place: Any, report: Report) -> GavelJobType | None:
    match = _KIND.fullmatch(key)
    if match is None:
        report.add(place, f"{quoted(key)} is no kind of job, as in ('ResNet-18 (batch size 64)', 2)", code="malformed")
        return None
    return GavelJobType(match["model"], int(match["gpus"]))


def _is_rate(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and (value == 0 or _LEAST <= value <= _MOST)
