"""Rules for a task graph that the schema cannot state (specification: task-graph-jobs)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from jigsaw_opt.problem.rules.family import Wait, check_family
from jigsaw_opt.problem.rules.report import (
    Names,
    Place,
    Report,
    all_names,
    check_unique,
    dict_at,
    list_at,
    names_of,
    quoted,
)

Json = dict[str, Any]
_SHOWN_OF_A_CYCLE = 8


def check_task_graph(shape: Json, place: Place, report: Report) -> None:
    """Report what is wrong with a task graph besides its structure, which may be broken."""
    slots, blocks, transfers = (list_at(shape, key) for key in ("slots", "blocks", "transfers"))
    check_unique(names_of(slots, (place, "slots")), report)
    operations = [*names_of(blocks, (place, "blocks")), *names_of(transfers, (place, "transfers"))]
    check_unique(operations, report)
    known = all_names(slots)
    for index, block in enumerate(blocks):
        _check_slots(_uses(block, ((place, "blocks"), index)), known, report)
    for index, transfer in enumerate(transfers):
        _check_slots(_uses(transfer, ((place, "transfers"), index)), known, report)
    _check_all_used(slots, blocks, (place, "slots"), report)
    named = (
        blocks
        and len(operations) == len(blocks) + len(transfers)
        and isinstance(shape.get("transfers", []), list | tuple)
    )
    edges = _check_edges(
        list_at(shape, "edges"),
        dict.fromkeys(name for _, name in operations) if named else None,
        (place, "edges"),
        report,
    )
    holds = list_at(shape, "holds")
    _check_ends(holds, all_names(blocks), all_names(transfers), (place, "holds"), report)
    sites = _sites(blocks, known or {})
    _check_sites(holds, sites, (place, "holds"), report)
    # A family is looked at where nothing is wrong with what it is compared with.
    if "family" in shape and named and len(sites) == len(blocks) and len(edges) == len(list_at(shape, "edges")):
        check_family(shape, dict_at(shape, "family"), list(known or ()), sites, edges, place, report)


def _uses(operation: Any, place: Place) -> list[tuple[Place, str]]:
    """Return the slots that a block or transfer names, each with its place."""
    found: list[tuple[Place, str]] = []
    for key in ("slots", "among"):
        if isinstance(operation, dict) and key in operation:
            listed = enumerate(list_at(operation, key))
            return [(((place, key), index), name) for index, name in listed if isinstance(name, str)]
    for key in ("slot", "from", "to"):
        value = operation.get(key) if isinstance(operation, dict) else None
        if isinstance(value, str):
            found.append(((place, key), value))
    return found


def _check_slots(uses: list[tuple[Place, str]], known: Names | None, report: Report) -> None:
    seen: set[str] = set()
    for place, name in uses:
        if known is not None and name and name not in known:
            report.add_misspelt(place, f"no slot is called {quoted(name)}", name, known)
        elif name in seen:
            report.add(place, f"slot {quoted(name)} stands here twice", code="duplicate-name")
        seen.add(name)


def _check_all_used(slots: list[Any], blocks: list[Any], place: Place, report: Report) -> None:
    at = [_uses(block, "") for block in blocks]
    if not at or not all(at):
        return
    used = {name for uses in at for _, name in uses}
    for index, slot in enumerate(slots):
        name = slot.get("name") if isinstance(slot, dict) else None
        if isinstance(name, str) and name not in used:
            report.add((place, index), f"no block runs on slot {quoted(name)}", code="empty")


def _check_edges(edges: list[Any], known: Names | None, place: Place, report: Report) -> Collection[Wait]:
    """Report what is wrong with edges, and return those that can be read."""
    first: dict[tuple[str, str, int], int] = {}
    for index, edge in enumerate(edges):
        if not isinstance(edge, list) or len(edge) not in (2, 3) or type([*edge, 0][2]) is not int:
            continue
        before, after, lag = edge[0], edge[1], [*edge, 0][2]
        if not isinstance(before, str) or not isinstance(after, str):
            continue
        for at, name in enumerate((before, after)):
            if known is not None and name and name not in known:
                message = f"no block or transfer is called {quoted(name)}"
                report.add_misspelt(((place, index), at), message, name, known)
        if first.setdefault((before, after, lag), index) != index:
            report.add((place, index), f"the same edge as edges[{first[before, after, lag]}]", code="duplicate-name")
    for cycle in _cycles([(before, after) for before, after, lag in first if lag == 0]):
        shown = [quoted(name) for name in cycle[:_SHOWN_OF_A_CYCLE]]
        shown.append(shown[0] if len(cycle) == len(shown) else f"... ({len(cycle)} operations)")
        report.add(place, f"edges with lag 0 form a cycle: {' -> '.join(shown)}", code="cycle")
    return first.keys()


def _cycles(edges: Sequence[tuple[str, str]]) -> Iterator[list[str]]:
    """Yield cycles that share no operation; at least one, if there is any."""
    after: defaultdict[str, list[str]] = defaultdict(list)
    for one, other in edges:
        after[one].append(other)
    waiting = Counter(other for _, other in edges)
    free = [name for name in after if not waiting[name]]
    while free:
        for name in after.get(free.pop(), ()):
            waiting[name] -= 1
            if not waiting[name]:
                free.append(name)
    # Whatever waits for ever waits for something that does, and so do those backwards from there.
    before = {other: one for one, other in edges if waiting[one] and waiting[other]}
    seen: set[str] = set()
    for name in before:
        path: dict[str, int] = {}
        while name not in seen:
            seen.add(name)
            path[name] = len(path)
            name = before[name]
        if name in path:
            yield list(path)[path[name] :][::-1]


def _check_ends(holds: list[Any], blocks: Names | None, transfers: Names | None, place: Place, report: Report) -> None:
    """Report ends of holds that are no blocks."""
    ends = ((((place, index), key), hold.get(key)) for index, hold in _objects(holds) for key in ("from", "to"))
    for where, name in ends:
        if blocks is None or not isinstance(name, str) or not name or name in blocks:
            continue
        if name in (transfers or ()):
            report.add(where, f"{quoted(name)} is a transfer; a hold is between blocks", code="wrong-type")
        else:
            report.add_misspelt(where, f"no block is called {quoted(name)}", name, blocks)


def _sites(blocks: list[Any], known: Names) -> dict[str, tuple[str, ...]]:
    """Return the slots of each block, where nothing is wrong with them."""
    found: dict[str, tuple[str, ...]] = {}
    for _, block in _objects(blocks):
        slots = tuple(name for _, name in _uses(block, ""))
        right = len(set(slots)) > 1 and "slot" not in block if "slots" in block else len(slots) == 1
        if right and isinstance(block.get("name"), str) and known.keys() >= set(slots):
            found[block["name"]] = slots
    return found


def _check_sites(holds: list[Any], sites: dict[str, tuple[str, ...]], place: Place, report: Report) -> None:
    """Report holds that do not say, or say too much of, where they are."""
    for index, hold in _objects(holds):
        ends: list[Any] = [hold.get("from"), hold.get("to")]
        if not all(isinstance(end, str) and sites.get(end) for end in ends):
            continue
        where, given = (place, index), hold.get("slot")
        if max(len(sites[end]) for end in ends) == 1:
            if "slot" in hold:
                report.add((where, "slot"), "is left out where both blocks have one slot", code="contradiction")
            elif sites[ends[0]] != sites[ends[1]]:
                told = f"blocks {quoted(ends[0])} and {quoted(ends[1])} are on different slots"
                report.add(where, told, code="contradiction")
        elif "slot" not in hold:
            report.add(where, 'missing key "slot", for one of its blocks has several slots', code="missing-field")
        elif isinstance(given, str):
            for end in dict.fromkeys(ends):
                if given not in sites[end]:
                    told = f"block {quoted(end)} does not take part in slot {quoted(given)}"
                    report.add((where, "slot"), told, code="mismatch")


def _objects(items: list[Any]) -> Iterator[tuple[int, Json]]:
    return ((index, item) for index, item in enumerate(items) if isinstance(item, dict))
