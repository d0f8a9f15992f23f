"""Rows as CSV, and what they say together; every figure is defined in docs/bench.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, inf, isfinite, log
from statistics import fmean, median
from typing import Any, TypeVar

from jigsaw_opt.documents.csv_text import csv_text
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.problem.rules.structure import structure
from jigsaw_opt.sweeps.folder import SweepKind
from jigsaw_opt.sweeps.record import is_number

_OF_INSTANCE = ("instance", "set", "horizon", "objective_kind", "gpus", "workers")
_OF_TASK = ("solver", "seed", "time_limit", "work_limit", "gap_limit", "threads", "certify_limit")
_OF_BOUND = ("bound", "gap", "bound_reason", "certified", "bound_by", "certified_bound", "verdict")
_FOUND = ("status", "stopped_by", "objective", *_OF_BOUND)
_COST = ("seconds", "seconds_to_objective", "primal_dual_integral", "cpu_seconds", "peak_rss_mib")
_WITH = ("host", "host_cores", "hardware", "versions")
COLUMNS = (*_OF_INSTANCE, *_OF_TASK, *_FOUND, *_COST, *_WITH, "instance_sha256", "error")
"""Columns in their order; the trajectory is only in the JSON lines."""
Row = Mapping[str, Any]
T = TypeVar("T")
_LABELS = ("set", "instance", "solver")
_TASK = ("seed", "time_limit")
_MEASURES = ("gap", "primal_dual_integral", "seconds", "seconds_to_objective")
_LEAST_SECONDS = 0.01
"""Shorter times are taken for this long: below it they say more of the clock than of the solver."""


def csv_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as CSV with a header line; what is not known is an empty cell."""
    return csv_text(COLUMNS, ([_csv_cell(row.get(column)) for column in COLUMNS] for row in rows))


def _csv_cell(value: Any) -> Any:
    return "; ".join(f"{name} {version}" for name, version in value.items()) if isinstance(value, Mapping) else value


@dataclass(frozen=True, slots=True)
class Cell:
    """One set, solver and time limit.

    `set, solver, time_limit`: the set of instances, the solver, and its time limit in seconds. `instances, runs,
    with_plan, proven, errors`: numbers of instances and of rows; of rows with a plan, with a proof of optimality or
    infeasibility, with an error. `certified, certified_optimal`: numbers of rows whose bound, or infeasibility, has a
    proof that was checked, and of those among them whose plan is optimal. `mean_gap, worst_gap`: mean and maximum over
    instances of the median over seeds of the proven gap. `primal_dual_integral`: mean over instances of the median over
    seeds of the integral of the gap over time, in seconds; None where a row has none. `objective_ratio`: geometric mean
    over instances of the median over seeds of objective / best objective of all rows; over the instances that have such
    a median. None where none has. `seconds_to_objective`: the same mean of the seconds until the final objective was
    found. `time_ratio`: the same mean of the seconds to the common target, relative to the fastest solver.
    """

    set: str
    solver: str
    time_limit: float | None
    instances: int
    runs: int
    with_plan: int
    proven: int
    errors: int
    certified: int
    certified_optimal: int
    mean_gap: float
    worst_gap: float
    primal_dual_integral: float | None
    objective_ratio: float | None
    seconds_to_objective: float | None
    time_ratio: float | None


def is_row(row: Row) -> bool:
    """Return whether a row is as the schema ``result`` says, names its task, and has summable measures, if any."""
    texts = row.get("error", 0), row.get("status")
    measures = [row.get(name) for name in _MEASURES]
    numbers = [value for value in row.values() if isinstance(value, int | float)]
    events = row.get("trajectory", [])
    return (
        _is_result(row)
        and all(isinstance(row.get(label), str) for label in _LABELS)
        and all(name in row for name in _TASK)
        and all(text is None or isinstance(text, str) for text in texts)
        and all(measure is None or (is_number(measure) and measure >= 0) for measure in measures)
        and all(map(is_number, numbers))
        and isinstance(events, list)
        and all(map(_is_event, events))
    )


def _is_result(row: Row) -> bool:
    report = Report()
    try:
        structure("result")(row, "$", report)
    except InvalidInputError:  # so many problems that the report is full
        return False
    return not report.problems


def _is_event(event: object) -> bool:
    if not isinstance(event, list) or len(event) != 3:
        return False
    return is_number(event[0]) and all(number is None or is_number(number) for number in event[1:])


def summary(rows: Sequence[Row]) -> list[Cell]:
    """Return one cell a set, solver and time limit, in the order of the rows."""
    best, races = best_objectives(rows), _races(rows)
    cells = grouped(rows, lambda row: (row["set"], row["solver"], row["time_limit"]))
    return [_cell(key, members, best, races) for key, members in cells.items()]


