"""Reading what stands under `shape` in an instance (specification: task-graph-jobs)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jigsaw_opt.problem.rules.keyed import trusted
from jigsaw_opt.problem.task_graph import Edge, MemoryInterval, Slot, TaskGraph, TaskGraphBlock, TaskGraphTransfer

__all__ = ["decode_task_graph"]

Json = dict[str, Any]


def decode_task_graph(tree: Json) -> TaskGraph:
    """Return a task graph from what stands under ``shape``, known to be right."""
    return trusted(
        TaskGraph,
        slots=tuple(trusted(Slot, **slot) for slot in tree["slots"]),
        blocks=tuple(_block(**block) for block in tree["blocks"]),
        transfers=tuple(_transfer(**transfer) for transfer in tree.get("transfers", ())),
        edges=tuple(_edge(*edge) for edge in tree.get("edges", ())),
        barrier=tree.get("barrier", "none"),
        holds=tuple(_hold(**hold) for hold in tree.get("holds", ())),
    )


def _block(slot: str = "", slots: Sequence[str] = (), **others: Any) -> TaskGraphBlock:
    return trusted(TaskGraphBlock, slots=tuple(slots) or (slot,), **others)


def _transfer(among: Sequence[str] = (), **others: Any) -> TaskGraphTransfer:
    source, target = others.pop("from", None), others.pop("to", None)
    return trusted(TaskGraphTransfer, source=source, target=target, among=tuple(among), **others)


def _edge(before: str, after: str, lag: int = 0) -> Edge:
    return trusted(Edge, before=before, after=after, lag=lag)


def _hold(**others: Any) -> MemoryInterval:
    return trusted(MemoryInterval, start=others.pop("from"), end=others.pop("to"), **others)
