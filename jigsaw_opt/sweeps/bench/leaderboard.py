"""Rank solvers by the result files of anybody; the rules are in docs/bench.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

from jigsaw_opt.documents.file_bytes import read_file
from jigsaw_opt.documents.parsing import parsed
from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.instances.catalogue import BestKnown, names, plan_path
from jigsaw_opt.problem.rules.report import Place, Report
from jigsaw_opt.problem.rules.structure import structure
from jigsaw_opt.sweeps.bench.contradictions import contradictions
from jigsaw_opt.sweeps.bench.known import best_known_by_hash
from jigsaw_opt.sweeps.bench.summary import best_objectives, grouped
from jigsaw_opt.sweeps.folder import rows_path

__all__ = ["Contestant", "Leaderboard", "LeaderboardRow", "leaderboard", "read_results"]

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Contestant:
    """What is ranked: a solver with what decides how good it can be.

    `solver, version, hardware`: name and version of the solver, and the machine; empty where a file does not say.
    `threads`: threads of a solve; None where a file does not say. `time_limit, work_limit`: seconds and deterministic
    units that end a solve; None for no limit.
    """

    solver: str
    version: str
    hardware: str
    threads: int | None
    time_limit: float | None
    work_limit: float | None


@dataclass(frozen=True, slots=True)
class LeaderboardRow:
    """A line of the leaderboard.

    `rank`: rank among those with the same limits, from 1; equal figures have the same rank. `seeds`: numbers of runs of
    an instance: the least, over instances that it has runs of. `solved, unsolved`: numbers of instances with a plan,
    and of those without one, in the median over its runs. `mean_gap`: mean over all instances of the median over runs
    of (objective − best) / objective; 1 where there is no plan. `best_share`: share of all instances on which this
    median is 0.
    """

    rank: int
    contestant: Contestant
    seeds: int
    solved: int
    unsolved: int
    mean_gap: float
    best_share: float


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """Standings, and what they were made from.

    `instances`: number of instances, each of which counts for everyone. `without_plan`: number of instances that nobody
    has a plan of; they are left out. `improved`: names of bundled instances with an objective below the best known one,
    which is taken at its word. `without_certificate`: names of bundled instances that count and whose best objective no
    bundled plan shows.
    """

    standings: tuple[LeaderboardRow, ...]
    instances: int
    without_plan: int
    improved: tuple[str, ...]
    without_certificate: tuple[str, ...]


def read_results(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the rows of result files, each once."""
    known = best_known_by_hash()
    report, rows = Report(), dict[tuple[object, ...], dict[str, Any]]()
    placed: list[tuple[str, Row]] = []
    for path in paths:
        try:
            lines = read_file(rows_path(path)).splitlines()
        except InvalidInputError as error:
            _note(report, error)
            continue
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            place = f"{path}:{number}"
            try:
                row = parsed(line, place, partial(_check_structure, place))
            except InvalidInputError as error:
                _note(report, error)
                continue
            _check_values(row, place, known.get(row["instance_sha256"]), report)
            placed.append((place, row))
            key = (row["instance_sha256"], _contestant(row), row.get("seed"))
            if _values(rows.setdefault(key, row)) != _values(row):
                told = "another result of the same run, with other values, stands before"
                report.add(place, told, "give runs different seeds", code="duplicate-name")
        if not lines:
            report.add(str(path), "holds no results", code="empty")
    for it in contradictions(placed):
        report.add((it.place, it.key), it.told, code="contradiction")
    report.raise_if_any()
    return [*rows.values()]


