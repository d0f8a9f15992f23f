"""The kinds of performance model by name, each imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from pkgutil import resolve_name

from jigsaw_opt.errors import UsageError, not_together
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.workload import StageTimes
from jigsaw_opt.scheduling.performance.protocol import Performance
from jigsaw_opt.text import nearest

KINDS = ("epochs", "goodput", "profiled", "seconds", "stages", "table")
"""Names of modules beside this one, each with a function of its name that takes source, cluster, and by name more of
`performance_of`."""
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
    make: Callable[..., Performance] = resolve_name(f"jigsaw_opt.scheduling.performance.{kind}:{kind}")
    given, known = {"stages": stages or {}, "speeds": speeds, "models": models}, signature(make).parameters
    taken = {name: part for name, part in given.items() if name in known}
    if speeds and "speeds" not in known:
        raise not_together("speeds", f"{SPEEDS}, not {kind!r}")
    return make(source, cluster, **taken)


def require_kind(kind: str) -> None:
    """Raise a `UsageError` where no performance model has that name."""
    if kind not in KINDS:
        message = f"no performance {kind!r}; {nearest(kind, KINDS)}"
        raise UsageError(message, code="unknown-name", path="performance")
