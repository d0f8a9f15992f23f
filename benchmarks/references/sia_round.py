"""Sia's one-round programs: prices, rounding and exchanges against CBC and HiGHS on the same program in the same run.

``--jobs 20000`` adds a program drawn from the largest. Seconds are CPU seconds of one thread; CBC is the executable
that PuLP brings, with PuLP's settings, and both engines stop at a relative gap of ``--gap``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pulp
from common import shared, timed
from reference_programs import sia_round

from jigsaw_opt.formulations.sia_round import SiaRound
from jigsaw_opt.solvers.allocation.sia_round import solve_round
from jigsaw_opt.solvers.engines.highs import HighsEngine, solve_program

HEADS = ("program", "best known", "ours", "bound", "gap", "s", "HiGHS", "s", "CBC", "s", "CBC / ours")


def references(document: dict[str, dict[str, object]]) -> list[float]:
    """Objectives that others reached on a shared program."""
    found = document["reference"]
    values = [entry["obj"] for entry in found.values() if isinstance(entry, dict) and "obj" in entry]
    return [*map(float, values), float(str(found["cbc_objective"]))]


def drawn(problem: SiaRound, jobs: int, seed: int = 0) -> SiaRound:
    """A round of more jobs, drawn from those of another with costs up to 2 % apart; GPUs grow with their number."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, len(problem.cost), jobs)
    cost = problem.cost[rows] * rng.uniform(0.99, 1.01, (jobs, problem.cost.shape[1]))
    return SiaRound(cost, problem.gpus, problem.capacity * jobs // len(problem.cost), problem.idle[rows])


def by_highs(problem: SiaRound, gap: float) -> float:
    solved = solve_program(problem.program(), {"mip_rel_gap": gap})
    assert solved.feasible
    return problem.objective(problem.choice(solved.values))


def by_cbc(program: Path, gap: float, seconds: float) -> float:
    solution = program.with_suffix(".sol")
    settings = ["-sec", str(seconds), "-ratio", str(gap), "-timeMode", "elapsed", "-branch", "-solution", str(solution)]
    subprocess.run([pulp.PULP_CBC_CMD.pulp_cbc_path, program, *settings], check=True, stdout=subprocess.DEVNULL)
    return float(solution.read_text().split("\n", 1)[0].split()[-1])


def row(name: str, problem: SiaRound, best: float | None, options: argparse.Namespace) -> Sequence[object]:
    ours, seconds = timed(lambda: solve_round(problem))
    assert ours is not None
    known = "-" if best is None else f"{best:.4f}"
    cells = (name, known, f"{ours.objective:.4f}", f"{ours.bound:.4f}", f"{ours.gap:.1e}", f"{seconds:.3f}")
    engines = peers(problem, seconds, options) if len(problem.cost) <= options.peers else ()
    return (*cells, *engines)


def peers(problem: SiaRound, seconds: float, options: argparse.Namespace) -> Iterator[str]:
    """Objective and seconds of both engines, and how many times ours CBC took."""
    value, used = timed(lambda: by_highs(problem, options.gap))
    yield from (f"{value:.4f}", f"{used:.3f}")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "round.mps")
        HighsEngine(problem.program()).write(program)
        value, used = timed(lambda: by_cbc(program, options.gap, options.seconds))
    yield from (f"{value:.4f}", f"{used:.3f}", f"{used / seconds:.0f}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", type=Path, help="programs of kind sia_one_round")
    parser.add_argument("--jobs", type=int, nargs="*", default=[20000], help="larger programs, drawn from the last")
    parser.add_argument("--peers", type=int, default=4096, help="jobs up to which the engines run too")
    parser.add_argument("--gap", type=float, default=1e-4, help="relative gap of the engines")
    parser.add_argument("--seconds", type=float, default=300, help="limit of CBC")


def rows(options: argparse.Namespace) -> Iterator[Sequence[object]]:
    files = options.files or shared("cluster/instances/sia").glob("*.json")
    return _rows(sorted(files, key=lambda file: file.stat().st_size), options)


def _rows(files: Sequence[Path], options: argparse.Namespace) -> Iterator[Sequence[object]]:
    problem: SiaRound | None = None
    for file in files:
        document = json.loads(file.read_text())
        problem = sia_round(document)
        best = min(references(document)) if "reference" in document else None
        yield row(file.stem, problem, best, options)
    for jobs in options.jobs if problem is not None else ():
        yield row(f"drawn, {jobs} jobs", drawn(problem, jobs), None, options)
