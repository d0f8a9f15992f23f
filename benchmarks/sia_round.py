"""Sia's one-round programs: prices, rounding and exchanges against CBC and HiGHS on the same program in the same run.

Run it as ``python benchmarks/sia_round.py``. Programs are read from the shared data (``JIGSAW_SHARED``) or the files
named; ``--jobs 20000`` adds one drawn from the largest of them. Seconds are CPU seconds of one thread; CBC is the
executable that PuLP brings, with PuLP's settings, and both engines stop at a relative gap of ``--gap``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from reference_programs import sia_round

from jigsaw_opt.formulations.algebra import cbc_executable
from jigsaw_opt.formulations.sia_round import SiaRound
from jigsaw_opt.solvers.allocation.sia_round import solve_round
from jigsaw_opt.solvers.engines.highs import HighsEngine, solve_program

SHARED = Path(os.environ.get("JIGSAW_SHARED", Path(__file__).parents[2] / "shared"))
HEADS = "program | best known | ours | bound | gap | s | HiGHS | s | CBC | s | CBC / ours"


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


def timed(call: Callable[[], float]) -> tuple[float, float]:
    """What a call returns and its CPU seconds, those of its finished children included."""
    began = time.process_time() + children()
    value = call()
    return value, time.process_time() + children() - began


def children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def by_highs(problem: SiaRound, gap: float) -> float:
    solved = solve_program(problem.program(), {"mip_rel_gap": gap})
    assert solved.feasible
    return problem.objective(problem.choice(solved.values))


def by_cbc(program: Path, gap: float, seconds: float) -> float:
    solution = program.with_suffix(".sol")
    settings = ["-sec", str(seconds), "-ratio", str(gap), "-timeMode", "elapsed", "-branch", "-solution", str(solution)]
    subprocess.run([cbc_executable(), program, *settings], check=True, stdout=subprocess.DEVNULL)
    return float(solution.read_text().split("\n", 1)[0].split()[-1])


def row(name: str, problem: SiaRound, best: float | None, options: argparse.Namespace) -> str:
    """One line of the table."""
    answers = []
    _, seconds = timed(lambda: answers.append(solve_round(problem)) or 0.0)
    ours = answers[0]
    assert ours is not None
    cells: list[object] = [name, "-" if best is None else f"{best:.4f}", f"{ours.objective:.4f}", f"{ours.bound:.4f}"]
    cells += [f"{ours.gap:.1e}", f"{seconds:.3f}"]
    if len(problem.cost) <= options.peers:
        cells += peers(problem, seconds, options)
    return " | ".join(map(str, cells))


def peers(problem: SiaRound, seconds: float, options: argparse.Namespace) -> Iterator[str]:
    """Objective and seconds of both engines, and how many times ours CBC took."""
    value, used = timed(lambda: by_highs(problem, options.gap))
    yield from (f"{value:.4f}", f"{used:.3f}")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "round.mps")
        HighsEngine(problem.program()).write(program)
        value, used = timed(lambda: by_cbc(program, options.gap, options.seconds))
    yield from (f"{value:.4f}", f"{used:.3f}", f"{used / seconds:.0f}")


def main() -> None:
    """Print the table as it grows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="programs of kind sia_one_round")
    parser.add_argument("--jobs", type=int, nargs="*", default=[20000], help="larger programs, drawn from the last")
    parser.add_argument("--peers", type=int, default=4096, help="jobs up to which the engines run too")
    parser.add_argument("--gap", type=float, default=1e-4, help="relative gap of the engines")
    parser.add_argument("--seconds", type=float, default=300, help="limit of CBC")
    options = parser.parse_args()
    files = options.files or (SHARED / "data/cluster/instances/sia").glob("*.json")
    files = sorted(files, key=lambda file: file.stat().st_size)
    print(f"{HEADS}\n{'|'.join(['---'] * (HEADS.count('|') + 1))}")
    problem: SiaRound | None = None
    for file in files:
        document = json.loads(file.read_text())
        problem = sia_round(document)
        best = min(references(document)) if "reference" in document else None
        print(row(file.stem, problem, best, options), flush=True)
    for jobs in options.jobs if problem is not None else ():
        print(row(f"drawn, {jobs} jobs", drawn(problem, jobs), None, options), flush=True)


if __name__ == "__main__":
    main()
