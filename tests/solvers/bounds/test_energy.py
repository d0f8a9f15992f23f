"""Energy under power caps and in memory: known values, and never above brute force."""

from __future__ import annotations

import random
from dataclasses import replace

from jigsaw_opt.problem import Cluster, Instance, Job, Model, Segment, Server, compile_instance
from jigsaw_opt.problem.power import PowerCap
from jigsaw_opt.solvers.bounds import instant_bounds
from tests.oracle import optimum


def instance(memory: int, caps: tuple[PowerCap, ...] = (), jobs: int = 3) -> Instance:
    model = Model((Segment("s", {"v": 5}, {"v": 5}, 60, 10),), state_factor=1, power_w={"v": 100})
    cluster = Cluster((Server("x", "v", 2, memory, 10**6),), power_caps=caps)
    return Instance("energy", cluster, {"m": model}, tuple(Job(f"j{k}", "m", 1, 1) for k in range(jobs)))


def values(asked: Instance) -> dict[str, int]:
    return {bound.proof.relaxation: bound.value for bound in instant_bounds(compile_instance(asked))}


def test_blocks_under_a_cap_for_one_of_them_run_in_turn() -> None:
    asked = instance(10**6, (PowerCap("cap", ("x",), 100),))
    assert values(asked)["power_energy"] == optimum(asked) == 30


def test_states_times_time_fit_into_the_memory_of_the_gpus() -> None:
    """Three pairs whose transfer is longer than their blocks: the one in memory has both GPUs until it ends."""
    asked = instance(75)
    asked = replace(asked, jobs=tuple(replace(job, workers=2) for job in asked.jobs))
    found, best = values(asked), optimum(asked)
    assert best is not None and max(found.values()) == found["memory_energy"] <= best
    ample = replace(asked, cluster=instance(10**6).cluster)
    assert "memory_energy" not in values(ample)


def test_no_energy_is_above_the_optimum() -> None:
    compared = set[str]()
    for seed in range(30):
        rng = random.Random(seed)
        caps = (PowerCap("cap", ("x",), rng.choice((100, 150, 250))),) if seed % 2 else ()
        asked = instance(rng.choice((71, 80, 140)), caps, rng.randint(2, 3))
        jobs = tuple(replace(job, release_us=rng.randint(0, 6)) for job in asked.jobs)
        asked = replace(asked, jobs=jobs)
        best, found = optimum(asked), values(asked)
        assert best is not None and max(found.values()) <= best, seed
        compared.update(found)
    assert "power_energy" in compared
