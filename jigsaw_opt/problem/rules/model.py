"""Rules for a model that the schema cannot state (specification: models)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from jigsaw_opt.problem.rules.report import Place, Report, quoted
from jigsaw_opt.problem.rules.unchecked import check_unique, dict_at, list_at, names_of

__all__ = ["check_model"]

Json = dict[str, Any]


def check_model(model: Json, place: Place, report: Report) -> None:
    """Report what is wrong with a model besides its structure, which may be broken."""
    segments = list_at(model, "segments")
    check_unique(names_of(segments, (place, "segments")), report)
    if segments:
        _check_levels(model.get("levels"), len(segments), (place, "levels"), report)
        _check_times(segments, (place, "segments"), report)
        _check_cuts(model, len(segments), (place, "executor"), report)


def _check_cuts(model: Json, segments: int, place: Place, report: Report) -> None:
    """Report a training that is not divided once between each two levels, at different modules."""
    cuts, levels = list_at(dict_at(model, "executor"), "cuts"), list_at(model, "levels")
    if "train" not in dict_at(model, "executor"):
        return
    depth = len(levels) or segments
    if len(cuts) != depth - 1:
        report.add(
            (place, "cuts"),
            f"must have {depth - 1} items, one fewer than the model has levels; has {len(cuts)}",
            code="wrong-count",
        )
    for index, name in enumerate(cuts):
        if name in cuts[:index]:
            report.add(((place, "cuts"), index), f"duplicate name {quoted(str(name))}", code="duplicate-name")


def _check_levels(levels: Any, segments: int, place: Place, report: Report) -> None:
    if not isinstance(levels, list | tuple) or not levels or any(type(level) is not int for level in levels):
        return
    for index, (low, high) in enumerate(pairwise(levels), 1):
        if high <= low:
            report.add((place, index), f"levels must rise strictly; {high} follows {low}", code="wrong-order")
    if levels[-1] != segments:
        report.add(
            place, f"the last level must be {segments}, the number of segments; is {levels[-1]}", code="mismatch"
        )


def _check_times(segments: list[Any], place: Place, report: Report) -> None:
    """Report forward times that add up to less than 1 on a type that all segments have in both tables."""
    tables = [dict_at(s, key) if isinstance(s, dict) else {} for s in segments for key in ("forward_us", "backward_us")]
    forward = tables[::2]
    for gpu_type in tables[0]:
        if all(gpu_type in table for table in tables) and all(table[gpu_type] == 0 for table in forward):
            report.add(
                place, f"the forward times on {quoted(gpu_type)} add up to 0; at least 1 is needed", code="out-of-range"
            )
