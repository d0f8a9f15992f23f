"""Numbers by which the edges of a graph name its nodes."""

from __future__ import annotations

from typing import Any

from jigsaw_opt.problem.rules.report import Report

__all__ = ["check_references"]


def check_references(tree: dict[str, Any], report: Report) -> frozenset[int]:
    """Note every node whose `id` stands already, and every end of an edge that is no node."""
    known: set[int] = set()
    for at, node in enumerate(tree["nodes"]):
        if node["id"] in known:
            report.add(((("$", "nodes"), at), "id"), f"duplicate node {node['id']}", code="duplicate-name")
        known.add(node["id"])
    for at, edge in enumerate(tree["edges"]):
        for key in ("sourceId", "destId"):
            if edge[key] not in known:
                report.add(((("$", "edges"), at), key), f"no node has the id {edge[key]}", code="unknown-name")
    return frozenset(known)
