"""Advice in words: the answer in a sentence, what was assumed, and all figures as values of JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from math import isfinite
from typing import Any

from jigsaw_opt.scheduling.policies import RECORDED
from jigsaw_opt.scheduling.policy import choose
from jigsaw_opt.simulation.engine.recorded import most_gpus
from jigsaw_opt.sweeps.advice import MEASURES, Advice, Advisor, Effect
from jigsaw_opt.sweeps.assumptions import assumptions, efficiency_told, knows_lengths, seeds_told
from jigsaw_opt.sweeps.intervals import MeanInterval
from jigsaw_opt.sweeps.job_times import JobChanges
from jigsaw_opt.text import agreeing, counted

_SHOWN = 3
_WAITING = ("mean_waiting_h", "median_waiting_h")
_IN_USE = ("fifo", "backfill", "multifactor", "priority", "kueue")
"""Policies that clusters run: they know no more of jobs than what users say."""
_ALL = 100.0
"""Per cent: no measure is below 0, so none falls by more."""


def headline(advice: Advice) -> str:
    """Return the answer in a sentence."""
    name, _, unit = MEASURES[advice.measure].partition(", ")
    unit = unit and f" {unit}"
    if advice.best is None:
        return "No simulation has ended, so there is no answer yet."
    others = [policy for policy in advice.policies if policy.policy != advice.today and policy.seeds]
    if not others:
        return f"Nothing was compared with {advice.today}, so there is no answer."
    today = next(policy for policy in advice.policies if policy.policy == advice.today)
    before = today.figures.get(advice.measure)
    if advice.best == advice.today:
        next_best = others[0].figures.get(advice.measure)
        told = before and next_best and _proves_nothing(advice, before.mean, next_best.mean, unit)
        none = f"{others[0].policy} has no" if len(others) == 1 else "None of the policies has a"
        return f"{told or ''}{none} better {name} than today's, {advice.today}."
    own = next(policy for policy in advice.policies if policy.policy == advice.best)
    change = own.change.get(advice.measure)
    if change is None or before is None:
        return f"The best {name} has {advice.best}: {own.figures[advice.measure].mean:.4g}{unit}."
    after = own.figures[advice.measure].mean
    return _proves_nothing(advice, before.mean, after, unit) + (
        f"{with_knowledge(advice.best)} in place of {advice.today}: {name} {after:.4g}{unit} in place of"
        f" {before.mean:.4g}{unit}, {in_percent(change)}{doubt(change)}.{_otherwise(advice, unit)}"
    )


def with_knowledge(policy: str) -> str:
    """Return a policy in words, with what it knows where nobody does outside a simulation."""
    return f"{policy} (which knows the lengths of jobs)" if knows_lengths(policy) else policy


def _proves_nothing(advice: Advice, before: float, after: float, unit: str) -> str:
    """Return that a change proves nothing where the simulation errs by more than half of it; else nothing."""
    nearest = _nearest_to_record(advice)
    if nearest is None:
        return ""
    _, (simulated, *_), (truth, *_) = nearest
    error, gain = abs(simulated - truth), abs(after - before)
    is_time = bool(unit)
    if not is_time:  # compared in parts of what each is of
        error, gain = error / max(truth, simulated, 1e-9), gain / max(before, after, 1e-9)
    if 2 * error <= gain or not error:
        return ""
    told = f"{error:.4g} h in the mean waiting, and the change is {gain:.4g}{unit}"
    told = told if is_time else f"{error:.0%} in the mean waiting, and the change is {gain:.0%}"
    return f"This proves nothing: the simulation misses the record by {told}. "


def _nearest_to_record(advice: Advice) -> tuple[str, list[float], list[float]] | None:
    """Return the simulated policy nearest to the record with its mean and median waiting, and those of the record.

    Of the policies that clusters run the one counts whose mean waiting is the nearest; of all, where none was compared.
    None where nothing was recorded or simulated.
    """
    if advice.today != RECORDED.name:
        return None
    found = {policy.policy: [policy.figures.get(name) for name in _WAITING] for policy in advice.policies}
    waits = {words: [one.mean for one in own if one is not None] for words, own in found.items()}
    truth = waits.pop(advice.today)
    simulated = {words: own for words, own in waits.items() if own}
    known = {words: own for words, own in simulated.items() if choose(words)[0].name in _IN_USE} or simulated
    if not known or not truth:
        return None
    nearest = min(known, key=lambda words: abs(known[words][0] - truth[0]))
    return nearest, known[nearest], truth


def calibration(advisor: Advisor, advice: Advice) -> str:
    """Return a sentence on how far a simulation is from what the trace says happened; empty without a record."""
    if advice.today != RECORDED.name:
        return ""
    found = _nearest_to_record(advice)
    if found is None:
        return "Calibration: none, as no simulation has ended."
    nearest, (mean, median), truth = found
    setting = advisor.settings[advisor.seeds[0]]
    most = most_gpus(setting.workload)
    has = setting.gpu_count
    over = f" The record holds {most:,} GPUs at once, and the cluster has {has:,}." if most > has else ""
    return (
        f"Calibration: by the record jobs wait {truth[0]:.4g} h in the mean and {truth[1]:.4g} h in the median;"
        f" simulated under {nearest}, which is nearest to it, {mean:.4g} h and {median:.4g} h.{over}"
    )


def who_loses(advice: Advice) -> tuple[str, ...]:
    """Return what the best policy costs: restarts, whom it hits, who waits longest; none without one.

    Each is a line.
    """
    if advice.best in (None, advice.today):
        return ()
    lines = [_restarts(advice)]
    if (found := advice.job_changes) is not None:
        lines += [_later(advice, found) + _left_out(found), _waits(advice, found)]
    return tuple(lines)


def _restarts(advice: Advice) -> str:
    figures = {policy.policy: policy.figures for policy in advice.policies}
    counts = (figures[words].get("restarts") for words in (str(advice.best), advice.today))
    new, old = (0.0 if count is None else count.mean for count in counts)
    each = figures[str(advice.best)].get("mean_restarts")
    a_job = "" if each is None else f" ({each.mean:.2g} a job)"
    return f"Restarts: {advice.best} stops or moves jobs {new:,.0f} times{a_job}, {advice.today} {old:,.0f} times."


def _later(advice: Advice, found: JobChanges) -> str:
    barely = f", and {found.barely:,} more by no more than a round and a restart" if found.barely else ""
    first = f"Who loses: {found.later:,} of {counted(found.jobs, 'job')} end later than under {advice.today}{barely}"
    if not found.hit:
        return f"{first}."
    hit = sorted((size for size in found.sizes if size.hit), key=lambda size: -size.hit)[:_SHOWN]
    sizes = ", ".join(f"{size.hit:,} of the {size.jobs:,} with {_gpus(size.name)}" for size in hit)
    users = ", ".join(f"{user.name} ({user.hit:,} of {user.jobs:,})" for user in found.users[:_SHOWN] if user.hit)
    by_user = f"; by user {users}" if users else ""
    worst = (
        f"Hit worst are {counted(found.hit, 'job')}, a tenth of all at most, by {found.hit_later_h:.4g} h in the mean"
    )
    return f"{first}. {worst}: {sizes}{by_user}."


def _left_out(found: JobChanges) -> str:
    """Return how many jobs count neither as losers nor in waits, because no policy decides when they start."""
    held = counted(found.held, "job")
    return f" Left out of this and of all waits: {held} that something else held back." if found.held else ""


def _waits(advice: Advice, found: JobChanges) -> str:
    new, old = found.waits_after, found.waits_before
    most = ", ".join(f"{count:,} with {_gpus(name)}" for name, count in [*new.sizes.items()][:_SHOWN])
    of_these = f": {most}" if most else ""
    return (
        f"Without GPUs before and between their runs: one job in a hundred for {new.p99_h:.4g} h or more under"
        f" {advice.best} ({old.p99_h:.4g} h under {advice.today}){of_these}. The longest time is {new.longest_h:.4g} h,"
        f" of job {new.job!r} with {counted(new.gpus, 'GPU')}; under {advice.today} it is {old.longest_h:.4g} h, of job"
        f" {old.job!r}."
    )


def _gpus(size: str) -> str:
    """Return a class of sizes with its unit."""
    return f"{size} {agreeing(1 if size == '1' else 2, 'GPU', 'GPUs')}"


def _otherwise(advice: Advice, unit: str) -> str:
    """Return what today's policy comes to with another option, as a sentence after the answer."""
    if advice.otherwise is None:
        return ""
    mean = advice.otherwise.figures[advice.measure].mean
    change = advice.against_otherwise
    against = "" if change is None else f", against which {advice.best} changes {in_percent(change)}{doubt(change)}"
    return f" With another option, {advice.otherwise.policy}, today's policy has {mean:.4g}{unit}{against}."


