"""Arguments of a scheduler as values of JSON, so that entries are replayed with those that they were decided with."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from jigsaw_opt.documents.decoding import made
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.rules.keyed import plain
from jigsaw_opt.scheduling import LiveScheduler
from jigsaw_opt.scheduling.performance.kinds import performance_for
from jigsaw_opt.scheduling.plain import Plain


def recorded(cluster: Cluster, models: Mapping[str, Model] | None, **others: Any) -> Plain:
    """Return arguments as a service keeps them; `**others`: performance and speeds in words, and what is plain."""
    return {"cluster": plain(cluster, flat=True), "models": plain(models, flat=True) if models else None, **others}


def scheduler_of(arguments: Plain, **own: Any) -> LiveScheduler:
    """Return a scheduler of recorded arguments; `**own`: its journal and clock."""
    given = dict(arguments)
    cluster, trees, kind, speeds = (given.pop(name) for name in ("cluster", "models", "performance", "speeds"))
    models = trees and {name: made(Model, tree) for name, tree in trees.items()}
    given["performance"] = partial(performance_for, kind, models=models, speeds=speeds)
    return LiveScheduler(made(Cluster, cluster), **given, **own)
