"""Options that several commands share: the depth rule, and limits, seed and threads of solves."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.common.output import note
from jigsaw_opt.cli.common.parser import add_threads
from jigsaw_opt.text import named

if TYPE_CHECKING:
    from jigsaw_opt.problem import Instance, Plan
    from jigsaw_opt.solvers.options import Options

_RULES = "full, staircase, rotation or free"
"""The names in `problem.depth.CHOICES`, which takes too long to load for the help of every command."""
_MAY_FALL = "workers stop backward passes early, so accuracy may fall; see docs/training-loop.md"


def add_plan(parser: argparse.ArgumentParser) -> None:
    """Add the instance and the plan that a command takes."""
    parser.add_argument("instance", metavar="INSTANCE", help="an instance document, or the name of a bundled instance")
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a plan document")


def add_depth(parser: argparse._ActionsContainer, default: str) -> None:
    """Add the option `--depth` to a parser."""
    parser.add_argument("--depth", default=default, metavar="RULE", help=f"{_RULES} (default: {default})")


def warn_of_spb(*rules: str | None) -> None:
    """Warn once of depth rules that stop backward passes early; None is no rule."""
    _warn("depth rule", [rule for rule in dict.fromkeys(rules) if rule not in (None, "full")])


def warn_of_policies(policies: Sequence[str]) -> None:
    """Warn of policies of the simulation that choose such a rule by their options."""
    from jigsaw_opt.scheduling.policy import choose

    warn_of_spb(*(choose(policy)[1].get("depth") for policy in policies))


def warn_of_levels(instance: Instance, plan: Plan) -> None:
    """Warn of the jobs of a plan in which some level is below the deepest."""

    deepest = {job.name: instance.models[job.model].depth for job in instance.data_parallel_jobs}
    bent = (
        job.name
        for _, _, phase in plan.all_phases()
        for job in phase.data_parallel_jobs
        if any(level < deepest[job.name] for levels in job.levels for level in levels)
    )
    _warn("levels below the deepest of job", list(dict.fromkeys(bent)))


def _warn(subject: str, names: Iterable[str | None]) -> None:
    if bent := [name for name in names if name is not None]:
        note(f"{subject} {named(bent)}: {_MAY_FALL}")


def add_effort(parser: argparse._ActionsContainer, time_limit: float | None = None) -> None:
    """Add the limits of a solve, or of all solves of a command together; their seed and their threads.

    `time_limit`: default of all together, in seconds; None for one solve, which goes on until it is done.
    """
    of = "" if time_limit is None else " of all solves together"
    default = "none" if time_limit is None else f"{time_limit:g}"
    parser.add_argument(
        "--time-limit", type=float, default=time_limit, metavar="SECONDS", help=f"limit{of} (default: {default})"
    )
    parser.add_argument("--work-limit", type=float, metavar="UNITS", help=f"limit{of} in deterministic units")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed (default: 0)")
    add_threads(parser, "threads (default: all cores); with 1 and without a time limit, plans repeat")


def effort(arguments: argparse.Namespace, **others: Any) -> Options:
    """Return the options of a solve, of what was given: limits, seed and threads."""
    from jigsaw_opt.solvers.options import Options

    threads = {"threads": arguments.threads} if arguments.threads is not None else {}
    names = [name for name in ("time_limit", "work_limit", "seed") if name not in others]
    given = {name: getattr(arguments, name) for name in names}
    return Options(**{**given, **threads, **others})
