"""Ranks of activities for list schedules, by rules that may be blurred by chance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from jigsaw_opt.solvers.activities.flat import FlatActivities
from jigsaw_opt.solvers.activities.memory import longest_tails

__all__ = ["PATIENCES", "Ranks", "Rule"]

Rule = str | float
"""A rule by its name, or the lag of one that puts off what takes memory."""
_NAMES: tuple[Rule, ...] = ("release", "leaves_last", "critical", "in_order", "by_job")
_LAGS: tuple[Rule, ...] = (2.0, 4.0, 8.0, 16.0)
_LEAST_LAG, _LAG_DOUBLINGS = 1.0, 5.0
PATIENCES = (0, 2, 4)
"""How long an activity is put off for one of better rank, in quarters of its duration."""


class Ranks:
    """Ranks of the same placed activities.

    Parameters
    ----------
    flat
        The activities.
    weights
        By job.
    reserve
        An order of all of them, each behind those that it waits for.

    Attributes
    ----------
    rules
        Rules to be tried.
    """

    def __init__(self, flat: FlatActivities, weights: Sequence[int], reserve: Sequence[int]) -> None:
        self._flat, self._tail, self._leaf = flat, longest_tails(flat.successors()), _leaves(flat)
        self._place = {activity: place for place, activity in enumerate(reserve)}
        self._grows = [
            sum(it[1] for it in opens) > sum(it[1] for it in closes)
            for opens, closes in zip(flat.opens, flat.closes, strict=True)
        ]
        self._job_rank = _jobs_by_ratio(flat, weights)
        growing = sum(self._grows)
        self._unit = sum(flat.duration_us) / max(1, growing)
        self.rules = _NAMES + (_LAGS if growing else ())

    def draw(self, random: Random) -> Rule:
        """A rule drawn by chance."""
        if any(self._grows) and random.random() < 0.7:
            return _LEAST_LAG * 2 ** (_LAG_DOUBLINGS * random.random())
        return random.choice(_NAMES)

    def rank(self, rule: Rule, random: Random | None = None) -> list[int]:
        """By activity its place among all of them, least first, by a rule; blurred where there is chance.

        Parameters
        ----------
        rule
            ``critical``: longest way to the end first. ``release``: so, but first what frees memory; of a pipeline this
            makes 1F1B. ``leaves_last``: so, but last what nothing waits for, which fills gaps. ``in_order``: as in the
            reserve. ``by_job``: job by job, most weight for its work first. A number: longest way first, but that of
            what takes memory is shorter by so many times the work there is for each such activity, and that of what
            nothing waits for by half of it; chance takes half to twice the lag.
        random
            Chance.
        """
        if isinstance(rule, float):
            return self._ranked(self._lagging(rule * 2 ** (2 * random.random() - 1) if random else rule))
        blur = random.choice((0.05, 0.2, 0.5)) if random else 0.0

        def key(activity: int) -> tuple[float, ...]:
            tail: float = -self._tail[activity] - self._flat.duration_us[activity]
            if random is not None:
                tail *= 1 + blur * (random.random() - 0.5)
            grows, leaf = self._grows[activity], self._leaf[activity]
            if rule == "in_order":
                return self._place[activity] * (1 + blur * random.random() if random else 1.0), activity
            if rule == "by_job":
                return self._job_rank[self._flat.job[activity]], grows, tail, activity
            if rule == "critical":
                return tail, activity
            return rule == "leaves_last" and leaf, grows, tail, activity

        return self._ranked(key)

    def _lagging(self, lag: float) -> Callable[[int], tuple[float, ...]]:
        """Longest way first, with what takes memory put off."""

        def key(activity: int) -> tuple[float, ...]:
            share = 1.0 if self._grows[activity] else 0.5 if self._leaf[activity] else 0.0
            return share * lag * self._unit - self._tail[activity] - self._flat.duration_us[activity], activity

        return key

    def _ranked(self, key: Callable[[int], tuple[float, ...]]) -> list[int]:
        found = [0] * len(self._tail)
        for place, activity in enumerate(sorted(range(len(found)), key=key)):
            found[activity] = place
        return found


def _leaves(flat: FlatActivities) -> list[bool]:
    """By activity, whether nothing of its iteration waits for it."""
    leaf = [True] * len(flat.duration_us)
    for before, after, _, periods in flat.arcs:
        if periods == 0 and flat.iteration[before] == flat.iteration[after]:
            leaf[before] = False
    return leaf


def _jobs_by_ratio(flat: FlatActivities, weights: Sequence[int]) -> list[int]:
    """By job, its place by work for each unit of its weight, least first."""
    work = [0] * len(weights)
    for activity, length in enumerate(flat.duration_us):
        work[flat.job[activity]] += length
    ratio = [amount / weight for amount, weight in zip(work, weights, strict=True)]
    by_ratio = sorted(range(len(ratio)), key=lambda job: ratio[job])
    return [by_ratio.index(job) for job in range(len(ratio))]
