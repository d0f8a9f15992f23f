"""Where instances and plans come from: a file, a name of the bundled library, or a family and a seed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jigsaw_opt.errors import CheckFailedError, UsageError

if TYPE_CHECKING:
    from jigsaw_opt.problem.instance import Instance
    from jigsaw_opt.problem.plan import Plan
    from jigsaw_opt.views.lanes import Picture

__all__ = ["OBJECTIVES", "SIZES", "checked_picture", "checked_plan", "generated", "instance_from"]

SIZES = ("servers", "gpus", "load", "bandwidth")
"""Numbers of a recipe that a user may set."""
OBJECTIVES = ("makespan", "weighted_completion", "period")
_MOST_DIGITS = 18


def instance_from(source: str) -> Instance:
    """The instance in the file `source`, the bundled one of that name, or one of a family.

    Parameters
    ----------
    source
        A file, a name as in ``rack/plain``, or a family and a seed with changes of the recipe, as in
        ``rack:100`` or ``cluster:3:load=400:objective=makespan``.

    Raises
    ------
    InvalidInputError
        Neither exists, or the file is not a valid instance.
    UsageError
        A family without such a seed or such a change.
    """
    from jigsaw_opt import instances
    from jigsaw_opt.documents import exists, load_instance

    if not exists(source):
        if source in instances.names():
            return instances.load(source)
        if source.partition(":")[0] in instances.families() and ":" in source:
            return _of_family(source)
    return load_instance(source)


def generated(family: str, seed: int, changes: Mapping[str, int | str]) -> Instance:
    """The instance of a family and seed, with `SIZES` and the objective as the user wants them.

    Raises
    ------
    UsageError
        A size below 1, an objective that is none, or jobs that do not fit.
    """
    from jigsaw_opt.instances import generate

    for name, value in changes.items():
        if name == "objective" and value not in OBJECTIVES:
            raise UsageError(f"objective is one of {', '.join(OBJECTIVES)}, not {value!r}")
        if isinstance(value, int) and value < 1:
            raise UsageError(f"{name} is at least 1, not {value}")
    return generate(family, seed, **changes)


def _of_family(source: str) -> Instance:
    family, seed, *changes = source.split(":")
    if not _is_number(seed):
        raise UsageError(f"{source}: the seed is a whole number of at most {_MOST_DIGITS} digits, not {seed!r}")
    return generated(family, int(seed), dict(_change(source, change) for change in changes))


def _is_number(text: str) -> bool:
    """Whether it is a whole number of a length that anybody means."""
    return text.isdecimal() and len(text) <= _MOST_DIGITS


def _change(source: str, change: str) -> tuple[str, int | str]:
    name, _, value = change.partition("=")
    if name == "objective":
        return name, value
    if name not in SIZES or not _is_number(value):
        raise UsageError(f"{source}: a change is NAME=N with {', '.join(SIZES)}, or objective=NAME, not {change!r}")
    return name, int(value)


def checked_plan(source: str, plan_path: Path) -> tuple[Instance, Plan]:
    """An instance, and a plan for it that passes the check.

    Raises
    ------
    CheckFailedError
        The plan breaks a rule, so nothing that is made from it would be right.
    """
    from jigsaw_opt.checking import check
    from jigsaw_opt.documents import load_plan

    instance, plan = instance_from(source), load_plan(plan_path)
    violations = check(instance, plan)
    if violations:
        raise CheckFailedError(
            f"{plan_path} is wrong in {len(violations)} place(s), first {violations[0]};"
            f" all with: jigsaw check {source} {plan_path}"
        )
    return instance, plan


def checked_picture(source: str, plan_path: Path, replay_path: Path | None = None) -> Picture:
    """Lanes of a plan that passes the check, and of a replay of it if there is one.

    Raises
    ------
    CheckFailedError
        The plan breaks a rule.
    InvalidInputError
        The replay is one of another plan, or incomplete.
    """
    instance, plan = checked_plan(source, plan_path)
    if replay_path is None:
        from jigsaw_opt.views.lanes import picture

        return picture(instance, plan)
    from jigsaw_opt.documents import load_replay
    from jigsaw_opt.documents.replay import require_replay_of
    from jigsaw_opt.views.replay import replay_picture

    replay = load_replay(replay_path)
    require_replay_of(plan, replay, str(replay_path))
    return replay_picture(instance, plan, replay)
