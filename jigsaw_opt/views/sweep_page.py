"""Sweeps of simulations, and advice that is made of one, as HTML pages that need no network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from jigsaw_opt.scheduling.performance.protocol import RAW
from jigsaw_opt.scheduling.policy import find, names
from jigsaw_opt.simulation.results.metrics import MEASURES, with_efficiency
from jigsaw_opt.sweeps.advice import MEASURES as ADVICE_MEASURES
from jigsaw_opt.sweeps.advice_words import doubt, in_percent
from jigsaw_opt.sweeps.intervals import MeanInterval
from jigsaw_opt.sweeps.simulations import raw_models_of
from jigsaw_opt.system.plugins import loadable
from jigsaw_opt.text import counted, named, printable
from jigsaw_opt.views.page import filled

Row: TypeAlias = Mapping[str, Any]
_FIRST = ("mean_completion_h", "p95_completion_h", "mean_waiting_h", "makespan_h", "cluster_efficiency")
"""Measures that stand first in the list; the first of them that there is ranks the policies."""
_MORE_IS_BETTER = frozenset(
    {"cluster_efficiency", "utilisation", "useful_gpu_hours", "availability", "background_gpu_hours"}
)
_NEITHER = frozenset({"jobs", "foreground_jobs", "partial_depth_jobs", "rounds", "gpu_hours", "mean_gpu_hours"})


def described(policies: Iterable[str]) -> list[tuple[str, str]]:
    """Return each installed policy among some, in words as in ``las:threshold=8``, once, and what it does."""
    asked, known = dict.fromkeys(words.partition(":")[0] for words in policies), set(names())
    return [
        (printable(policy.name), policy.display_name)
        for policy in loadable(find, [name for name in asked if name in known])
    ]


def advice_html(document: Mapping[str, Any]) -> str:
    """Return the page: the answer, policies with intervals, the settings that matter most, what was assumed.

    Names from the workload are data to the page and never markup.
    """
    assumed = document["assumed"]
    simulations = f"{document['finished']:,} of {counted(document['runs'], 'simulation')}"
    data = {
        **_printable(document),
        "about": printable(
            "; ".join([*(assumed[key] for key in ("workload", "cluster") if key in assumed), simulations])
        ),
        "measures": {
            key: with_efficiency(label, document["request"].get("efficiency", RAW), (), key)
            for key, label in ADVICE_MEASURES.items()
        },
        "meanings": {key: MEASURES[key].meaning for key in ADVICE_MEASURES},
        "described": described(policy["policy"] for policy in document["policies"]),
    }
    return filled("advice.html", f"advice for {document['request']['workload']}", data)


def _printable(value: Any) -> Any:
    """Return the same with every text printable."""
    match value:
        case str():
            return printable(value)
        case Mapping():
            return {printable(str(key)): _printable(one) for key, one in value.items()}
        case list() | tuple():
            return [_printable(one) for one in value]
    return value


class Standing(NamedTuple):
    """A policy among those of a workload, by one measure.

    `best`: whether no policy has a better mean. `change`: change from the first of the best policies in per cent,
    paired by seed; None for that one.
    """

    mean: MeanInterval
    best: bool
    change: MeanInterval | None


def compared(own: Mapping[str, Sequence[Mapping[str, Any]]], key: str, sign: int) -> dict[str, Standing]:
    """Return how the policies stand that have values of a measure.

    `sign`: 1 where less is better, -1 where more is, 0 where neither is: then the first policy stands for the best.
    """
    values = {policy: _by_seed(rows, key) for policy, rows in own.items()}
    means = {policy: MeanInterval.of([*found.values()]) for policy, found in values.items() if found}
    best = min(means, key=lambda policy: sign * means[policy].mean, default="")
    standings = {}
    for policy, mean in means.items():
        pairs = [(values[best][seed], value) for seed, value in values[policy].items() if seed in values[best]]
        change = MeanInterval.of_changes(pairs) if best != policy else None
        standings[policy] = Standing(mean, mean.mean == means[best].mean, change)
    return standings


def _by_seed(rows: Iterable[Mapping[str, Any]], key: str) -> dict[int, float]:
    return {row["seed"]: row[key] for row in rows if row.get(key) is not None}


def verdicts(measure: str, workloads: Sequence[tuple[str, Mapping[str, Standing]]]) -> Iterator[str]:
    """Yield a sentence a workload: the best policy, by how much, and whether chance would do the same."""
    for name, standings in workloads:
        if standings:
            where = f"{printable(name)}: " if len(workloads) > 1 else ""
            yield where + _verdict(measure, standings)


def _verdict(measure: str, standings: Mapping[str, Standing]) -> str:
    label, _, unit = ADVICE_MEASURES[measure].partition(", ")
    best = [policy for policy, standing in standings.items() if standing.best]
    others = [policy for policy, standing in standings.items() if not standing.best]
    least = standings[best[0]].mean.mean
    if not others:
        how = "have the same" if len(best) > 1 else "has no rival here:"
        return f"{named(best)} {how} {label}, {_amount(least, unit)}."
    told = f"{named(best)} {'have' if len(best) > 1 else 'has'} the best {label}, {_amount(least, unit)}"
    second = min(others, key=lambda policy: abs(standings[policy].mean.mean - least))
    mean, _, change = standings[second]
    told += f"; the next, {printable(second)}, has {_amount(mean.mean, unit)}"
    return f"{told}." if change is None else f"{told}, {in_percent(change)}{doubt(change)}."


def _amount(value: float, unit: str) -> str:
    return f"{value:.4g}{unit and f' {unit}'}"


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
        "measures": {
            key: {
                **MEASURES[key]._asdict(),
                "name": with_efficiency(MEASURES[key].name, rows[0].get("efficiency", RAW), raw_models_of(rows), key),
                "better": _better(key),
            }
            for key in ordered
        },
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
