"""What-if and re-solve: a changed instance solved from the plan of the old one; see ``docs/explain.md``."""

from __future__ import annotations

from jigsaw_opt.errors import WrongPlanError, require_a
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.listed import solve_listed
from jigsaw_opt.solvers.options import Options, required_options
from jigsaw_opt.solvers.resolve.fix import Fix, breaches, placements_of
from jigsaw_opt.solvers.resolve.warm import Warm
from jigsaw_opt.solvers.result import Report, Result

__all__ = ["Fix", "placements_of", "resolve"]


def resolve(
    instance: Instance,
    plan: Plan,
    fix: Fix | None = None,
    options: Options | None = None,
    on_event: Report | None = None,
) -> Result:
    """Solve a changed instance from the plan of the old one.

    Jobs are matched by name. Those whose operations still keep to all rules stay as they lie at first; the others are
    inserted into the gaps. Without a limit in `options` a short improvement follows; with one, it goes on until then.

    Parameters
    ----------
    instance
        The changed instance.
    plan
        A plan of the old instance.
    fix
        Parts of the old plan that must stay; none by default.
    options
        Limits, seed, cores, as in `solve`.
    on_event
        Receives the progress stream.

    Returns
    -------
    Result
        As from `solve`. The bound is one of the instance with nothing fixed, so it holds all the more;
        the status is ``unknown`` where no plan with the fixed parts was found.

    Raises
    ------
    InvalidInputError
        The instance breaks a rule of the document, or what is fixed cannot hold in it; with all problems.
    WrongPlanError
        The plan found breaks a rule or what is fixed: a bug.
    MissingEngineError
        OR-Tools is not installed.
    UsageError
        An argument is of another type, such as the name of a file.
    """
    require_a(Plan, plan)
    fix = fix or Fix()
    require_a(Fix, fix)
    result = solve_listed(instance, Warm(plan, fix), required_options(options), on_event)
    broken = list(breaches(result.plan.data_parallel, plan, fix)) if result.plan is not None else []
    if broken:
        raise WrongPlanError(f"what was fixed did not hold: {'; '.join(broken[:5])}")
    return result
