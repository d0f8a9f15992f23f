"""Programs of Gavel and Sia as other systems have written them down, with their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jigsaw_opt.formulations.gavel import SharedCluster
from jigsaw_opt.formulations.sia_round import SiaRound


def gavel_cluster(document: Mapping[str, Any]) -> SharedCluster:
    """The cluster of a document with ``cluster_spec`` and ``jobs``, as in the shared programs."""
    kinds = sorted(document["cluster_spec"])
    jobs = document["jobs"]

    def column(of: Callable[[Mapping[str, Any]], float]) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array([of(job) for job in jobs], dtype=float)

    return SharedCluster(
        throughput=np.array([[job["thr"][kind] for kind in kinds] for job in jobs]),
        gpus=column(lambda job: job["scale_factor"]).astype(np.int64),
        capacity=np.array([document["cluster_spec"][kind] for kind in kinds]),
        steps=column(lambda job: job["num_steps"]),
        priority=column(lambda job: job["priority"]),
    )


def bisected_duration(least: float) -> float:
    """Return the duration in seconds at which Gavel's own bisection ends, given the least possible duration.

    It halves 100 s to 10^6 s (the next range up to ten times as much where that is too short) until the ends are within
    5 %, and takes the upper end.
    """
    found, first, last = None, 100.0, 1_000_000.0
    while found is None:
        low, high = first, last
        while 1.05 * low < high:
            middle = (low + high) / 2
            if middle >= least:
                high = found = middle
            else:
                low = middle
        first, last = last, 10 * last
    return found


def sia_round(document: Mapping[str, Any]) -> SiaRound:
    """The program of a document of kind ``sia_one_round``: costs are given, weights apply to them, not to idle jobs."""
    cost = np.array(document["cost"], dtype=float) * np.array(document["weights"], dtype=float)[:, None]
    gpus = np.array(document["configs_gpus"], dtype=np.int64)
    capacity = np.array(document["capacity"], dtype=np.int64)
    return SiaRound(cost, gpus, capacity, np.full(len(cost), float(document["lambda_n"])))
