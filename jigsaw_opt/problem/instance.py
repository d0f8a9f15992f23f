"""The instance: cluster, models, jobs, horizon and objective (specification: instance)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.model import Model

__all__ = ["Horizon", "Instance", "Objective"]

Horizon = Literal["finite", "cyclic"]
Objective = Literal["makespan", "weighted_completion", "period"]


@dataclass(frozen=True, slots=True)
class Instance:
    """What is to be scheduled. Fields as in the document ``jigsaw-instance/1``."""

    name: str
    cluster: Cluster
    models: Mapping[str, Model]
    jobs: tuple[Job, ...]
    horizon: Horizon = "finite"
    objective: Objective = "makespan"
