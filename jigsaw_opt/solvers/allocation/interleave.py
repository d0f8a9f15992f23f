"""`interleave`: which jobs share GPUs by stages, by repeated matching or by set packing, with a proven bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from jigsaw_opt.errors import UsageError
from jigsaw_opt.formulations.interleave.rotation import MOST_JOBS, Group, StagedJob, Timing
from jigsaw_opt.formulations.interleave.rounds import normalised_throughput
from jigsaw_opt.formulations.interleave.set_packing import GroupPacking, build
from jigsaw_opt.formulations.linear import Entries, LinearProgram, ProgramBuilder
from jigsaw_opt.solvers.engines.highs import Setting, solve_program

if TYPE_CHECKING:
    from jigsaw_opt.formulations.linear import Floats, Integers

_FEW = 2_000
"""Largest number of columns of a program that is solved whole; a larger one begins with this many."""
_MORE = 1_000
"""Columns that enter at once."""
_PAYS = 1e-9
"""A column pays if its reduced value is above this."""
_MISSING = -100.0
"""Value of a part in no group, for a beginning without enough columns: far below what any group could make up for."""
_SETTINGS: Mapping[str, Setting] = {"mip_heuristic_run_root_reduced_cost": False}
"""It takes up to a third of the time on such programs, and has not led to a better solution on any that was tried."""


@dataclass(frozen=True, slots=True)
class SetPackingOutcome:
    """Outcome of an integer program.

    `solution`: number of times that each column is taken. `value`: its value; far below any other if the columns at
    hand cannot hold all parts. `bound`: A value that no solution exceeds.
    """

    solution: dict[int, int]
    value: float
    bound: float


@dataclass(frozen=True, slots=True)
class _PackingRelaxation:
    bound: float
    columns: Integers
    reduced: Floats


def optimum(model: GroupPacking, gap: float = 0.0, nodes: int | None = None) -> SetPackingOutcome:
    """Return the best solution, or one that is good enough.

    The relaxation bounds every solution. A column whose reduced value is below what a known solution lacks to the
    bound is in no better one, so the integer program needs only the columns in between.

    `gap`: share of the bound that the value may lack. `nodes`: nodes of branch and bound at most in an integer program;
    None for no limit.
    """
    import numpy as np

    stop: dict[str, Setting] = {"mip_rel_gap": gap}
    if nodes is not None:
        stop["mip_max_nodes"] = nodes
    if len(model.values) <= _FEW:
        return _integer(model, np.arange(len(model.values)), stop)
    relaxed = _relax(model)
    first = _integer(model, relaxed.columns, stop)
    found = _integer(model, np.flatnonzero(relaxed.reduced >= first.value - relaxed.bound - _PAYS), stop)
    best = max(first, found, key=lambda packed: packed.value)
    return SetPackingOutcome(best.solution, best.value, min(relaxed.bound, max(first.value, found.bound)))


def _relax(model: GroupPacking) -> _PackingRelaxation:
    import numpy as np

    columns = np.sort(np.argsort(model.values)[::-1][:_FEW])
    while True:
        # The engine minimises, so a price is what its objective falls by.
        prices = -solve_program(_program(model, columns, integer=False)).duals
        reduced = _reduced(model, prices)
        best = np.argsort(reduced)[::-1][:_MORE]
        entering = np.setdiff1d(best[reduced[best] > _PAYS], columns)
        if not len(entering):
            break
        columns = np.union1d(columns, entering)
    # Prices are correct to a tolerance; a group holds a job at least, so this is what they may leave out.
    error = sum(model.counts) * max(0.0, float(reduced.max()))
    bound = float(prices @ np.array([*model.counts, model.capacity])) + error
    return _PackingRelaxation(bound, columns, reduced)


def _reduced(model: GroupPacking, prices: Floats) -> Floats:
    import numpy as np

    by_part = np.append(prices[:-1], 0.0)  # Empty places of a column are -1, which is the last.
    return np.asarray(model.values - by_part[model.columns].sum(axis=1) - model.gpus * prices[-1])


def _integer(model: GroupPacking, columns: Integers, limits: Mapping[str, Setting]) -> SetPackingOutcome:
    found = solve_program(_program(model, columns, integer=True), {**_SETTINGS, **limits})
    if not found.feasible:
        return SetPackingOutcome({}, sum(model.counts) * _MISSING, -found.bound)
    taken = zip(columns.tolist(), found.values[: len(columns)].tolist(), strict=True)
    solution = {column: round(value) for column, value in taken if round(value)}
    return SetPackingOutcome(solution, -found.objective, -found.bound)


def _program(model: GroupPacking, columns: Integers, *, integer: bool) -> LinearProgram:
    """Return the program of some columns, with one more column per part for what no group holds.

    It minimises the negative of the value.
    """
    import numpy as np

    builder, parts = ProgramBuilder(), len(model.parts)
    groups = builder.add_columns(-model.values[columns], integer=integer)
    alone = builder.add_columns(np.full(parts, -_MISSING), integer=integer)
    content = model.columns[columns]
    group, place = np.nonzero(content >= 0)
    pair, times = np.unique(group * parts + content[group, place], return_counts=True)
    rows, inside = np.append(pair % parts, np.arange(parts)), np.append(groups[pair // parts], alone)
    builder.add_rows(Entries(rows, inside, np.append(times, np.ones(parts))), model.counts, model.counts)
    builder.add_rows(Entries(np.zeros(len(groups)), groups, model.gpus[columns]), -np.inf, [model.capacity])
    return builder.program()


Method = Literal["exact", "matching"]

_ROUNDS = (MOST_JOBS - 1).bit_length()
"""Rounds of pairing until groups are as large as they may be."""
_ROUNDING = 1e-6
"""Difference that an optimal value and its bound may have by rounding."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """All jobs in groups.

    `groups`: each make of group with its number. `bound`: upper bound on the value of every grouping; None where the
    method has not found one.
    """

    groups: Counter[Group]
    value: float
    bound: float | None


def group_jobs(
    jobs: Iterable[StagedJob],
    gpus: int,
    method: Method = "exact",
    timing: Timing = "steady",
    gap: float = 0.0,
    nodes: int | None = None,
) -> Grouping:
    """Put every job into a group so that the GPUs suffice and the sum of normalised throughputs is large.

    `method`: ``exact``: the set-packing program over all makes of groups. ``matching``: two rounds of maximum-weight
    matching, of jobs and then of pairs, as Muri does; without a bound. `gap, nodes`: the exact method may stop when so
    little, as a share, is missing to the bound, or after so many nodes of branch and bound; it then gives the matching
    where that is better. By default it goes on to the optimum.
    """
    parts = _classes(jobs)
    least = _least_gpus(parts, MOST_JOBS)
    if least > gpus:
        raise UsageError(
            f"the jobs need {least} GPUs even in groups of {MOST_JOBS}, and there are {gpus}", code="does-not-fit"
        )
    if method == "matching":
        return _matched(parts, gpus, timing)
    model = build(parts, MOST_JOBS, gpus, timing)
    packed = optimum(model, gap, nodes)
    if packed.value < packed.bound * (1 - gap) - _ROUNDING:
        matched = _matched(parts, gpus, timing)
        if matched.value > packed.value:
            return replace(matched, bound=packed.bound)
    return _grouping(model.groups(packed.solution), timing, packed.bound)


def throughput_bound(jobs: Iterable[StagedJob], gpus: int, timing: Timing = "steady") -> float:
    """Return a bound on the sum of normalised throughputs: the linear relaxation of the program, made safe."""
    return _relax(build(_classes(jobs), MOST_JOBS, gpus, timing)).bound


def _matched(parts: Counter[Group], gpus: int, timing: Timing) -> Grouping:
    for _ in range(_ROUNDS):
        # Pairing halves the GPUs in use at best, so a round may leave more in use than there are.
        model = build(parts, 2, max(gpus, _least_gpus(parts, 2)), timing)
        parts = model.groups(optimum(model).solution)
    return _grouping(parts, timing, None)


def _classes(jobs: Iterable[StagedJob]) -> Counter[Group]:
    return Counter((job,) for job in jobs)


def _least_gpus(parts: Mapping[Group, int], most_parts: int) -> int:
    """Return the GPUs that are in use once as many parts as possible share them."""
    by_gpus: Counter[int] = Counter()
    for group, number in parts.items():
        by_gpus[group[0].gpus] += number
    return sum(gpus * -(-number // most_parts) for gpus, number in by_gpus.items())


def _grouping(groups: Counter[Group], timing: Timing, bound: float | None) -> Grouping:
    return Grouping(groups, normalised_throughput(groups, timing), bound)
