"""The performance model of a simulation, from what was asked for and what stands in other inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from jigsaw_opt.errors import UsageError, kind_of
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.workload import StageTimes
from jigsaw_opt.scheduling.performance import Performance
from jigsaw_opt.scheduling.performance.kinds import FROM_TRACE, performance_of, require_kind
from jigsaw_opt.scheduling.performance.profiled import Profiled


def performance_for(
    given: str | Performance | Callable[[Cluster], Performance],
    cluster: Cluster,
    models: Mapping[str, Model] | None,
    speeds: str,
    drawing: bool = False,
    stages: Mapping[str, StageTimes] | None = None,
) -> Performance | None:
    """Return the performance model; None where there is no server, or its figures stand in a trace still to be read.

    `models`: those of the instance that the cluster comes from. `drawing`: whether jobs get drawn models of it.
    `stages`: those of the trace, once it is read.
    """
    performance: Performance | None = None
    if isinstance(given, str):
        kind, _, source = given.partition(":")
        kind = kind or ("seconds" if models is None else Profiled.name)
        require_kind(kind)
        if cluster.servers and (kind not in FROM_TRACE or stages is not None):
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
    return performance


def _made(given: Performance | Callable[[Cluster], Performance], cluster: Cluster) -> Performance:
    performance: object = given if isinstance(given, Performance) else given(cluster)
    if not isinstance(performance, Performance):
        message = f"what makes a performance model for a cluster has made none: {kind_of(performance)}"
        raise UsageError(message, code="wrong-type", path="performance")
    if getattr(performance, "cluster", cluster) != cluster:
        raise UsageError("the performance model is of another cluster", code="mismatch", path="performance")
    return performance
