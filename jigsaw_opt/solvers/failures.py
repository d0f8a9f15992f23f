"""What failures of parts of the cluster do to a plan, and the plans that are repaired after them: one call."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from jigsaw_opt.arguments import typed
from jigsaw_opt.checking.require import require_correct
from jigsaw_opt.errors import Problem, UsageError, argument
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.failure_repair import FailureRepair, repaired
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.resolve.failures import KINDS, FailureEffect, FailureEffects
from jigsaw_opt.solvers.resolve.remaining import RemainingWork, remaining_at
from jigsaw_opt.solvers.stop import interruptible
from jigsaw_opt.text import nearest


class Failure(NamedTuple):
    """A failure of one part or of two at once.

    `effect`: what it does to the plan with all orders kept. `repair`: the plan repaired after it; None where none was
    asked for, or no job stops or is rerouted, or a signal came first.
    """

    effect: FailureEffect
    repair: FailureRepair | None = None


@typed
def failures(
    instance: Instance,
    plan: Plan,
    kinds: Collection[str] = KINDS,
    *,
    pairs: bool = False,
    at_us: int | None = None,
    repair: Options | None = None,
) -> list[Failure]:
    """Return what the failure of each part of the cluster does to a plan.

    Parameters
    ----------
    instance, plan
        A correct plan, whose jobs do not move.
    kinds
        What fails: ``link``, ``switch``, ``server``.
    pairs
        Whether two parts fail at once, too. A pair that does what one of its parts does alone is left out.
    at_us
        Time of the plan when it fails, in microseconds, on the finite horizon. Iterations that have ended by then are
        done, and objectives count all jobs. None for a failure before the plan begins.
    repair
        Limits, seed and threads of each repair of the plan on what is left; None for no repairs. After a signal, or
        once its flag ``cancel`` is set, no more plans are repaired.

    Returns
    -------
    list of Failure
        Parts alone in the order of the cluster, then pairs.

    Raises
    ------
    UsageError
        A kind, or the time, is none; with every problem.
    InvalidInputError
        Jobs move, so that orders are not kept.
    CheckFailedError
        The plan breaks a rule.
    """
    wrong = [
        Problem(argument("kinds"), f'there is no kind "{name}"', nearest(name, KINDS), code="unknown-value")
        for name in kinds
        if name not in KINDS
    ]
    if at_us is not None and at_us < 0:
        wrong.append(Problem(argument("at_us"), f"must be at least 0; is {at_us}", code="out-of-range"))
    if wrong:
        raise UsageError(*wrong)
    require_correct(instance, plan)
    rest = None if at_us is None else remaining_at(instance, plan, at_us)
    if rest is not None:
        instance, plan = rest.instance, rest.plan
    effects = FailureEffects(instance, plan)
    each = effects.each(kinds, pairs)
    if repair is None:
        return [_absolute(rest, Failure(effect)) for effect in each]

    def after(effect: FailureEffect) -> FailureRepair | None:
        if repair.cancel.is_set() or not (effect.stopped or effect.rerouted):
            return None
        found = repaired(instance, plan, effects, effect, repair)
        return found if found.plan is not None or not repair.cancel.is_set() else None

    with interruptible(repair):
        return [_absolute(rest, Failure(effect, after(effect))) for effect in each]


def _absolute(rest: RemainingWork | None, failure: Failure) -> Failure:
    """Return a failure whose objectives have the jobs that have ended before, too."""
    effect, repair = failure
    if rest is None:
        return failure
    effect = replace(effect, objective=rest.total(effect.objective))
    if repair is not None and repair.objective is not None:
        found = repair.objective, repair.bound, repair.certified_bound
        objective, bound, certified = map(rest.total, found)
        repair = replace(repair, objective=objective, bound=bound or 0, certified_bound=certified)
    return Failure(effect, repair)
