"""The kinds of performance model by name, each imported when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.workload import StageTimes
from jigsaw_opt.scheduling.performance.protocol import Performance
from jigsaw_opt.text import nearest

__all__ = ["FROM_TRACE", "KINDS", "performance_of", "require_kind"]

KINDS = {
    "epochs": "jigsaw_opt.scheduling.performance.epochs:epochs",
    "goodput": "jigsaw_opt.scheduling.performance.goodput:goodput",
    "profiled": "jigsaw_opt.scheduling.performance.profiled:profiled",
    "seconds": "jigsaw_opt.scheduling.performance.seconds:seconds",
    "table": "jigsaw_opt.scheduling.performance.table:table",
    "stages": "jigsaw_opt.scheduling.performance.stages:stages",
}
"""``module:function`` of each kind; the function has the parameters of `performance_of` but the first."""

FROM_TRACE = frozenset({"stages"})
"""Kinds whose figures stand in the trace itself."""


def performance_of(
    kind: str, source: Path | None, cluster: Cluster, stages: Mapping[str, StageTimes] | None = None
) -> Performance:
    """The performance model of a kind.

    Parameters
    ----------
    kind
        A name in `KINDS`.
    source
        The file or folder with its figures; None for none.
    cluster
        The cluster on whose GPUs jobs run.
    stages
        Stage times that stand in the trace.

    Raises
    ------
    UsageError
        There is no such kind, or it needs another source.
    InvalidInputError
        With everything that is wrong in the source.
    """
    require_kind(kind)
    module, _, function = KINDS[kind].partition(":")
    made: Performance = getattr(import_module(module), function)(source, cluster, stages or {})
    return made


def require_kind(kind: str) -> None:
    """Raise a `UsageError` where no performance model has that name."""
    if kind not in KINDS:
        raise UsageError(f"no performance {kind!r}; {nearest(kind, sorted(KINDS))}")