def leaderboard(rows: Sequence[Row], set_name: str | None = None) -> Leaderboard:
    """Rank everybody who has a row.

    `set_name`: only instances of this bundled set, all of which count; None for all instances that occur.
    """
    known = best_known_by_hash()
    counted = {row["instance_sha256"] for row in rows}
    if set_name is not None:
        members = set(names(set_name))
        counted = {sha256 for sha256, (name, _) in known.items() if name in members}
    rows = [row for row in rows if row["instance_sha256"] in counted]
    if not rows:
        raise InvalidInputError([Problem("results", "none is of an instance that counts", code="empty")])
    found = best_objectives(rows)
    stored = {sha256: best.objective for sha256, (_, best) in known.items() if best.objective is not None}
    best = {sha256: min(table[sha256] for table in (found, stored) if sha256 in table) for sha256 in found | stored}
    instances = [sha256 for sha256 in sorted(counted) if sha256 in best]
    lines = [
        _standing(contestant, members, instances, best) for contestant, members in grouped(rows, _contestant).items()
    ]
    improved = sorted(known[it][0] for it in found if it in stored and found[it] < stored[it])
    bundled = (known[it][0] for it in instances if it in known)
    bare = sorted(name for name in bundled if name in improved or not plan_path(name).exists())
    return Leaderboard(
        tuple(_ranked(lines)), len(instances), len(counted) - len(instances), tuple(improved), tuple(bare)
    )


def _check_structure(place: str, tree: Any, report: Report) -> None:
    structure("result")(tree, place, report)
    if "objective" not in tree and tree.get("error") is None:
        told = "is missing: null where there is no plan, or the error of a run that failed"
        report.add((place, "objective"), told, code="missing-field")


def _note(report: Report, error: InvalidInputError) -> None:
    for problem in error.problems:
        report.note(problem)


def _values(row: Row) -> tuple[int | None, int | None]:
    return row.get("objective"), row.get("bound")


def _check_values(row: Row, place: Place, known: tuple[str, BestKnown] | None, report: Report) -> None:
    """Report values that contradict what is known of a bundled instance."""
    objective, bound = _values(row)
    if known is not None:
        _compare(objective, known[1].bound, (place, "objective"), "objective {0} is below the proven bound {1}", report)
        _compare(known[1].objective, bound, (place, "bound"), "bound {1} is above the best known objective {0}", report)


def _compare(objective: int | None, bound: int | None, place: Place, told: str, report: Report) -> None:
    if objective is not None and bound is not None and bound > objective:
        report.add(place, told.format(objective, bound), code="contradiction")


def _contestant(row: Row) -> Contestant:
    version = row.get("version") or (row.get("versions") or {}).get("jigsaw-opt", "")
    limits = row.get("time_limit"), row.get("work_limit")
    return Contestant(row["solver"], version, row.get("hardware") or "", row.get("threads"), *limits)


def _standing(
    contestant: Contestant, rows: Sequence[Row], instances: Sequence[str], best: Mapping[str, int]
) -> LeaderboardRow:
    runs = grouped(rows, lambda row: row["instance_sha256"])
    gaps = [median(_gap(row.get("objective"), best[it]) for row in runs[it]) if it in runs else 1.0 for it in instances]
    unsolved = sum(gap == 1 for gap in gaps)
    return LeaderboardRow(
        rank=0,
        contestant=contestant,
        seeds=min(map(len, runs.values())),
        solved=len(gaps) - unsolved,
        unsolved=unsolved,
        mean_gap=fmean(gaps) if gaps else 1.0,
        best_share=sum(gap == 0 for gap in gaps) / max(1, len(gaps)),
    )


def _gap(objective: int | None, best: int) -> float:
    """Return the gap of a plan to the best one; a time is a whole number of microseconds, and 0 as good as 1."""
    return 1.0 if objective is None else 1 - max(1, best) / max(1, objective)


def _ranked(lines: Sequence[LeaderboardRow]) -> Iterable[LeaderboardRow]:
    """Yield the lines with their ranks: less mean gap, then more best plans, among those with the same limits."""

    def limits(line: LeaderboardRow) -> tuple[float, ...]:
        given = line.contestant.time_limit, line.contestant.work_limit
        return tuple(float("inf") if it is None else it for it in given)

    def merit(line: LeaderboardRow) -> tuple[float, float]:
        return line.mean_gap, -line.best_share

    for line in sorted(lines, key=lambda it: (limits(it), merit(it), it.contestant.solver, it.contestant.version)):
        rank = 1 + sum(limits(it) == limits(line) and merit(it) < merit(line) for it in lines)
        yield replace(line, rank=rank)
