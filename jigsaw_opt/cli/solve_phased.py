"""`jigsaw solve --phased`: a phased plan made, written and told."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from jigsaw_opt.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from jigsaw_opt.problem.instance import Instance
    from jigsaw_opt.problem.phased_plan import PhasedPlan
    from jigsaw_opt.problem.plan import Plan
    from jigsaw_opt.solvers.options import Options
    from jigsaw_opt.solvers.phased import PhasedResult

__all__ = ["kept_plan", "run_phased", "tell_phased"]

_EXIT = {"optimal": 0, "feasible": 0, "infeasible": 4, "unknown": 5}


def run_phased(
    instance: Instance, arguments: argparse.Namespace, options: Options, old: Plan | PhasedPlan | None = None
) -> int:
    """Make a phased plan, from an old one if there is one, write it, print; returns the exit code.

    Raises
    ------
    UsageError
        An option was given that phased plans are not made with.
    """
    from jigsaw_opt.solvers.phased import not_taken

    given = ["solver"] if arguments.solver != "auto" else not_taken(options)
    if given:
        option = given[0].replace("_", "-").replace("parameters", "parameter")
        raise UsageError(f"a phased plan is made without --{option}")
    return tell_phased(instance, _made(instance, arguments, options, old), arguments, options)


def tell_phased(instance: Instance, result: PhasedResult, arguments: argparse.Namespace, options: Options) -> int:
    """Write the plan and print; returns the exit code."""
    from jigsaw_opt.cli.output import ended, flush
    from jigsaw_opt.documents import save_plan

    if result.plan is not None and arguments.output is not None:
        save_plan(result.plan, arguments.output)
    _print(instance, result, arguments)
    flush()
    return ended(options.cancel.is_set(), kept_plan(result.plan, arguments.output), _EXIT[result.status])


def kept_plan(plan: Plan | PhasedPlan | None, output: Path | None) -> str:
    """What is left of a solve that a signal ended."""
    if plan is None:
        return "there is no plan yet"
    return f"the best plan so far has {plan.objective}" + ("" if output is None else f", in {output}")


def _made(
    instance: Instance, arguments: argparse.Namespace, options: Options, old: Plan | PhasedPlan | None
) -> PhasedResult:
    from jigsaw_opt.problem.phased_plan import PhasedPlan
    from jigsaw_opt.solvers.phased import resolve_phased, solve_phased
    from jigsaw_opt.solvers.resolve import Fix, placements_of

    if old is None:
        return solve_phased(instance, options)
    if not isinstance(old, PhasedPlan):
        raise UsageError("a phased plan is made from another one; the plan of --warm lists all iterations")
    fix = Fix(placements_of(old, arguments.fix_placement), arguments.fix_before)
    return resolve_phased(instance, old, fix, options)


def _print(instance: Instance, result: PhasedResult, arguments: argparse.Namespace) -> None:
    from jigsaw_opt.cli.output import note, print_json, print_table
    from jigsaw_opt.text import printable

    if arguments.json:
        print_json(_as_json(result, arguments))
        return
    for conflict in result.conflicts:
        note(f"infeasible: {conflict.message}")
    gap = None if result.gap is None else f"{100 * result.gap:.2f} %"
    row = (result.objective, result.bound, gap, result.status, "phased", f"{result.seconds:.2f} s")
    print_table(("objective", "bound", "gap", "status", "solver", "time"), [row])
    if arguments.timeline and result.plan is not None:
        from jigsaw_opt.views.phases import phases_text

        print(f"\n{phases_text(instance, result.plan)}\n")
        print(f"proof: no plan is better than {result.bound} ({printable(result.proof.sentence)}).")


def _as_json(result: PhasedResult, arguments: argparse.Namespace) -> dict[str, object]:
    written = arguments.output is not None and result.plan is not None
    return {
        "status": result.status,
        "objective": result.objective,
        "bound": result.bound,
        "bound_reason": result.proof.sentence,
        "gap": result.gap,
        "solver": "phased",
        "seconds": round(result.seconds, 3),
        "seed": result.seed,
        "plan": str(arguments.output) if written else None,
        "conflicts": [{"kind": c.kind, "jobs": c.jobs, "message": c.message} for c in result.conflicts],
    }
