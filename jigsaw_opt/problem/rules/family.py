"""Rules for a task graph that states a family: its blocks, where they are, and what they wait for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from itertools import pairwise, product
from math import lcm
from typing import Any

from jigsaw_opt.problem.rules.report import Place, Report, quoted
from jigsaw_opt.problem.rules.structure import structure_of_part

Json = dict[str, Any]
Wait = tuple[str, str, int]
"""An operation, one that waits for it, and how many iterations later."""
Sites = Mapping[str, tuple[str, ...]]
"""The slots of each block."""


def check_family(
    shape: Json, family: Json, slots: Sequence[str], sites: Sites, edges: Collection[Wait], place: Place, report: Report
) -> None:
    """Report where a task graph differs from the family that it states; the rest of it has the right structure."""
    trial = Report()
    structure_of_part("family")(family, "$", trial)
    if trial.problems:
        return
    waits: Set[Wait] = {wait for wait in edges if wait[0] != wait[1]}
    linked = {name for wait in waits for name in wait[:2]}
    if "gpus_per_layer" in family:
        wanted, between = _burst(family["gpus_per_layer"], slots, sites, linked)
    else:
        _check_barrier(shape.get("barrier", "none"), "replicas" in family, (place, "barrier"), report)
        stages = family["replicas"] if "replicas" in family else [[slot] for slot in family["stages"]]
        batches = lcm(*map(len, stages)) if "replicas" in family else family["micro_batches"]
        kinds = "FBW" if family.get("split") else "FB"
        # Counting comes first: so few keys may imply more passes than there is time to go through.
        if (count := len(kinds) * batches * len(stages)) != len(sites):
            told = f"{len(stages)} stages and {batches} micro-batches have {count} blocks; there are {len(sites)}"
            report.add((place, "family"), told, code="wrong-count")
            return
        at = product(kinds, range(batches), enumerate(stages))
        wanted = {f"{kind}{batch}.{stage}": (copies[batch % len(copies)],) for kind, batch, (stage, copies) in at}
        between = _waits(len(stages), batches, kinds, family.get("in_flight"))
        waits = _without_transfers(waits, linked - sites.keys())
    for name, own in wanted.items():
        if sites.get(name) != own:
            told = f"the family has block {quoted(name)} on {', '.join(map(quoted, own))}"
            report.add((place, "blocks"), told, code="mismatch")
    for name in sorted(sites.keys() - wanted.keys()):
        report.add((place, "blocks"), f"{quoted(name)} is no block of the family", code="mismatch")
    for told, found in (("does not wait", between - waits), ("waits", waits - between)):
        for before, after, lag in sorted(found):
            later = f" of {lag} iterations before" if lag else ""
            report.add((place, "edges"), f"{quoted(after)} {told} for {quoted(before)}{later}", code="mismatch")


def _check_barrier(barrier: Any, overlaps: bool, place: Place, report: Report) -> None:
    if (barrier == "none") != overlaps:
        told = 'must be "none", for its iterations overlap' if overlaps else 'must be "slot" or "job" in a pipeline'
        report.add(place, told, code="contradiction")


def _waits(stages: int, batches: int, kinds: str, in_flight: int | None) -> Set[Wait]:
    """Return what passes of a pipeline wait for; `in_flight` is None where iterations do not overlap."""
    found = set[Wait]()
    for batch, stage in product(range(batches), range(stages)):
        last = stage + 1 == stages
        if in_flight is None or last:
            found |= {(f"{one}{batch}.{stage}", f"{other}{batch}.{stage}", 0) for one, other in pairwise(kinds)}
        if not last:
            found.add((f"F{batch}.{stage}", f"F{batch}.{stage + 1}", 0))
            found.add((f"B{batch}.{stage + 1}", f"B{batch}.{stage}", 0))
        if in_flight is not None and stage == 0:
            lag, later = divmod(batch + in_flight, batches)
            found.add((f"B{batch}.0", f"F{later}.0", lag))
    return found


def _burst(widths: Sequence[int], slots: Sequence[str], sites: Sites, linked: Set[str]) -> tuple[Sites, Set[Wait]]:
    """Return blocks and waits of a burst: ``A`` and ``F`` of each layer, then back ``B``, ``S`` and ``G``, in a line.

    Of the others than the passes ``F`` and ``B`` it has those that are there.
    """
    layers = range(len(widths))
    order = [f"{kind}{layer}" for layer in layers for kind in "AF"]
    order += [f"{kind}{layer}" for layer in reversed(layers) for kind in "BSG"]
    there = [name for name in order if name in linked or name in sites]
    # A layer that is wider than all slots together is on one that there is not.
    first = (*slots, "one more slot")
    passes = {f"{kind}{layer}": first[:width] for layer, width in enumerate(widths) for kind in "FB"}
    others = {name: sites[name] for name in there if name in sites and name not in passes}
    return passes | others, {(one, other, 0) for one, other in pairwise(there)}


def _without_transfers(waits: Set[Wait], transfers: Set[str]) -> Set[Wait]:
    """Return the waits among blocks, where a transfer between two of them makes the later one wait."""
    sources, targets = defaultdict[str, list[tuple[str, int]]](list), defaultdict[str, list[tuple[str, int]]](list)
    for before, after, lag in waits:
        sources[after].append((before, lag))
        targets[before].append((after, lag))
    found = {wait for wait in waits if transfers.isdisjoint(wait[:2])}
    for name in transfers:
        # One that nothing waits for, or that waits for nothing, is itself an end that no family has.
        ends = product(sources[name] or [(name, 0)], targets[name] or [(name, 0)])
        found |= {(before, after, one + other) for (before, one), (after, other) in ends}
    return found
