"""List the registered solvers, policies or parameters of the search."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from jigsaw_opt.cli.common.arguments import Arguments
from jigsaw_opt.cli.common.output import print_json, print_table

ARGUMENTS: Arguments = {
    "one of:": {
        "--policies": "the policies of jigsaw simulate instead",
        "--params": "the parameters of the search instead, as a TOML file",
    },
    "--json": "print them as JSON",
}


def run(arguments: argparse.Namespace) -> int:
    """Print the list as a table or as JSON, or the parameters as TOML."""
    if arguments.params:
        return _parameters()
    return (_policies if arguments.policies else _solvers)(arguments.json)


def _solvers(as_json: bool) -> int:
    """Print name, what it is, and whether its engine is installed."""
    from jigsaw_opt.solvers.registry import loadable_solvers

    found = [(name, solver.display_name, solver.unavailable()) for name, solver in loadable_solvers().items()]
    if as_json:
        print_json([{"name": n, "description": d, "installed": m is None, "install": m} for n, d, m in found])
    else:
        rows = [(n, d, "installed" if m is None else f"pip install '{m}'") for n, d, m in found]
        print_table(("solver", "what it is", "engine"), rows)
    return 0


def _parameters() -> int:
    """Print the parameter file that says what holds without one."""
    from jigsaw_opt.solvers.params import SearchParams
    from jigsaw_opt.solvers.search.param_file import as_toml

    print(as_toml(SearchParams()))
    return 0


def _policies(as_json: bool) -> int:
    """Print name, what it does, and its options with their values, the default first."""
    from jigsaw_opt.scheduling.policy import loadable_policies

    found = [(name, policy.display_name, policy.options) for name, policy in loadable_policies().items()]
    if as_json:
        print_json([{"name": n, "description": d, "options": {k: list(v) for k, v in o.items()}} for n, d, o in found])
    else:
        rows = [(n, d, " ".join(f"{key}={_told(values)}" for key, values in o.items())) for n, d, o in found]
        print_table(("policy", "what it does", "options"), rows)
    return 0


def _told(values: Sequence[str]) -> str:
    """Return the values of an option in words."""
    from jigsaw_opt.scheduling.option_values import OpenValues

    others = (f"({values.kind})",) if isinstance(values, OpenValues) else ()
    return "|".join((*values, *others))