def doubt(change: MeanInterval) -> str:
    """Return what is said behind a change that chance may have made; nothing where one run gives no interval."""
    return "" if change.clear or not isfinite(change.half) else ", which may be chance"


def settings_that_matter(advice: Advice) -> tuple[Effect, ...]:
    """Return the settings with the greatest effects, at most three, without those that change nothing."""
    return tuple(effect for effect in advice.effects if effect.percent.mean)[:_SHOWN]


def in_percent(change: MeanInterval) -> str:
    """Return a change in per cent with its 95 % confidence interval; `seeds_told` says why there is none."""
    if not isfinite(change.half) or not change.half:
        return f"{_signed(change.mean)} %"
    low, high = max(-_ALL, change.mean - change.half), change.mean + change.half
    return f"{_signed(change.mean)} % (95 % between {low:+.1f} and {high:+.1f})"


def _signed(percent: float) -> str:
    """Return a number with its sign and a decimal, or with one digit that counts where that would be 0."""
    return f"{percent:+.1g}" if 0 < abs(percent) < 0.05 else f"{percent:+.1f}"


def assumed(advisor: Advisor, advice: Advice) -> dict[str, str]:
    """Return what the figures rest on, each with its name."""
    found = dict(assumptions(advisor.settings[advisor.seeds[0]], advisor.policies))
    figures = (figure for policy in advice.policies for figure in policy.figures.values())
    found["efficiency"] = efficiency_told(advisor.settings[advisor.seeds[0]].efficiency, advice.raw_models)
    return {**found, "seeds": seeds_told(advisor.seeds, figures, advisor.draws)}


