"""Solve an instance: choose GPUs, levels and starts, prove a bound, check the plan."""

from __future__ import annotations

import argparse
import math
from contextlib import suppress
from dataclasses import asdict, replace
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from itertools import starmap
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.common.arguments import PROGRESS, SEED, Arguments
from jigsaw_opt.cli.common.options import effort
from jigsaw_opt.cli.common.output import ended, flush, note, print_json, print_table, require_output
from jigsaw_opt.cli.common.parser import option_of
from jigsaw_opt.cli.common.progress import ADDRESS, searched
from jigsaw_opt.errors import EngineDiedError, InvalidInputError, malformed, missing_option, not_together
from jigsaw_opt.text import printable

if TYPE_CHECKING:
    from jigsaw_opt.planning.per_progress import PerProgress
    from jigsaw_opt.problem.exchange import JobExchange
    from jigsaw_opt.problem.instance import Instance
    from jigsaw_opt.problem.plan import Plan
    from jigsaw_opt.solvers.engines.parameters import Parameter
    from jigsaw_opt.solvers.options import Options
    from jigsaw_opt.solvers.params import SearchParams
    from jigsaw_opt.solvers.resolve import Fix
    from jigsaw_opt.solvers.result import Result

EXAMPLE = "jigsaw solve server/demo --time-limit 10 -o plan.json"
_EXIT = {"optimal": 0, "feasible": 0, "infeasible": 4, "unknown": 5}
ARGUMENTS: Arguments = {
    "instance FILE|NAME": "an instance document, a bundled instance, or a family and a seed (rack:7)",
    "--solver NAME = auto": "see `jigsaw solvers`",
    "--time-limit SECONDS": "limit (default: none)",
    "--work-limit UNITS": "limit in deterministic units",
    **SEED,
    "--engine local|ray = local": "search on this machine, or on all cores of a Ray cluster as well",
    **ADDRESS,
    "--gap SHARE": "stop at this gap between plan and bound, a share of the plan, as in 0.01",
    "--target OBJECTIVE": "stop at a plan at least as good as this value of the objective (microseconds; weighted:"
    " times weight)",
    "--no-improvement SECONDS": "stop after so many seconds without a better plan",
    "--engine-parameter NAME=VALUE *": "parameter of the engine, by its own name; may be given several times",
    "--params FILE": "parameters of the search, as `jigsaw solvers --params` prints them",
    "--without-bound NAME *": "leave out this relaxation of the lower bound; may be given several times",
    "--warm PLAN": "start from a plan of this instance or another one",
    "--fix-placement JOB ...": {"help": "with --warm: these jobs keep their GPUs", "default": []},
    "--fix-before MICROSECONDS": "with --warm: what starts earlier in that plan stays, and nothing else starts earlier",
    "--survivable": "only plans that keep their guarantees after any one link has failed",
    "--per-progress": "choose levels by the efficiency of models: least objective over progress",
    "--offer-exchange EXCHANGE *": "with --per-progress: what jobs may take in the place of whole gradients, as in"
    " bytes=1/4,progress_ppm=950000; may be given several times",
    "--chosen-instance FILE": "with --per-progress: write the instance of the plan here, with what was chosen; -o needs"
    " it",
    "-o, --output PLAN": "write the plan document here",
    "--proof PROOF": "write the proof of the bound here, for `jigsaw check --proof`; where only an engine has proven"
    " it, search for one first",
    "--timeline": "also print the timeline and what proves the bound",
    "--json": "print the result as JSON",
    **PROGRESS,
    "-v, --verbose": "progress as lines, also where there is no terminal, and what each move of the search earned",
}


def run(arguments: argparse.Namespace) -> int:
    """Solve, write the plan, print; a signal that comes meanwhile ends the search and nothing else."""
    from jigsaw_opt.documents import load_plan
    from jigsaw_opt.instances.sources import instance_from
    from jigsaw_opt.planning.per_progress import solve_per_progress
    from jigsaw_opt.solvers.solve import solve

    # To put a new plan in the place of the old one is what --warm may be for.
    read = arguments.instance, arguments.params
    require_output(arguments.output, *read)
    require_output(arguments.chosen_instance, *read, outputs=[arguments.output])
    require_output(arguments.proof, *read, arguments.warm, outputs=[arguments.output])
    _require_together(arguments)
    options = _options(arguments)
    instance = instance_from(arguments.instance)
    if arguments.per_progress:
        offers = [*map(_exchange, arguments.offer_exchange)]
        return searched(
            arguments,
            options,
            lambda show: solve_per_progress(instance, arguments.solver, options, exchanges=offers, on_event=show),
            lambda found: _finish_per_progress(instance, arguments, found),
            options.time_limit,
        )
    old = load_plan(arguments.warm) if arguments.warm is not None else None
    fix = _fix(arguments, old)
    return searched(
        arguments,
        options,
        lambda report: solve(instance, arguments.solver, options, start=old, fix=fix, on_event=report),
        lambda result: _finish(instance, arguments, options, result),
        options.time_limit,
    )