def by_line(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the rows of a solver and time limit, by a name for the pair."""
    return grouped(rows, lambda row: line_name(row["solver"], row["time_limit"]))


def line_name(solver: str, limit: float | None) -> str:
    """Return what a solver with a time limit in seconds is called in pictures."""
    return solver if limit is None else f"{solver} {limit:g} s"


def proven_gap(row: Row) -> float:
    """Return the gap that a row proves: 0 for a proof of no plan, 1 where there is neither plan nor proof."""
    if row.get("status") == "infeasible":
        return 0.0
    gap = row.get("gap")
    return 1.0 if gap is None else float(gap)


def integral(row: Row) -> float:
    """Return the gap over time; that of a run that failed counts as 1 until the limit."""
    known, limit = row.get("primal_dual_integral"), row["time_limit"]
    if known is None and row["error"] is not None:
        known = limit
    return inf if known is None else float(known)


def geometric_mean(values: Iterable[float]) -> float | None:
    """Return the geometric mean of the finite values, or None where there is none."""
    logs = [log(value) for value in values if isfinite(value)]
    return exp(fmean(logs)) if logs else None


def _cell(
    key: tuple[str, str, float | None], rows: Sequence[Row], best: Mapping[str, int], races: Mapping[str, float]
) -> Cell:
    group, solver, limit = key
    gaps, integrals = medians(rows, proven_gap), medians(rows, integral)
    return Cell(
        set=group,
        solver=solver,
        time_limit=limit,
        instances=len(gaps),
        runs=len(rows),
        with_plan=sum(row.get("objective") is not None for row in rows),
        proven=sum(row.get("status") in ("optimal", "infeasible") for row in rows),
        certified=sum(row.get("certified") is True for row in rows),
        certified_optimal=sum(row.get("certified") is True and row.get("status") == "optimal" for row in rows),
        errors=sum(row["error"] is not None for row in rows),
        mean_gap=fmean(gaps),
        worst_gap=max(gaps),
        primal_dual_integral=fmean(integrals) if all(map(isfinite, integrals)) else None,
        objective_ratio=geometric_mean(medians(rows, lambda row: objective_ratio(row, best))),
        seconds_to_objective=geometric_mean(medians(rows, _seconds_to_objective)),
        time_ratio=geometric_mean(medians(rows, lambda row: races.get(row["key"], inf))),
    )


def medians(rows: Iterable[Row], value: Callable[[Row], float]) -> list[float]:
    """Return for each instance the median over its seeds."""
    instances = grouped(rows, lambda row: row["instance_sha256"])
    return [median(map(value, members)) for members in instances.values()]


def best_objectives(rows: Iterable[Row]) -> dict[str, int]:
    """Return the best objective that any row has of an instance, by the hash of its content."""
    best: dict[str, int] = {}
    for row in rows:
        if row.get("objective") is not None:
            sha256 = row["instance_sha256"]
            best[sha256] = min(best.get(sha256, row["objective"]), row["objective"])
    return best


def objective_ratio(row: Row, best: Mapping[str, int]) -> float:
    """Return the objective of a row by the best one of its instance; infinite without a plan."""
    # Times are whole microseconds; an objective of 0 is as good as one of 1.
    objective = row.get("objective")
    return inf if objective is None else max(1, objective) / max(1, best[row["instance_sha256"]])


def _seconds_to_objective(row: Row) -> float:
    return seconds_to(row, row.get("objective"))


def _races(rows: Iterable[Row]) -> dict[str, float]:
    """Return for each key seconds to the target over the fastest with the same instance, seed and limit.

    The target is the worst of their final objectives, so that all have reached it.
    """
    ratios: dict[str, float] = {}
    for members in grouped(rows, lambda row: (row["instance_sha256"], row["seed"], row["time_limit"])).values():
        racing = [row for row in members if isfinite(_seconds_to_objective(row))]
        if len(racing) < 2:
            continue
        target = max(row["objective"] for row in racing)
        seconds = {row["key"]: seconds_to(row, target) for row in racing}
        ratios |= {key: value / min(seconds.values()) for key, value in seconds.items()}
    return ratios


def seconds_to(row: Row, target: float | None) -> float:
    """Return when the progress first shows an objective as good as a target; infinite where it never does.

    Seconds since the start of the run.
    """
    if target is None:
        return inf
    reached = (at for at, objective, _ in row.get("trajectory", ()) if objective is not None and objective <= target)
    return max(_LEAST_SECONDS, next(reached, inf))


def grouped(items: Iterable[T], key: Callable[[T], Any]) -> dict[Any, list[T]]:
    """Return the items by what the key says of them, in their order."""
    groups: dict[Any, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups


MEASUREMENTS = SweepKind(is_row, csv_table, lambda rows: [asdict(cell) for cell in summary(rows)])
"""What is kept of measured solvers."""


def objective_profile(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Return for each solver and time limit the ratio of each run's objective to the best one of its instance.

    Infinite without a plan.
    """
    best = best_objectives(rows)
    return _by_line(rows, lambda row: objective_ratio(row, best))


def time_profile(rows: Sequence[Row], near: float) -> dict[str, list[float]]:
    """Return for each solver and time limit the ratios of run time to the fastest with that instance and seed.

    `near`: the time is the one until an objective of at most the best of the instance and this share of it; infinite
    where the run never has one.
    """
    best = best_objectives(rows)
    seconds = {
        row["key"]: seconds_to(row, (1 + near) * best[row["instance_sha256"]])
        for row in rows
        if row["instance_sha256"] in best
    }
    fastest = {
        row["key"]: min(seconds.get(rival["key"], inf) for rival in rivals)
        for rivals in grouped(rows, lambda row: (row["instance_sha256"], row["seed"])).values()
        for row in rivals
    }

    def ratio(row: Row) -> float:
        own = seconds.get(row["key"], inf)
        return own / fastest[row["key"]] if isfinite(own) else inf

    return _by_line(rows, ratio)


def _by_line(rows: Sequence[Row], ratio: Callable[[Row], float]) -> dict[str, list[float]]:
    return {name: [ratio(row) for row in own] for name, own in by_line(rows).items()}
