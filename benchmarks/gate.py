"""A gate against getting worse: the same solves as ever, compared with the values that were stored.

``make gate`` runs all of it in ten minutes, ``python benchmarks/gate.py --quick`` a part of it in one. Every solve
has one thread and a limit of work, so its plan depends neither on the clock nor on other load, and two run at a time.
A class of instances fails where its mean objective or bound is worse than the stored one by more than 0.3 %, an
instance where its own is worse by more than 3 %. ``--store`` makes what was found the stored values.

A change that only draws other random numbers moves a plan by a percent or so, and so may fail a class. ``--seed``
solves with another seed of the solver and shows how much of a difference chance makes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean

from common import print_table

from jigsaw_opt import Options, solve
from jigsaw_opt.documents import write_atomically
from jigsaw_opt.instances.sources import instance_from
from jigsaw_opt.planning.fill import fill
from jigsaw_opt.solvers.params import SearchParams

STORED = Path(__file__).with_name("gate.json")
MOST_OF_CLASS, MOST_OF_ONE = 0.003, 0.03
"""How much worse a class may be on average, and one instance."""
HEADS = ("class", "instances", "objective, mean", "worst", "bound, mean", "worst")
_OBJECTIVES = ("makespan", "weighted", "period")
_SIZES = {8: (0, 1.0), 16: (1, 2.0), 64: (3, 4.0), 256: (5, 5.0)}
"""GPUs: how often 8 is doubled, and the limit of work."""
_WORK_OF_SMALL_PERIODS = 0.25
"""Limit of work of periods on 8 GPUs, of which the exact model takes many seconds for its unit of work."""
_NARROW = 3_125_000_000
"""Bytes a second of a link of 25 Gb/s, on which transfers decide."""
_PLACES = 10**9


@dataclass(frozen=True, slots=True)
class Case:
    """A solve: its class, its instance, its limit of work in the engine's deterministic seconds.

    `kind` is ``listed``, ``phased`` with a thousand times the iterations, or ``fill`` with the first job as foreground.
    """

    group: str
    source: str
    work: float
    kind: str = "listed"
    quick: bool = False

    @property
    def name(self) -> str:
        """What its values are stored under."""
        return f"{self.kind} {self.source} {self.work:g}"


@dataclass(frozen=True, slots=True)
class Found:
    """Objective and bound of a solve; for `fill`, nanoseconds of an iteration by weight. None without a plan."""

    objective: int | None
    bound: int


def cases() -> Iterator[Case]:
    """All solves of the gate."""
    for gpus, (doubled, work) in _SIZES.items():
        for number, objective in enumerate(_OBJECTIVES):
            small_periods = (gpus, objective) == (8, "period")
            for turn in range(3 if small_periods or gpus == 256 else 4):
                seed = 24 * (130 + turn) + 3 * doubled + number
                narrow = f":bandwidth={_NARROW}" if turn == 1 else ""
                quick = turn == 0 and gpus == 16
                limit = _WORK_OF_SMALL_PERIODS if small_periods else work
                yield Case(f"{objective}, {gpus} GPUs", f"crowded:{seed}{narrow}", limit, quick=quick)
    for name in ("pipeline/tight-memory", "pipeline/two-servers-cyclic", "pipeline/two-jobs", "shop/job-10x10"):
        yield Case("task graphs", name, 2.0, quick=name == "pipeline/two-jobs")
    for seed in (3120, 3121, 3144):
        yield Case("phased", f"crowded:{seed}", 0, "phased")
    for seed in (3122, 3125, 3146, 3149):
        yield Case("fill", f"crowded:{seed}", 1.5, "fill", quick=seed == 3122)


def found(case: Case, without: Sequence[str] = (), seed: int = 0) -> Found:
    """Solve a case; `without` leaves out moves of the search by name."""
    instance = instance_from(case.source)
    params = SearchParams(without=tuple(without))
    options = Options(work_limit=case.work or None, threads=1, seed=seed, params=params)
    if case.kind == "fill":
        filled = fill(instance, [instance.jobs[0].name], options).details
        return Found(round(_PLACES / filled.rate) if filled.rate else None, round(_PLACES / filled.rate_bound))
    if case.kind == "phased":
        longer = tuple(replace(job, iterations=1000 * job.iterations) for job in instance.jobs)
        phased = solve(replace(instance, jobs=longer), "phased", Options(threads=1, seed=seed))
        return Found(phased.objective, phased.bound)
    result = solve(instance, "auto", options)
    return Found(result.objective, result.bound)


def losses(now: Found, before: Found) -> tuple[float, float]:
    """Return by what share the objective is larger and the bound smaller than before; a lost plan counts as all of it.

    What had no plan before cannot lose one.
    """
    objective = 0.0
    if before.objective is not None:
        objective = 1.0 if now.objective is None else now.objective / before.objective - 1
    return objective, 1 - now.bound / before.bound if before.bound else 0.0


def failures(rows: Mapping[Case, tuple[float, float]]) -> Iterator[str]:
    """Say which classes and which instances got worse by more than they may."""
    for group, members in grouped(rows).items():
        for what, values in zip(("objective", "bound"), zip(*members, strict=True), strict=True):
            if fmean(values) > MOST_OF_CLASS:
                yield f"{group}: the {what} is worse by {fmean(values):.2%} on average"
    for case, pair in rows.items():
        for what, value in zip(("objective", "bound"), pair, strict=True):
            if value > MOST_OF_ONE:
                yield f"{case.name}: the {what} is worse by {value:.2%}"


def grouped(rows: Mapping[Case, tuple[float, float]]) -> dict[str, list[tuple[float, float]]]:
    """Return the losses of each class."""
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for case, pair in rows.items():
        groups[case.group].append(pair)
    return groups


def stored() -> dict[str, Found]:
    """Return the stored values by the name of their case."""
    return {name: Found(*pair) for name, pair in json.loads(STORED.read_text("utf-8")).items()}


def run(
    asked: Sequence[Case], processes: int, without: Sequence[str] = (), seed: int = 0
) -> Iterator[tuple[Case, Found]]:
    """Solve cases side by side; each is given as soon as all before it are there."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        # A process of its own a solve is not needed: no solve leaves anything that another one would see.
        yield from zip(asked, pool.map(partial(found, without=tuple(without), seed=seed), asked), strict=True)


