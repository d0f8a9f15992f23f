"""The kinds of performance model by name, each imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import signature
from pathlib import Path

from jigsaw_opt.errors import UsageError, not_together
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.model import Model
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
"""``module:function`` of each kind; the function takes source, cluster, and more of `performance_of` by name."""

FROM_TRACE = frozenset({"stages"})
"""Kinds whose figures stand in the trace itself."""
SPEEDS = "speeds of types of GPU are for performance seconds and stages"
"""What speeds are for, in words."""


def performance_of(
    kind: str,
    source: Path | None,
    cluster: Cluster,
    stages: Mapping[str, StageTimes] | None = None,
    speeds: str = "",
    models: Mapping[str, Model] | None = None,
) -> Performance:
    """Return the performance model of a kind.

    `source`: the file or folder with its figures; None for none. `stages`: those of a trace. `speeds`: how fast types
    of GPU are against each other, as `speeds_of` reads it, for a kind that asks for them; empty for none. `models`:
    those of the instance that the cluster comes from.
    """
    require_kind(kind)
    module, _, function = KINDS[kind].partition(":")
    make: Callable[..., Performance] = getattr(import_module(module), function)
    given, known = {"stages": stages or {}, "speeds": speeds, "models": models}, signature(make).parameters
    taken = {name: part for name, part in given.items() if name in known}
    if speeds and "speeds" not in known:
        raise not_together("speeds", f"{SPEEDS}, not {kind!r}")
    return make(source, cluster, **taken)


def require_kind(kind: str) -> None:
    """Raise a `UsageError` where no performance model has that name."""
    if kind not in KINDS:
        message = f"no performance {kind!r}; {nearest(kind, sorted(KINDS))}"
        raise UsageError(message, code="unknown-name", path="performance")
