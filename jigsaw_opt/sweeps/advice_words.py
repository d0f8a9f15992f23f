"""Advice in words: the answer in a sentence, what was assumed, and all figures as values of JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from math import isfinite
from typing import Any

from jigsaw_opt.scheduling.policy import choose
from jigsaw_opt.simulation.request import Prepared
from jigsaw_opt.sweeps.advice import MEASURES, Advice, Advisor, Effect
from jigsaw_opt.sweeps.intervals import MeanInterval

__all__ = ["advice_document", "assumptions", "headline", "in_percent", "settings_that_matter"]

_PERFORMANCE = {
    "seconds": "a job runs as long as the trace says, on any GPUs that it asks for",
    "profiled": "paces follow from the models' segments and the exchange over their servers' links",
    "epochs": "measured step times of the placement, at the trace's batch size",
    "goodput": "measured step times, with batch and GPUs adapted",
    "table": "measured throughputs by model, type and number of GPUs",
    "stages": "stage times that the trace states",
}
_CONTENTION = {
    "exclusive": "exclusive: transfers are planned and leave each other alone",
    "fair": "fair: jobs that span servers divide the links among them, all the time",
}
_KNOW_LENGTHS = ("interleave", "jigsaw", "sjf_bco", "srtf")
_SHOWN = 3


def headline(advice: Advice) -> str:
    """The answer in a sentence."""
    name, _, unit = MEASURES[advice.measure].partition(", ")
    unit = unit and f" {unit}"
    if advice.best is None:
        return "No simulation has ended, so there is no answer yet."
    if advice.best == advice.today:
        return f"None of the policies has a better {name} than today's, {advice.today}."
    own = next(it for it in advice.policies if it.policy == advice.best)
    today = next(it for it in advice.policies if it.policy == advice.today)
    change, before = own.change.get(advice.measure), today.figures.get(advice.measure)
    if change is None or before is None:
        return f"The best {name} has {advice.best}: {own.figures[advice.measure].mean:.4g}{unit}."
    doubt = "" if change.clear or not isfinite(change.half) else ", which may be chance"
    after = own.figures[advice.measure].mean
    return (
        f"{advice.best} in place of {advice.today}: {name} {after:.4g}{unit} in place of {before.mean:.4g}{unit},"
        f" {in_percent(change)}{doubt}."
    )


def settings_that_matter(advice: Advice) -> tuple[Effect, ...]:
    """The settings with the greatest effects, at most three, without those that change nothing."""
    return tuple(effect for effect in advice.effects if effect.percent.mean)[:_SHOWN]


def in_percent(change: MeanInterval) -> str:
    """A change in per cent with its 95 % confidence interval, where there is one that says something."""
    if not change.half or not isfinite(change.half):
        return f"{change.mean:+.1f} %"
    low, high = change.mean - change.half, change.mean + change.half
    return f"{change.mean:+.1f} % (95 % between {low:+.1f} and {high:+.1f})"


def assumptions(advisor: Advisor, advice: Advice) -> Iterator[tuple[str, str]]:
    """What the figures rest on, each with its name."""
    base, read = advisor.base, advisor.prepared[advisor.seeds[0]]
    setting, jobs = read.setting, read.setting.workload.jobs
    hours = (jobs[-1].submit_us - jobs[0].submit_us) / 3_600_000_000
    yield "workload", f"{base.workload}: {len(jobs)} jobs, submitted within {hours:.4g} h"
    yield "cluster", f"{base.cluster}: {setting.gpu_count} GPUs on {len(setting.cluster.servers)} servers"
    kind = setting.performance.name
    yield "performance", f"{kind}: {_PERFORMANCE[kind]}" if kind in _PERFORMANCE else kind
    yield "models", _models(advisor, read)
    yield "contention", _CONTENTION.get(base.contention, base.contention)
    yield "restart", f"a start on other GPUs takes {base.restart_s:g} s without progress"
    yield "round", f"decisions every {base.round_s:g} s" if base.round_s else "decisions at once"
    yield "failures", base.failures or "none"
    yield "seeds", _seeds(advice, advisor)
    knowing = [words for words in advisor.policies if choose(words)[0].name in _KNOW_LENGTHS]
    if knowing:
        yield (
            "known lengths",
            f"{', '.join(knowing)} order jobs by the work they have, which a simulation knows exactly",
        )


def _models(advisor: Advisor, read: Prepared) -> str:
    names = sorted({job.model for job in read.setting.workload.jobs})
    if advisor.base.draw_models:
        return f"each job has one of {len(names)} models, drawn by the seed: the trace does not say which it had"
    if read.setting.performance.name == "seconds":
        return "none: jobs have durations only, so no policy gains by placement or sharing"
    return f"{len(names)} models, as the trace says"


def _seeds(advice: Advice, advisor: Advisor) -> str:
    seeds = ", ".join(map(str, advisor.seeds))
    if len(advisor.seeds) == 1:
        return f"{seeds} alone, so there are no intervals"
    intervals = [figure for it in advice.policies for figure in it.figures.values() if isfinite(figure.half)]
    if intervals and not any(figure.half for figure in intervals):
        return f"{seeds}: they change nothing here, as nothing is drawn, so intervals say nothing of other weeks"
    return f"{seeds}: intervals are Student's t at 95 % over them, of changes paired by seed"


def advice_document(advisor: Advisor, advice: Advice) -> dict[str, Any]:
    """Everything, as values of JSON."""
    return {
        "headline": headline(advice),
        "measure": advice.measure,
        "today": advice.today,
        "best": advice.best,
        "runs": advice.runs,
        "finished": advice.finished,
        "policies": [
            {
                "policy": it.policy,
                "seeds": it.seeds,
                "error": it.error or None,
                "figures": _plain(it.figures),
                "change_percent": _plain(it.change),
            }
            for it in advice.policies
        ],
        "settings": [_effect(it) for it in settings_that_matter(advice)],
        "changes": [_effect(it) for it in advice.all_effects],
        "assumed": dict(assumptions(advisor, advice)),
        "left_out": dict(advice.left_out),
        "request": {**advisor.base.about(), "seeds": advisor.seeds},
    }


def _plain(figures: Mapping[str, MeanInterval]) -> dict[str, dict[str, float | None]]:
    return {name: interval.plain() for name, interval in figures.items()}


def _effect(effect: Effect) -> dict[str, Any]:
    return {**asdict(effect), "percent": effect.percent.plain()}
