"""A sweep of simulations as one HTML page that needs no network: policies side by side, a measure at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from jigsaw_opt.text import counted, printable
from jigsaw_opt.views.measures import MEASURES
from jigsaw_opt.views.page import filled
from jigsaw_opt.views.policy_words import described
from jigsaw_opt.views.sweep_words import compared, verdicts

__all__ = ["sweep_html"]

Row: TypeAlias = Mapping[str, Any]
_FIRST = ("mean_completion_h", "p95_completion_h", "mean_waiting_h", "makespan_h", "cluster_efficiency")
"""Measures that stand first in the list; the first of them that there is ranks the policies."""
_MORE_IS_BETTER = frozenset(
    {"cluster_efficiency", "utilisation", "useful_gpu_hours", "availability", "background_gpu_hours"}
)
_NEITHER = frozenset({"jobs", "foreground_jobs", "rounds", "gpu_hours", "mean_gpu_hours"})


def sweep_html(rows: Sequence[Mapping[str, Any]], assumed: Iterable[tuple[str, str]] = ()) -> str:
    """Return the page: each workload's policies, their means over seeds, 95 % intervals, what was assumed.

    Names from workloads are data to the page and never markup.

    `rows`: the rows as `jigsaw simulate --sweep` keeps them: with measures, or with an ``error``.
    """
    known = [key for key in MEASURES if any(row.get(key) is not None for row in rows)]
    ordered = [key for key in _FIRST if key in known] + [key for key in known if key not in _FIRST]
    groups: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for row in rows:
        groups.setdefault(row["workload"], {}).setdefault(row["policy"], []).append(row)
    workloads = [{"name": printable(name), "policies": _policies(own, ordered)} for name, own in groups.items()]
    first = next((key for key in _FIRST if key in known), "")
    standings = [(name, compared(own, first, _sign(first))) for name, own in groups.items() if first]
    data = {
        "verdicts": [*verdicts(first, standings)],
        "about": f"{counted(len(rows), 'simulation')} of {counted(len(groups), 'workload')}",
        "workloads": workloads,
        "measures": {key: {**MEASURES[key]._asdict(), "better": _better(key)} for key in ordered},
        "policies": described(dict.fromkeys(row["policy"] for row in rows)),
        "assumed": [(printable(name), printable(text)) for name, text in assumed],
    }
    return filled("sweep.html", "simulations side by side", data)


def _sign(key: str) -> int:
    """Return 1 for a measure of which less is better, -1 where more is, 0 where neither is."""
    return {"less": 1, "more": -1, "": 0}[_better(key)]


def _better(key: str) -> str:
    return "" if key in _NEITHER else "more" if key in _MORE_IS_BETTER else "less"


def _policies(own: Mapping[str, Sequence[Row]], measures: Sequence[str]) -> list[dict[str, object]]:
    """Return each policy with its mean of each measure, and the change from the best mean, paired by seed."""
    figures: dict[str, dict[str, dict[str, object]]] = {policy: {} for policy in own}
    for key in measures:
        for policy, (mean, best, change) in compared(own, key, _sign(key)).items():
            told = {"best": best, "change": None if change is None else change.plain()}
            figures[policy][key] = {**mean.plain(), **told}
    errors = {policy: next((row["error"] for row in rows if row.get("error")), "") for policy, rows in own.items()}
    return [
        {"policy": printable(policy), "figures": figures[policy], "error": printable(errors[policy])} for policy in own
    ]
