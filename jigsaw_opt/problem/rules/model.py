"""Rules for a model and for a layer profile that the schema cannot state (specification: models)."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

from jigsaw_opt.problem.measured.layers import parts_of
from jigsaw_opt.problem.rules.keyed import Keyed
from jigsaw_opt.problem.rules.report import Place, Report, check_unique, dict_at, list_at, names_of, quoted

Json = dict[str, Any]


def check_model(model: Json, place: Place, report: Report) -> None:
    """Report what is wrong with a model besides its structure, which may be broken."""
    segments = list_at(model, "segments")
    check_unique(names_of(segments, (place, "segments")), report)
    if segments:
        _check_levels(model.get("levels"), len(segments), (place, "levels"), report)
        _check_times(segments, (place, "segments"), report)
        _check_cuts(model, len(segments), (place, "executor"), report)
        _check_efficiency(model, len(list_at(model, "levels")) or len(segments), (place, "efficiency"), report)


def _check_cuts(model: Json, segments: int, place: Place, report: Report) -> None:
    """Report a training that is not divided once between each two levels, at different modules."""
    cuts, levels = list_at(dict_at(model, "executor"), "cuts"), list_at(model, "levels")
    if "train" not in dict_at(model, "executor"):
        return
    depth = len(levels) or segments
    if len(cuts) != depth - 1:
        told = f"must have {depth - 1} items, one fewer than the model has levels; has {len(cuts)}"
        report.add((place, "cuts"), told, code="wrong-count")
    for index, name in enumerate(cuts):
        if name in cuts[:index]:
            report.add(((place, "cuts"), index), f"duplicate name {quoted(str(name))}", code="duplicate-name")


def _check_efficiency(model: Json, depth: int, place: Place, report: Report) -> None:
    """Report numbers that are not one a bucket, and weights of which none counts."""
    known = model.get("efficiency")
    given = known.keyed() if isinstance(known, Keyed) else dict_at(model, "efficiency")
    for key in ("noise_scale", "weight"):
        count = len(list_at(given, key))
        if count and count != depth:
            told = f"must have {depth} items, as many as the model has levels; has {count}"
            report.add((place, key), told, code="wrong-count")
    weights = list_at(given, "weight")
    if weights and all(type(weight) is int and weight == 0 for weight in weights):
        report.add((place, "weight"), "at least one must be above 0", code="out-of-range")


def _check_levels(levels: Any, segments: int, place: Place, report: Report) -> None:
    if not isinstance(levels, list | tuple) or not levels or any(type(level) is not int for level in levels):
        return
    for index, (low, high) in enumerate(pairwise(levels), 1):
        if high <= low:
            report.add((place, index), f"levels must rise strictly; {high} follows {low}", code="wrong-order")
    if levels[-1] != segments:
        told = f"the last level must be {segments}, the number of segments; is {levels[-1]}"
        report.add(place, told, code="mismatch")


def _check_times(segments: list[Any], place: Place, report: Report) -> None:
    """Report forward times that add up to less than 1 on a type that all segments have in both tables."""
    tables = [dict_at(s, key) if isinstance(s, dict) else {} for s in segments for key in ("forward_us", "backward_us")]
    forward = tables[::2]
    for gpu_type in tables[0]:
        if all(gpu_type in table for table in tables) and all(table[gpu_type] == 0 for table in forward):
            told = f"the forward times on {quoted(gpu_type)} add up to 0; at least 1 is needed"
            report.add(place, told, code="out-of-range")


def check_layers(tree: dict[str, Any], place: Place, report: Report) -> None:
    """Report what is wrong with layers and edges besides their structure, which may be broken."""
    layers = list_at(tree, "layers")
    check_unique(names_of(layers, (place, "layers")), report)
    times = [_check_layer_times(layer, ((place, "layers"), at), report) for at, layer in enumerate(layers)]
    if times and times == [0] * len(times):
        report.add((place, "layers"), "the forward times add up to 0; at least 1 is needed", code="out-of-range")
    if layers and tree.get("edges") is not None:
        _check_edges(list_at(tree, "edges"), len(layers), (place, "edges"), report)


def _check_layer_times(layer: Any, place: Place, report: Report) -> Any:
    """Report a part of the backward pass that is longer than all of it, and times outside of their range.

    Return the time of the forward pass.
    """
    if not isinstance(layer, dict):
        return None
    for key in ("forward", "backward"):
        time, ends = layer.get(f"{key}_us"), list_at(layer, f"{key}_range_us")
        known = len(ends) == 2 and all(type(one) is int for one in (time, *ends))
        if known and sorted((ends[0], time, ends[1])) != [ends[0], time, ends[1]]:
            told = f"must hold {key}_us, which is {time}; is from {ends[0]} to {ends[1]}"
            report.add((place, f"{key}_range_us"), told, code="contradiction")
    whole, part = layer.get("backward_us"), layer.get("weight_us")
    if type(whole) is int and type(part) is int and part > whole:
        wrong = f"must be at most backward_us, which is {whole}; is {part}"
        report.add((place, "weight_us"), wrong, code="out-of-range")
    return layer.get("forward_us")


def _check_edges(edges: list[Any], layers: int, place: Place, report: Report) -> None:
    """Report edges that do not join two layers each, once, that form a cycle, or that do not join all."""
    before: dict[int, set[int]] = {}
    joined: list[tuple[int, int]] = []
    for at, edge in enumerate(edges):
        ends = edge if isinstance(edge, list | tuple) else ()
        if len(ends) != 2 or any(type(end) is not int or end < 0 for end in ends):
            continue  # which the schema has told
        tail, head = ends
        for side, end in enumerate(ends):
            if end >= layers:
                told = f"no layer has the number {end}; there are {layers}, from 0"
                report.add(((place, at), side), told, code="unknown-name")
        if tail in before.setdefault(head, set()):
            report.add((place, at), f"duplicate edge from {tail} to {head}", code="duplicate-name")
        before[head].add(tail)
        joined += [(tail, head)] if max(ends) < layers else []
    if len(joined) == len(edges) and len(parts := parts_of(layers, joined)) > 1:
        wrong = f"the layers are in {len(parts)} parts that no edge joins, as numbers {parts[0][0]} and {parts[1][0]}"
        report.add(place, wrong, "each part is a model of its own", code="unsupported")
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        report.add(place, f"there is a cycle: {', '.join(map(str, error.args[1]))}", code="cycle")
