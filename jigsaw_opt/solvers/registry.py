"""The solvers that are installed, ours and third parties', found by entry point."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

from jigsaw_opt.errors import Problem, UsageError, argument
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve_state import Solver
from jigsaw_opt.system.plugins import load, loadable, registered, require_members
from jigsaw_opt.text import agreeing

GROUP = "jigsaw_opt.solvers"


def names() -> tuple[str, ...]:
    """Return the names of all registered solvers, sorted; none of them is loaded."""
    return registered(GROUP)


@cache
def find(name: str) -> Solver:
    """Return the solver registered as `name`."""
    solver: Solver = load(GROUP, "solver", name, argument="method")
    require_solver(name, solver)
    return solver


def refusal(method: Solver, instance: Instance) -> str | None:
    """Return why a solver does not take an instance, by what it says of itself; None where it does.

    One that does not say what it lacks may lack everything.
    """
    return method.unsupported(instance) or instance.beyond(getattr(method, "lacks", None))


def require_taken(method: Solver, instance: Instance) -> None:
    """Refuse an instance that a solver does not take, and name those that do."""
    reason = refusal(method, instance)
    if reason is not None:
        raise UsageError(
            f"solver {method.name!r} does not take instance {instance.name!r}: {reason}{_hint(instance)}",
            code="unsupported",
            path="instance",
        )


def _hint(instance: Instance) -> str:
    """Return which installed solvers take an instance, as the end of a sentence; empty where none does."""
    able = [name for name, solver in loadable_solvers().items() if _can_solve(solver, instance)]
    return f"; {', '.join(able)} {agreeing(len(able), 'takes', 'take')} it" if able else ""


def _can_solve(solver: Solver, instance: Instance) -> bool:
    """Return whether a solver is installed and takes an instance; false where one of somebody else fails to say."""
    with suppress(Exception):
        return solver.unavailable() is None and refusal(solver, instance) is None
    return False


def ignored(method: object, options: Options) -> tuple[str, ...]:
    """Return names of the options that were given and that a method does not use, by what it says of itself.

    A method says so by `takes`, names of options, by default all; the two of engines follow from its `engines`.
    """
    of_engines = ("engine_parameters", "engine_log")
    takes: tuple[str, ...] = getattr(method, "takes", options.given)
    engines = of_engines if getattr(method, "engines", ()) else ()
    return tuple(name for name in options.given if name not in (*takes, *engines))


def require_options(method: object, options: Options, told: str = "") -> None:
    """Refuse options that were given and that a method does not use.

    `told`: what errors call the method; empty for its name.
    """
    left = ignored(method, options)
    if left:
        told = told or f"solver {getattr(method, 'name', '')!r}"
        raise UsageError.of(
            Problem(name, f"{told} takes no option {argument(name)}", code="unknown-option") for name in left
        )


def require_solver(name: str, found: object) -> None:
    """Refuse what is no solver, whatever it is."""
    require_members("solver", name, found, ("name", "display_name", "unavailable", "unsupported", "run"), "method")


def loadable_solvers() -> dict[str, Solver]:
    """Return all solvers by name; one that does not load is left out with a warning."""
    return dict(loadable(lambda name: (name, find(name)), names()))