def advice_document(advisor: Advisor, advice: Advice) -> dict[str, Any]:
    """Return the whole advice as values of JSON."""
    return {
        "calibration": calibration(advisor, advice) or None,
        "headline": headline(advice),
        "who_loses": who_loses(advice),
        **{name: getattr(advice, name) for name in ("measure", "today", "best", "runs", "finished")},
        "policies": [
            {
                "policy": policy.policy,
                "knows_lengths": knows_lengths(policy.policy),
                "seeds": policy.seeds,
                "error": policy.error or None,
                "figures": _plain(policy.figures),
                "change_percent": {name: _plain_change(change) for name, change in policy.change.items()},
            }
            for policy in advice.policies
        ],
        "job_changes": None if advice.job_changes is None else asdict(advice.job_changes),
        "settings": [_effect(effect) for effect in settings_that_matter(advice)],
        "changes": [_effect(effect) for effect in advice.all_effects],
        "assumed": assumed(advisor, advice),
        "left_out": dict(advice.left_out),
        "request": {**advisor.words, "seeds": advisor.seeds},
    }


def _plain(figures: Mapping[str, MeanInterval]) -> dict[str, dict[str, float | None]]:
    return {name: interval.plain() for name, interval in figures.items()}


def _plain_change(change: MeanInterval) -> dict[str, float | None]:
    found = change.plain()
    low = found["low"]
    return found if low is None else {**found, "low": max(-_ALL, low)}


def _effect(effect: Effect) -> dict[str, Any]:
    return {**asdict(effect), "percent": _plain_change(effect.percent)}
