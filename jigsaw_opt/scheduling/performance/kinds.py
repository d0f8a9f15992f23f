"""The kinds of performance model by name, each imported when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from jigsaw_opt.errors import UsageError, not_together
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.workload import StageTimes
from jigsaw_opt.scheduling.performance.protocol import Performance
from jigsaw_opt.text import nearest

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
BY_SPEED = frozenset({"seconds", "stages"})
"""Kinds whose jobs run faster or slower by the speed of the type of GPU that they run on."""


def performance_of(
    kind: str, source: Path | None, cluster: Cluster, stages: Mapping[str, StageTimes] | None = None, speeds: str = ""
) -> Performance:
    """Return the performance model of a kind.

    `source`: the file or folder with its figures; None for none. `speeds`: how fast types of GPU are against each
    other, as `speeds_of` reads it, for a kind in `BY_SPEED`.
    """
    require_kind(kind)
    refuse_speeds(kind, speeds)
    module, _, function = KINDS[kind].partition(":")
    made: Performance = getattr(import_module(module), function)(
        source, cluster, stages or {}, *([speeds] if kind in BY_SPEED else [])
    )
    return made


def refuse_speeds(kind: str, speeds: str) -> None:
    """Refuse speeds of types of GPU for a kind of performance model that knows each type by itself.

    `speeds`: the speeds, in words; empty for none.
    """
    if speeds and kind not in BY_SPEED:
        message = f"speeds of types of GPU are for performance {' and '.join(sorted(BY_SPEED))}, not {kind!r}"
        raise not_together("speeds", message)


def require_kind(kind: str) -> None:
    """Raise a `UsageError` where no performance model has that name."""
    if kind not in KINDS:
        raise UsageError(
            f"no performance {kind!r}; {nearest(kind, sorted(KINDS))}", code="unknown-name", path="performance"
        )
