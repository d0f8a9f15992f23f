"""How large an instance is made at most, whoever asks for it."""

from __future__ import annotations

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.workload import MOST_GPUS

__all__ = ["require_size"]


def require_size(gpus: int, workers: int = 0) -> None:
    """Refuse what would be made with more GPUs or workers than memory is likely to hold."""
    if max(gpus, workers) > MOST_GPUS:
        asked = f"{gpus:,} GPUs" + (f" and {workers:,} workers" if workers else "")
        raise UsageError(
            f"an instance is made with {MOST_GPUS:,} GPUs and as many workers at most, not {asked}", code="too-large"
        )
