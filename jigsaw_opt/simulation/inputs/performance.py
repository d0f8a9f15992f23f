"""The performance model of a simulation, from what was asked for and the models of an instance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from jigsaw_opt.errors import UsageError, kind_of
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.workload import Workload
from jigsaw_opt.scheduling.performance import Performance
from jigsaw_opt.scheduling.performance.kinds import FROM_TRACE, performance_of, refuse_speeds, require_kind
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.simulation.engine.setting import told


def performance_for(
    given: str | Performance | Callable[[Cluster], Performance],
    cluster: Cluster,
    models: Mapping[str, Model] | None,
    speeds: str,
    drawing: bool,
) -> Performance | None:
    """Return the performance model; None where its figures stand in the trace, which is to be read first.

    `models`: those of the instance that the cluster comes from. `drawing`: whether jobs get drawn models of it.
    """
    performance: Performance | None = None
    if not isinstance(given, str):
        refuse_speeds(str(told(given)), speeds)
        performance = _made(given, cluster)
    elif models is not None and given in ("", Profiled.name):
        refuse_speeds(Profiled.name, speeds)
        performance = Profiled(cluster, models)
    else:
        kind, source = _kind_and_source(given)
        if kind not in FROM_TRACE:
            performance = performance_of(kind or "seconds", source, cluster, speeds=speeds)
    if drawing and not isinstance(performance, Profiled):
        raise UsageError(
            "models are drawn from those of an instance, and there are none: make one, "
            "as by `jigsaw new --cluster 4x8:a100 --job a:resnet50:1:1 -o FILE`, and give it as the cluster",
            code="missing-option",
        )
    return performance


def performance_from_trace(given: str, cluster: Cluster, workload: Workload, speeds: str) -> Performance:
    """Return the performance model whose figures stand in the trace."""
    return performance_of(*_kind_and_source(given), cluster, workload.stages, speeds)


def require_words(given: object) -> None:
    """Raise a `UsageError` where words name no kind of performance model."""
    if isinstance(given, str) and given:
        require_kind(_kind_and_source(given)[0])


def _made(given: Performance | Callable[[Cluster], Performance], cluster: Cluster) -> Performance:
    performance: object = given if isinstance(given, Performance) else given(cluster)
    if not isinstance(performance, Performance):
        message = f"what makes a performance model for a cluster has made none: {kind_of(performance)}"
        raise UsageError(message, code="wrong-type", path="performance")
    if getattr(performance, "cluster", cluster) != cluster:
        raise UsageError("the performance model is of another cluster", code="mismatch", path="performance")
    return performance


def _kind_and_source(text: str) -> tuple[str, Path | None]:
    kind, _, source = text.partition(":")
    return kind, Path(source) if source else None