def _require_together(arguments: argparse.Namespace) -> None:
    """Refuse options that need ``--per-progress``, or do not go together with it."""
    names = ("warm", "fix_placement", "fix_before", "target", "timeline", "proof")
    given = [option_of(name) for name in names if getattr(arguments, name) not in (None, False, [])]
    if arguments.per_progress and given:
        raise not_together(given[0], f"{given[0]} and --per-progress do not go together")
    if arguments.per_progress and arguments.output and not arguments.chosen_instance:
        told = "with --per-progress the plan is one of the instance with what was chosen: give --chosen-instance FILE"
        raise missing_option("--chosen-instance", f"{told} beside -o")
    for name in ("chosen_instance", "offer_exchange"):
        if getattr(arguments, name) and not arguments.per_progress:
            raise missing_option(option_of(name), f"{option_of(name)} goes together with --per-progress")


def _options(arguments: argparse.Namespace) -> Options:
    from jigsaw_opt.sweeps.engines import ray_address

    return effort(
        arguments,
        ray=ray_address(arguments.engine, arguments.address),
        gap=arguments.gap,
        target=arguments.target,
        no_improvement=arguments.no_improvement,
        engine_parameters=dict(map(_parameter, arguments.engine_parameter)),
        params=_params(arguments.params),
        without_bounds=tuple(arguments.without_bound),
        survivable=arguments.survivable,
    )


def _exchange(text: str) -> JobExchange:
    """Return the exchange that an option states."""
    from jigsaw_opt.problem import JobExchange

    given = [part.partition("=") for part in text.split(",")]
    values = {key: int(value) if value.isascii() and value.isdecimal() else value for key, _, value in given}
    try:
        if len(values) < len(given):
            raise ValueError("a key is there twice")
        return JobExchange(**values)  # type: ignore[arg-type]
    except (InvalidInputError, TypeError, ValueError):
        told = "is every=STEPS, bytes=SHARE and progress_ppm=MILLIONTHS, or some of them, with commas between"
        raise malformed("--offer-exchange", f"--offer-exchange {told}, not {text!r}") from None


