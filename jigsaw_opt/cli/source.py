"""Where instances and plans come from: a file, or a name of the bundled library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jigsaw_opt.errors import JigsawError

if TYPE_CHECKING:
    from jigsaw_opt.problem.instance import Instance
    from jigsaw_opt.views.lanes import Picture

__all__ = ["CheckFailedError", "checked_picture", "instance_from"]


class CheckFailedError(JigsawError):
    """A plan that is to be shown breaks a rule."""

    exit_code = 7


def instance_from(source: str) -> Instance:
    """The instance in the file `source`, or the bundled one of that name.

    Raises
    ------
    InvalidInputError
        Neither exists, or the file is not a valid instance.
    """
    from jigsaw_opt import instances
    from jigsaw_opt.documents import load_instance

    path = Path(source)
    if not path.exists() and source in instances.names():
        return instances.load(source)
    return load_instance(path)


def checked_picture(source: str, plan_path: Path) -> Picture:
    """Lanes of a plan that passes the check.

    Raises
    ------
    CheckFailedError
        The plan breaks a rule, so a picture of it would mislead.
    """
    from jigsaw_opt.checking import check
    from jigsaw_opt.documents import load_plan
    from jigsaw_opt.views.lanes import picture

    instance, plan = instance_from(source), load_plan(plan_path)
    violations = check(instance, plan)
    if violations:
        first = violations[0]
        raise CheckFailedError(
            f"{plan_path} breaks {len(violations)} rule(s), first {first.rule} at {first.path}: {first.message};"
            f" all with: jigsaw check {source} {plan_path}"
        )
    return picture(instance, plan)
