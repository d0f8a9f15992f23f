"""Certain causes of infeasibility, before any search."""

from __future__ import annotations

from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.solvers.result import Conflict

__all__ = ["certain_causes"]


def certain_causes(pieces: Pieces) -> tuple[Conflict, ...]:
    """Jobs that fit on no GPU type."""
    types = {server.gpu_type for server in pieces.cluster.servers}
    return tuple(
        Conflict("gpu_type", (job.name,), f"job {job.name} runs on none of the cluster's GPU types")
        for job in pieces.jobs
        if not types & set(job.gpu_types)
    )
