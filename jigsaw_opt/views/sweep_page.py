"""A sweep of simulations as one HTML page that needs no network: policies side by side, a measure at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jigsaw_opt.sweeps.intervals import MeanInterval
from jigsaw_opt.text import printable
from jigsaw_opt.views.measures import MEASURES
from jigsaw_opt.views.page import filled

__all__ = ["sweep_html"]

_FIRST = ("mean_completion_h", "p95_completion_h", "mean_waiting_h", "makespan_h", "cluster_efficiency")
"""Measures that stand first in the list."""
_MORE_IS_BETTER = frozenset(
    {"cluster_efficiency", "utilisation", "useful_gpu_hours", "availability", "background_gpu_hours"}
)
_NEITHER = frozenset({"jobs", "foreground_jobs", "rounds", "gpu_hours", "mean_gpu_hours"})


def sweep_html(rows: Sequence[Mapping[str, Any]]) -> str:
    """The page: every workload with its policies, their means over the seeds, and 95 % intervals.

    Names from workloads are data to the page and never markup.

    Parameters
    ----------
    rows
        As `jigsaw simulate --sweep` keeps them: with measures, or with an ``error``.
    """
    known = [key for key in MEASURES if any(row.get(key) is not None for row in rows)]
    ordered = [key for key in _FIRST if key in known] + [key for key in known if key not in _FIRST]
    groups: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for row in rows:
        groups.setdefault(row["workload"], {}).setdefault(row["policy"], []).append(row)
    workloads = [
        {"name": printable(name), "policies": [_policy(policy, own, ordered) for policy, own in policies.items()]}
        for name, policies in groups.items()
    ]
    measures = {key: {**MEASURES[key]._asdict(), "better": _better(key)} for key in ordered}
    data = {"rows": len(rows), "workloads": workloads, "measures": measures}
    return filled("sweep.html", "simulations side by side", data)


def _better(key: str) -> str:
    return "" if key in _NEITHER else "more" if key in _MORE_IS_BETTER else "less"


def _policy(name: str, rows: Sequence[Mapping[str, Any]], measures: Sequence[str]) -> dict[str, object]:
    figures = {}
    for key in measures:
        values = [row[key] for row in rows if row.get(key) is not None]
        if values:
            figures[key] = MeanInterval.of(values).plain()
    error = next((row["error"] for row in rows if row.get("error")), "")
    return {"policy": printable(name), "figures": figures, "error": printable(error)}
