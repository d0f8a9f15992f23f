"""One call for short and long jobs: a plan that lists all iterations, a phased one, or the better of both."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from jigsaw_opt.documents import validate
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.auto import Auto
from jigsaw_opt.solvers.control import Control
from jigsaw_opt.solvers.options import Options, required_options
from jigsaw_opt.solvers.phased.solver import is_long, solve_phased_valid
from jigsaw_opt.solvers.result import Report, Result, Status
from jigsaw_opt.solvers.solve import solve_valid
from jigsaw_opt.solvers.stop import NoPlan

__all__ = ["is_listed_first", "not_taken", "solve_any", "solve_any_valid"]

_MANY_OPERATIONS = 1_000_000
"""Above so many operations a plan that lists them takes long, and a phased one is made as well."""
_SHARE = 0.3
"""Of the time, for the phased plan."""
_OPERATIONS_A_SECOND = 150_000
"""Of a plan that lists them: so many are scheduled, checked and written by a slow core."""
_NOT_TAKEN = (
    *("gap", "target", "no_improvement", "work_limit", "condition"),
    *("engine", "engine_parameters", "engine_log", "params"),
)


def not_taken(options: Options) -> list[str]:
    """Names of the options that were given and that phased plans are not made with."""
    return [name for name in _NOT_TAKEN if getattr(options, name) not in (None, {})]


def solve_any(instance: Instance, options: Options | None = None, report: Report | None = None) -> Result:
    """Solve by ``auto``, as a phased plan, or both, where jobs are so long that either may be better.

    Where ``auto`` has no plan of short jobs, a phased one is tried: there a job holds memory only in its phases.

    Parameters
    ----------
    instance
        Of either horizon.
    options
        Limits, seed and cores. With options that phased plans are not made with, this is `solve`.
    report
        Receives the progress stream of ``auto``; a phased plan has none.

    Raises
    ------
    InvalidInputError
        The instance breaks a rule of the document.
    TooLargeError
        It is too long for a plan that lists all iterations, and the options ask for one.
    MissingEngineError
        What ``auto`` needs is not installed.
    """
    started, options = time.monotonic(), required_options(options)
    return solve_any_valid(validate(instance), options, report, started)


def solve_any_valid(
    instance: Instance, options: Options, report: Report | None = None, started: float | None = None
) -> Result:
    """As `solve_any`, of an instance that was read from a document or that `validate` has given.

    Its time counts from `started`, on the monotonic clock; None for now.
    """
    started = time.monotonic() if started is None else started
    if is_listed_first(instance, options):
        return _listed_or_phased(instance, options, report, started)
    if not _is_listed(instance, options.time_limit):
        return solve_phased_valid(instance, _within(options, 1.0, started))
    phased = solve_phased_valid(instance, _within(options, _SHARE, started))
    if phased.status in (Status.OPTIMAL, Status.INFEASIBLE) or options.cancel.is_set():
        return phased
    listed = solve_valid(instance, "auto", _within(options, 1.0, started), report)
    return phased if _is_better(phased, listed) else listed


def is_listed_first(instance: Instance, options: Options) -> bool:
    """Whether a phased plan is made only where no plan that lists all iterations is found, or not at all."""
    return not is_long(instance, _MANY_OPERATIONS) or bool(not_taken(options)) or bool(instance.cluster.power_caps)


def _listed_or_phased(instance: Instance, options: Options, report: Report | None, started: float) -> Result:
    """A plan that lists all iterations, or where there is none a phased one, which may keep to memory where none does.

    Of a time limit, the phased plan has the last part, if there is no other by then.
    """
    within = _within(options, 1.0, started)
    if instance.horizon != "finite" or len(instance.jobs) == 1 or not_taken(options) or instance.cluster.power_caps:
        return solve_valid(instance, "auto", within, report)
    hurried = "auto" if within.time_limit is None else _PlanBy(limit=(1 - _SHARE) * within.time_limit)
    listed = solve_valid(instance, hurried, within, report)
    if listed.plan is not None or options.cancel.is_set():
        return listed
    phased = solve_phased_valid(instance, _within(options, 1.0, started))
    return phased if phased.plan is not None else listed


@dataclass(frozen=True, slots=True)
class _PlanBy(Auto):
    """`auto`, which gives up where it has no plan after some seconds."""

    limit: float = 0.0

    def run(self, control: Control) -> Result:
        """Solve until then, or on."""
        control.add_rule(NoPlan(self.limit))
        return Auto.run(self, control)


def _is_listed(instance: Instance, limit: float | None) -> bool:
    """Whether a plan that lists all iterations can be had, and in the time that is left behind a phased one."""
    in_time = limit is None or not is_long(instance, int((1 - _SHARE) * limit * _OPERATIONS_A_SECOND))
    return in_time and not is_long(instance)


def _within(options: Options, share: float, started: float) -> Options:
    if options.time_limit is None:
        return options
    left = started + options.time_limit - time.monotonic()
    return replace(options, time_limit=max(0.0, share * left))


def _is_better(phased: Result, listed: Result) -> bool:
    if phased.objective is None or listed.objective is None:
        return phased.objective is not None
    return phased.objective < listed.objective