def _table(rows: Mapping[Case, tuple[float, float]]) -> Iterable[tuple[object, ...]]:
    for group, members in grouped(rows).items():
        objective, bound = zip(*members, strict=True)
        shares = (fmean(objective), max(objective), fmean(bound), max(bound))
        yield group, len(members), *(f"{share:+.2%}" for share in shares)


def _store(values: Mapping[str, Found]) -> None:
    lines = (f"{json.dumps(name)}: {json.dumps([one.objective, one.bound])}" for name, one in values.items())
    write_atomically(STORED, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the quick part alone")
    parser.add_argument("--processes", type=int, default=2, help="solves at a time (default: 2)")
    parser.add_argument("--without", default="", metavar="MOVES", help="leave out moves of the search, to plant a loss")
    parser.add_argument("--seed", type=int, default=0, help="seed of the solver, to see what chance does (default: 0)")
    parser.add_argument("--store", action="store_true", help="store what is found in the place of the stored values")
    arguments = parser.parse_args()
    began, known = time.monotonic(), stored() if STORED.exists() else {}
    asked = [case for case in cases() if case.quick or not arguments.quick]
    without = [name for name in arguments.without.split(",") if name]
    values: dict[str, Found] = {}
    rows: dict[Case, tuple[float, float]] = {}
    for case, value in run(asked, arguments.processes, without, arguments.seed):
        values[case.name] = value
        before = known.get(case.name)
        if before is not None:
            rows[case] = losses(value, before)
        print(f"{case.name}: {before} -> {value}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print_table(HEADS, _table(rows))
    worse = list(failures(rows))
    new = [case.name for case in asked if case.name not in known]
    print(f"\n{len(rows)} compared, {len(new)} without a stored value, {time.monotonic() - began:.0f} s")
    if arguments.store:
        _store({name: value for name, value in {**known, **values}.items() if name in {case.name for case in cases()}})
        return 0
    print("\n".join(worse) or "nothing is worse")
    return 1 if worse or new else 0


if __name__ == "__main__":
    sys.exit(main())
