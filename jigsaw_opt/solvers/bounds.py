"""Combinatorial lower bounds."""

from __future__ import annotations

from typing import NamedTuple

from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.problem.pieces import PieceGraph, Pieces

__all__ = ["Bound", "lower_bound"]


class Bound(NamedTuple):
    """A proven lower bound on the objective and what proves it."""

    value: int
    reason: str


def lower_bound(pieces: Pieces) -> Bound:
    """Best of the combinatorial bounds (first version: critical path and GPU work)."""
    spans = [job.release_us + job.iterations * _iteration_us(job) for job in pieces.jobs]
    if pieces.objective == "weighted_completion":
        return Bound(sum(j.weight * s for j, s in zip(pieces.jobs, spans, strict=True)), "critical paths")
    longest = max(range(len(spans)), key=spans.__getitem__)
    work = ceil_div(sum(map(_work_us, pieces.jobs)), pieces.cluster.gpu_count)
    path = Bound(max(1, spans[longest]), f"critical path of job {pieces.jobs[longest].name}")
    return max(path, Bound(work, "GPU work"), key=lambda bound: bound.value)


def _iteration_us(job: PieceGraph) -> int:
    return min((table[-1] for table in job.blocks[0].duration_us.values()), default=0)


def _work_us(job: PieceGraph) -> int:
    levels = job.rule.multiset or (*(1,) * (job.slots - 1), job.levels)
    tables = job.blocks[0].duration_us.values()
    return job.iterations * sum(min((table[level - 1] for table in tables), default=0) for level in levels)
