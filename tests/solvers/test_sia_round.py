"""The one-round program of Sia by prices and exchanges, against an exact engine and against what others reached."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from reference_programs import sia_round

from jigsaw_opt.formulations.sia_round import NO_ALLOCATION, SiaRound
from jigsaw_opt.solvers.allocation.sia_round import solve_round
from jigsaw_opt.solvers.engines.highs import solve_program

PROGRAMS = ("64_gpus64", "128_gpus128", "256_gpus256", "512_gpus512", "512_gpus2048", "1024_gpus1024", "2048_gpus2048")


def random_round(seed: int) -> SiaRound:
    rng = np.random.default_rng(seed)
    jobs, types = int(rng.integers(1, 30)), int(rng.integers(1, 4))
    sizes = np.repeat(2 ** np.arange(4), types)
    gpus = np.zeros((len(sizes), types), dtype=np.int64)
    gpus[np.arange(len(sizes)), np.tile(np.arange(types), 4)] = sizes
    cost = rng.uniform(0.5, 1.0, (jobs, 1)) * sizes ** -rng.uniform(0.2, 0.9, (jobs, 1))
    cost = np.where(rng.random(cost.shape) < 0.1, np.inf, cost.round(int(rng.integers(1, 4))))
    return SiaRound(cost, gpus, rng.integers(1, 4 * jobs, types), np.full(jobs, 1.1))


@pytest.mark.parametrize("seed", range(40))
def test_no_worse_than_an_exact_engine(seed: int) -> None:
    problem = random_round(seed)
    exact = solve_program(problem.program())
    solved = solve_round(problem)
    assert exact is not None and solved is not None
    assert (problem.used(solved.choice) <= problem.capacity).all()
    assert solved.bound <= exact.objective + 1e-6
    assert solved.objective == problem.objective(solved.choice) <= exact.objective * (1 + 1e-4)


def test_the_same_seed_gives_the_same_choice() -> None:
    first, second = (solve_round(random_round(1), seed=5) for _ in range(2))
    assert first is not None and second is not None
    assert first.choice.tolist() == second.choice.tolist()


def test_jobs_that_must_not_be_idle() -> None:
    forced = np.array([np.inf, np.inf, 1.0])
    cost = np.array([[3.0, 2.0], [3.0, 2.0], [0.5, 0.1]])
    problem = SiaRound(cost, np.array([[1], [2]]), np.array([3]), forced)
    solved = solve_round(problem)
    assert solved is not None
    assert sorted(solved.choice.tolist()) == [NO_ALLOCATION, 0, 1]
    assert solved.objective == 6.0
    assert solve_round(SiaRound(cost, problem.gpus, np.array([1]), forced)) is None
    cost[0] = np.inf
    assert solve_round(SiaRound(cost, problem.gpus, problem.capacity, forced)) is None


@pytest.mark.parametrize("name", PROGRAMS)
def test_shared_programs_are_solved_to_the_best_known_value(shared_data: Path, name: str) -> None:
    document = json.loads((shared_data / f"cluster/instances/sia/sia_jobs{name}_seed1.json").read_text())
    reached = [entry["obj"] for entry in document["reference"].values() if isinstance(entry, dict) and "obj" in entry]
    solved = solve_round(sia_round(document))
    assert solved is not None
    assert solved.objective <= min(reached) * (1 + 1e-4)
    assert solved.bound <= min(reached) * (1 + 1e-6)
    assert solved.gap <= 1e-4
