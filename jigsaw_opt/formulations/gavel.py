"""Gavel's policies as linear programs: which share of its time each job spends on each GPU type.

Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads", OSDI'20, section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jigsaw_opt.formulations.linear import Entries, Floats, Integers, LinearProgram, ProgramBuilder


@dataclass(frozen=True, slots=True)
class SharedCluster:
    """Jobs that share a cluster in time; each always runs on as many GPUs as it asks for, all of one type.

    `throughput`: iterations a second of each job on each GPU type, ``(jobs, types)``; every job runs on some type.
    `gpus`: GPUs that each job asks for. `steps`: iterations that each job has left. `priority`: weight of each job,
    above 0.
    """

    throughput: Floats
    gpus: Integers
    capacity: Integers
    steps: Floats
    priority: Floats

    def equal_share(self) -> Floats:
        """Return the throughput of each job if each GPU type were given to all jobs in equal parts of the time.

        The jobs' parts are scaled so that a job's time adds up to 1, whatever the GPUs there are.
        """
        import numpy as np

        share: Floats = self.throughput @ (self.capacity / np.sum(self.capacity))
        return share

    def alone_s(self) -> float:
        """Return the seconds of the job that takes longest alone, each on the GPU type that suits it best."""
        return float((self.steps / self.throughput.max(axis=1)).max())

    def allocation(self, values: Floats) -> Floats:
        """Return the shares of time ``(jobs, types)`` of a solution of one of the programs."""
        shares: Floats = values[: self.throughput.size].reshape(self.throughput.shape).clip(0.0, 1.0)
        return shares


def max_min_fairness(cluster: SharedCluster) -> LinearProgram:
    """Maximise the least progress ``s_i / w_i * sum_j T_ij x_ij / (throughput of the equal share)`` of a job."""
    gain = cluster.throughput * (cluster.gpus / (cluster.priority * cluster.equal_share()))[:, None]
    return _with_level(cluster, gain, level=[1.0] * len(gain))


def min_total_duration(cluster: SharedCluster) -> LinearProgram:
    """Minimise the time in which every job can end, as the greatest rate: ``sum_j T_ij x_ij >= steps_i / A * rate``.

    Gavel looks for the least duration by bisection; its inverse makes the program linear. The unit of time is A, the
    longest time of a job alone, so that the rate is between 0 and 1.
    """
    return _with_level(cluster, cluster.throughput, cluster.steps / cluster.alone_s())


def max_sum_throughput(cluster: SharedCluster) -> LinearProgram:
    """Maximise ``sum_ij T_ij x_ij``."""
    return _shares(cluster, -cluster.throughput).program()


Objective = Callable[[SharedCluster], LinearProgram]
OBJECTIVES: Mapping[str, Objective] = {
    "max_min": max_min_fairness,
    "makespan": min_total_duration,
    "max_sum": max_sum_throughput,
}
"""The three objectives by their names among a policy's options; every program minimises the negative."""


def _with_level(cluster: SharedCluster, gain: Floats, level: Any) -> LinearProgram:
    """Maximise one more column, the level: ``sum_j gain_ij x_ij >= level_i * level`` for every job."""
    import numpy as np

    jobs, types = gain.shape
    builder = _shares(cluster, np.zeros_like(gain))
    # The program minimises, so the level costs -1.
    (column,) = builder.add_columns([-1.0])
    job = np.arange(jobs)
    rows = np.concatenate([np.repeat(job, types), job])
    columns = np.concatenate([np.arange(gain.size), np.full(jobs, column)])
    values = np.concatenate([gain.ravel(), -np.asarray(level, dtype=float)])
    builder.add_rows(Entries(rows, columns, values), np.zeros(jobs), np.inf)
    return builder.program()


def _shares(cluster: SharedCluster, costs: Floats) -> ProgramBuilder:
    """Begin a program: a column a job and type for the share of time, rows for each job's time and each type's GPUs."""
    import numpy as np

    jobs, types = cluster.throughput.shape
    builder = ProgramBuilder()
    # A job has no time on a type on which it cannot run.
    column = builder.add_columns(costs.ravel(), upper=np.where(cluster.throughput > 0, 1.0, 0.0).ravel())
    owner, kind = (index.ravel() for index in np.indices((jobs, types)))
    builder.add_rows(Entries(owner, column, np.ones(jobs * types)), -np.inf, np.ones(jobs))
    builder.add_rows(Entries(kind, column, cluster.gpus[owner]), -np.inf, cluster.capacity)
    return builder
