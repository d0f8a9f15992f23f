"""Every move, bound and special case of the solver switched off alone: what does each earn?

``python benchmarks/ablation.py crowded:1000-1023 --seeds 0 1 --time-limits 5 -o out/ablation``

The first run of a case has everything. Every other run leaves out one move or relaxation by its name, or sets one
parameter or constant of the search to the value at which a special case never applies. ``control`` leaves out nothing:
what it shows is chance alone. A move that the first run never made, and a relaxation that does not take the instance,
are not run again. ``--set opening.work=0`` adds a parameter, ``--set MODULE:CONSTANT=JSON`` a constant of a module
below ``jigsaw_opt.solvers.search``, and ``--only NAME`` keeps some of the runs. A row of each run is kept in
``rows.jsonl``; the same command again goes on. The table is printed and written to ``table.md``.
``docs/bench.md`` says how to read it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from common import line
from paired.arms import Arm, Tree
from paired.cases import Case
from paired.comparison import compared, grouped
from paired.request import add_arguments, ended, measured, percent, shown_change, written
from paired.runs import Pair

import jigsaw_opt
from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem import compile_instance
from jigsaw_opt.solvers.bounds.registry import relaxations
from jigsaw_opt.solvers.search import moves
from jigsaw_opt.solvers.search.param_file import from_toml
from jigsaw_opt.text import nearest

EVERYTHING, CONTROL = "everything", "control"
SPECIAL_CASES = {
    "opening": "opening.work=0",
    "learning which moves succeed": "driver.floor=1000000000",
    "chance among candidates": "candidates.blur=0",
    "level profiles in balancing": "load_balancing.profile_share=0",
    "placements in list annealing": "list_annealing.placement_share=0",
    "focus of list annealing": "list_annealing.focus_share=0",
    "brief annealing": "list_annealing.brief_share=0",
    "longer list annealing": "moves.list_annealing:_LONGEST=1",
    "small instances without intensify": 'context:_FEW_OPERATIONS={"finite": 0, "cyclic": 400}',
    "small instances without insertion": 'context:_FEW_OPERATIONS={"finite": 1000, "cyclic": 0}',
    "longer moves": "driver.longest=1",
    "chance in the order of insertion": "insertion.blur=1",
    "crowds of wide jobs": "cyclic.hierarchy:_CROWD_WEIGHT=0",
}
"""Values at which a special case of the search never applies: of parameters, as lines of TOML, or of constants."""
_SEARCH = "jigsaw_opt.solvers.search"
HEADS = (
    *("left out", "horizon", "limit", "instances", "runs", "gap with", "gap without"),
    *("objective", "less / more", "p", "bound", "less / more", "p", "CPU s with", "without"),
)


def without_move(tree: Tree, name: str) -> Arm:
    def made(_case: Case, base: Mapping[str, Any]) -> bool:
        return name in base.get("moves", ())

    return Arm(f"move {name}", tree, params=f'without = ["{name}"]\n', matters=made)


def without_bound(tree: Tree, relaxation: Any) -> Arm:
    takes: dict[str, bool] = {}

    def applies(case: Case, _base: Mapping[str, Any]) -> bool:
        if case.sha256 not in takes:
            takes[case.sha256] = relaxation.applies(compile_instance(case.instance))
        return takes[case.sha256]

    return Arm(f"bound {relaxation.name}", tree, without_bounds=(relaxation.name,), matters=applies)


def with_setting(tree: Tree, name: str, setting: str) -> Arm:
    """An arm with one number set otherwise: a parameter, ``part.name=value``, or a constant, ``module:NAME=value``."""
    place, _, value = setting.partition("=")
    if ":" not in place:
        from_toml(setting, setting)
        return Arm(name, tree, params=setting)
    module, _, constant = place.partition(":")
    try:
        getattr(import_module(f"{_SEARCH}.{module}"), constant)
        json.loads(value)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"{setting}: {error}") from None
    return Arm(name, tree, constants=(f"{_SEARCH}.{setting}",))


def all_arms(tree: Tree, settings: Sequence[str]) -> list[Arm]:
    """The run with everything, the control, and a run without each member."""
    return [
        Arm(EVERYTHING, tree),
        Arm(CONTROL, tree),
        *(without_move(tree, name) for name in moves.names()),
        *(without_bound(tree, relaxation) for relaxation in relaxations()),
        *(with_setting(tree, f"case {name}", setting) for name, setting in SPECIAL_CASES.items()),
        *(with_setting(tree, f"set {setting}", setting) for setting in settings),
    ]


def chosen(arms: Sequence[Arm], only: Sequence[str]) -> list[Arm]:
    """The first arm, and those of some names or kinds, the first word of a name."""
    known = {word for arm in arms for word in (arm.name, arm.name.partition(" ")[0])}
    unknown = [name for name in only if name not in known]
    if unknown:
        raise UsageError(f"nothing is called {unknown[0]!r}; {nearest(unknown[0], known)}")
    wanted = [arm for arm in arms[1:] if not only or {arm.name, arm.name.partition(" ")[0]} & {*only}]
    return [arms[0], *wanted]


def table(pairs: Mapping[Arm, Sequence[Pair]]) -> Iterator[str]:
    """A row for each arm and horizon."""
    yield line(HEADS)
    yield line("---" for _ in HEADS)
    for arm, found in pairs.items():
        for key, members in grouped(found, lambda row: (row["horizon"], row["limit"])).items():
            it = compared(members)
            if it is None:
                yield line((arm.name, *key, 0, f"{len(members)} failed", *("-" for _ in HEADS[5:])))
                continue
            yield line(
                (
                    *(arm.name, *key, it.instances, it.runs, *map(percent, it.mean_gap)),
                    *(*shown_change(it.objective), *shown_change(it.bound)),
                    *(f"{seconds:.2f}" for seconds in it.cpu_seconds),
                )
            )
        if not found:
            yield line((arm.name, "-", "-", 0, 0, *("-" for _ in HEADS[5:])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, ["crowded:1000-1023"])
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="also with this value")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="only these: a name, or move, bound, case"
    )
    parser.add_argument("--list", action="store_true", help="print the names of all rows, and solve nothing")
    asked = parser.parse_args()
    tree = Tree.at(Path(jigsaw_opt.__file__).parents[1])
    arms = chosen(all_arms(tree, asked.set), asked.only)
    if asked.list:
        print(*(arm.name for arm in arms[1:]), sep="\n")
        return
    written(asked, table(measured(asked, arms)))


if __name__ == "__main__":
    sys.exit(ended(main))
