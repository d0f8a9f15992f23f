"""The kinds of performance model by name, each imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from pkgutil import resolve_name

from jigsaw_opt.errors import UsageError, kind_of, not_together
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.workload import StageTimes
from jigsaw_opt.scheduling.performance.protocol import GOODPUT, Performance
from jigsaw_opt.text import nearest

KINDS = ("epochs", "goodput", "profiled", "seconds", "stages", "table")
"""Names of modules beside this one, each with a function of its name that takes source, cluster, and by name more of
`performance_of`."""
_FROM_TRACE = frozenset({"stages"})
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
    _require_kind(kind)
    make: Callable[..., Performance] = resolve_name(f"jigsaw_opt.scheduling.performance.{kind}:{kind}")
    given, known = {"stages": stages or {}, "speeds": speeds, "models": models}, signature(make).parameters
    taken = {name: part for name, part in given.items() if name in known}
    if speeds and "speeds" not in known:
        raise not_together("speeds", f"{SPEEDS}, not {kind!r}")
    return make(source, cluster, **taken)


def _require_kind(kind: str) -> None:
    """Raise a `UsageError` where no performance model has that name."""
    if kind not in KINDS:
        message = f"no performance {kind!r}; {nearest(kind, KINDS)}"
        raise UsageError(message, code="unknown-name", path="performance")


def performance_for(
    given: str | Performance | Callable[[Cluster], Performance],
    cluster: Cluster,
    models: Mapping[str, Model] | None,
    speeds: str,
    drawing: bool = False,
    stages: Mapping[str, StageTimes] | None = None,
    efficiency: str = GOODPUT,
) -> Performance | None:
    """Return the performance model; None where there is no server, or its figures stand in a trace still to be read.

    `models`: those of the instance that the cluster comes from. `drawing`: whether jobs get drawn models of it.
    `stages`: those of the trace, once it is read. `efficiency`: what an iteration below full depth counts for.
    """
    from jigsaw_opt.scheduling.performance.profiled import Profiled

    performance: Performance | None = None
    if isinstance(given, str):
        kind, _, source = given.partition(":")
        kind = kind or ("seconds" if models is None else Profiled.name)
        _require_kind(kind)
        if cluster.servers and (kind not in _FROM_TRACE or stages is not None):
            path = Path(source) if source else None
            performance = performance_of(kind, path, cluster, stages, speeds, models)
    elif cluster.servers:
        performance = _made(given, cluster)
    if drawing and cluster.servers and not isinstance(performance, Profiled):
        raise UsageError(
            "models are drawn from those of an instance, and there are none: make one, "
            "as by `jigsaw new --cluster 4x8:a100 --job a:resnet50:1:1 -o FILE`, and give it as the cluster",
            code="missing-option",
        )
    return performance.counting(efficiency) if isinstance(performance, Profiled) else performance


def _made(given: Performance | Callable[[Cluster], Performance], cluster: Cluster) -> Performance:
    performance: object = given if isinstance(given, Performance) else given(cluster)
    if not isinstance(performance, Performance):
        message = f"what makes a performance model for a cluster has made none: {kind_of(performance)}"
        raise UsageError(message, code="wrong-type", path="performance")
    if getattr(performance, "cluster", cluster) != cluster:
        raise UsageError("the performance model is of another cluster", code="mismatch", path="performance")
    return performance