def _parameter(text: str) -> tuple[str, Parameter]:
    """Return a name and its value: an integer, a number, true or false, or else text."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise malformed("--engine-parameter", f"--engine-parameter is NAME=VALUE, not {text!r}")
    if value in ("true", "false"):
        return name, value == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return name, kind(value)
    return name, value


def _params(path: Path | None) -> SearchParams | None:
    if path is None:
        return None
    import warnings

    from jigsaw_opt.solvers.search.param_file import load_params

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            return load_params(path)
        finally:
            for warning in told:
                note(f"warning: {warning.message}")


def _finish(instance: Instance, arguments: argparse.Namespace, options: Options, result: Result) -> int:
    from jigsaw_opt.documents import save_plan

    if result.plan is not None and result.plan.is_phased and arguments.solver == "auto":
        note("this plan is phased: no better one that lists all iterations was found")
    if result.plan is not None and arguments.output is not None:
        save_plan(result.plan, arguments.output)
    if arguments.proof is not None:
        result = _with_proof(instance, result, arguments, options)
    _print(instance, result, arguments)
    if arguments.timeline and result.plan is not None and not arguments.json:
        _print_timeline(instance, result, result.plan)
    flush()
    return _exit_code(result, arguments.output)


def _with_proof(instance: Instance, result: Result, arguments: argparse.Namespace, options: Options) -> Result:
    """Write the best proof that there is, after a search for one where only an engine has proven the bound."""
    from jigsaw_opt.documents import save_plan, save_proof
    from jigsaw_opt.solvers.certification import certify

    left = None if options.time_limit is None else max(0.0, options.time_limit - result.seconds)
    began = monotonic()
    before, result = result, certify(instance, result, left, options.cancel)
    spent, proof = monotonic() - began, result.bound_proof
    if proof is not None:
        save_proof(proof, arguments.proof)
        if not result.certified:
            by = f"; of the bound {result.bound} there is only the word of {result.bound_by or 'its solver'}"
            rest = ", and not that there is no plan" if result.status == "infeasible" else by
            note(f"{arguments.proof} proves the bound {proof.bound}{rest}")
            if result.stopped_by != "interrupt":
                ended = "at its own limits, so more time does not help"
                # Cases have half of the time that is left.
                if left is not None and spent >= left / 2:
                    ended = "by the time limit, so a larger --time-limit may help"
                note(f"the search for a proof was ended after {spent:.2f} s, beside the solve, {ended}")
        if result.bound > before.bound:
            note(f"{arguments.proof} proves {proof.bound}, more than the bound {before.bound} of the solve")
            if result.plan is not None and arguments.output is not None:
                save_plan(result.plan, arguments.output)
    return result


def _finish_per_progress(instance: Instance, arguments: argparse.Namespace, found: PerProgress) -> int:
    """Write and print the plan of the least ratio, beside full depth."""
    from jigsaw_opt.documents import save_instance, save_plan

    result, chosen, path = found.result, found.instance or instance, arguments.chosen_instance
    if result.plan is not None and path is not None:
        save_instance(chosen, path)
    if result.plan is not None and arguments.output is not None:
        save_plan(result.plan, arguments.output)
    rows = {
        "chosen": _figures(found, result, found.ratio, found.bound),
        "full depth": _figures(found.full, found.full, found.full_ratio, found.full_bound),
    }
    exchanges = {job.name: job.exchange and job.exchange.keyed() for job in chosen.data_parallel_jobs}
    if arguments.json:
        told = {"exchanges": exchanges, "failure": found.failure or None, "full_depth": rows["full depth"]}
        told |= {"chosen_instance": None if path is None or result.plan is None else str(path)}
        print_json(rows["chosen"] | told | {"solve": _as_json(chosen, result, arguments.output)})
    else:
        for conflict in result.conflicts:
            note(f"infeasible: {conflict.message}")
        headers = ("", *(name.replace("_", " ") for name in rows["chosen"]))
        print_table(headers, [(name, *starmap(_cell, row.items())) for name, row in rows.items()])
        if found.full.status == "unknown" and found.full.stopped_by in ("time", "completed"):
            note(f"full depth, in half of the limits: {_no_plan(found.full, arguments)}")
        if arguments.offer_exchange and result.plan is not None:
            shown = {name: ", ".join(f"{k}={v}" for k, v in (own or {}).items()) for name, own in exchanges.items()}
            print_table(("job", "exchange"), [(name, told or "whole gradients") for name, told in shown.items()])
    flush()
    outcome = replace(result, status=found.status, stopped_by=found.stopped_by, failure=found.failure)
    return _exit_code(outcome, arguments.output)


def _figures(of: Result | PerProgress, result: Result, ratio: Fraction | None, bound: Fraction) -> dict[str, Any]:
    share = None if ratio is None or result.objective is None else float(result.objective / ratio)
    ratios = {"objective_per_progress": None if ratio is None else float(ratio), "bound": _below(bound)}
    ends = {"gap": of.gap, "status": of.status, "stopped_by": of.stopped_by, "seconds": round(of.seconds, 3)}
    return {"objective": result.objective, "progress": share, **ratios, **ends}


def _below(bound: Fraction) -> float:
    """Return the largest float that is no more than a lower bound."""
    near = float(bound)
    return near if near <= bound else math.nextafter(near, -math.inf)


def _cell(name: str, value: object) -> object:
    """Return a figure as `jigsaw solve` shows it elsewhere: a gap as a percentage, large numbers in whole digits.

    A lower bound is rounded down.
    """
    if not isinstance(value, float):
        return value
    if name == "gap":
        return f"{100 * value:.2f} %"
    exact, rounding = Decimal(value), ROUND_FLOOR if name == "bound" else ROUND_HALF_EVEN
    rounded = Context(prec=max(6, exact.adjusted() + 1), rounding=rounding).create_decimal(exact)
    return f"{rounded.normalize():f}"


def _fix(arguments: argparse.Namespace, old: Plan | None) -> Fix | None:
    """Return what stays of an old plan; without one, what `solve` then refuses."""
    from jigsaw_opt.solvers.resolve import Fix, placements_of

    names = arguments.fix_placement
    if old is not None:
        return Fix(placements_of(old, names), arguments.fix_before)
    return Fix(dict.fromkeys(names, ()), arguments.fix_before) if names or arguments.fix_before is not None else None


def _exit_code(result: Result, output: Path | None) -> int:
    """Return what the result comes to; says so where it is no fault of the instance that there is no better one."""
    if result.failure:
        note(f"error: {result.failure}; the result is what was known before")
        return EngineDiedError.exit_code
    left = "there is no plan yet"
    if result.plan is not None:
        left = f"the best plan so far has {result.objective}" + ("" if output is None else f", in {output}")
    return ended(result.stopped_by == "interrupt", left, _EXIT[result.status])


def _print(instance: Instance, result: Result, arguments: argparse.Namespace) -> None:
    if arguments.verbose and result.moves:
        headers = ("move", "calls", "successes", "seconds", "improvement")
        rows = [(m.name, m.calls, m.successes, f"{m.seconds:.2f}", m.improvement) for m in result.moves]
        print_table(headers, rows, right=headers[1:], stderr=True)
    if result.exact_model is not None and (arguments.verbose or result.stopped_by == "model_too_large"):
        note(f"exact model of {result.solver}: {result.exact_model}")
    if arguments.json:
        print_json(_as_json(instance, result, arguments.output))
        return
    if result.part and result.status in ("feasible", "unknown"):
        note(f"{result.solver} looked at {result.part}; the bound holds for all plans")
    for conflict in result.conflicts:
        note(f"infeasible: {conflict.message}")
    if result.status == "unknown" and result.stopped_by in ("time", "completed"):
        note(_no_plan(result, arguments))
    gap = None if result.gap is None else f"{100 * result.gap:.2f} %"
    how = result.verdict, result.stopped_by, result.solver, f"{result.seconds:.2f} s"
    figures = ("objective", "bound", "gap", "status", "stopped by", "solver", "time")
    bound = None if result.status == "infeasible" else result.bound
    print_table(figures, [(result.objective, bound, gap, *how)])


def _no_plan(result: Result, arguments: argparse.Namespace) -> str:
    """Say that no plan was found, what is ruled out, and what else may find one: never what has just been done."""
    limits = [name for name in ("time_limit", "work_limit") if getattr(arguments, name) is not None]
    if result.stopped_by == "completed":
        limits = [] if limits else ["time_limit"]  # Without a limit, the search ends by itself.
    larger = "a larger" if result.stopped_by == "time" else "a"
    more = [f"{larger} {option_of(name)}" for name in limits] + ["another --seed"]
    ruled_out = f" among {result.ruled_out} there is none, which is proven;" if result.ruled_out else ""
    if arguments.solver == "auto":
        return f"no plan was found;{ruled_out} {' or '.join(more)} may find one"
    proof = "" if result.ruled_out else " or prove that there is none"
    return f"no plan was found;{ruled_out} {' or '.join(more)} may find one; --solver auto may find one{proof}"


def _print_timeline(instance: Instance, result: Result, plan: Plan) -> None:
    from jigsaw_opt.views.lanes import picture
    from jigsaw_opt.views.text import timeline_text

    print(f"\n{timeline_text(picture(instance, plan))}\n")
    verdict = "so this plan is optimal" if result.status == "optimal" else "so the optimum lies between the two"
    trust = "certified" if result.certified else f"by {result.bound_by}, not certified"
    print(f"proof: no plan is better than {result.bound} ({printable(f'{result.bound_reason}; {trust}')});")
    print(f"       every rule was checked and this plan has {result.objective}, {verdict}.")


def _as_json(instance: Instance, result: Result, output: Path | None) -> dict[str, Any]:
    from jigsaw_opt.problem.efficiency import progress_of
    from jigsaw_opt.system.hardware import hardware

    return {
        "status": result.status,
        "stopped_by": result.stopped_by,
        "failure": result.failure or None,
        "part": result.part or None,
        "exact_model": None if result.exact_model is None else result.exact_model._asdict(),
        "objective": result.objective,
        "bound": result.bound,
        "bound_reason": result.bound_reason,
        "proof": result.proof.as_json(),
        "certified": result.certified,
        "bound_by": result.bound_by,
        "verdict": result.verdict,
        "certified_bound": result.certified_bound,
        "gap": result.gap,
        "progress": {} if result.plan is None else progress_of(instance, result.plan),
        "solver": result.solver,
        "seconds": round(result.seconds, 3),
        "seed": result.seed,
        "threads": result.threads,
        "hardware": hardware(),
        "versions": dict(result.versions),
        "plan": str(output) if output is not None and result.plan is not None else None,
        "conflicts": [{"kind": c.kind, "jobs": c.jobs, "message": c.message} for c in result.conflicts],
        "moves": [asdict(move) | {"seconds": round(move.seconds, 3)} for move in result.moves],
        "trajectory": [event._asdict() for event in result.trajectory],
    }
