"""Depth by goodput: the progress of full depth is kept with less GPU time, and full depth is kept where nothing is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.instances.measured import MeasuredSetting, instance_of, with_depth
from jigsaw_opt.problem import (
    Cluster,
    Efficiency,
    FreeDepth,
    FullDepth,
    Instance,
    Job,
    Model,
    Segment,
    Server,
    StaircaseDepth,
)
from jigsaw_opt.problem.efficiency import progress_of
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve

SEGMENTS = tuple(Segment(f"g{k}", {"slow": 40, "v": 4}, {"slow": 90, "v": 9}, 6, 3) for k in range(3))
QUIET, MIXED, NOISY = (Efficiency(noise, (1, 1, 1)) for noise in ((0, 0, 0), (60_000, 500, 0), (90_000,) * 3))


def one_job(efficiency: Efficiency | None, iterations: int = 20, workers: int = 4) -> Instance:
    cluster = Cluster((Server("s", "v", 4, 10**6, 10**6),))
    model = Model(SEGMENTS, efficiency=efficiency)
    return Instance("one", cluster, {"net": model}, (Job("j", "net", workers, iterations),))


def busy_us(instance: Instance, rows: Sequence[Sequence[int]]) -> int:
    block_us = instance.models["net"].block_us("v")
    return sum(block_us[level - 1] for row in rows for level in row)


@pytest.mark.parametrize("efficiency", [QUIET, MIXED], ids=["quiet", "mixed"])
def test_the_progress_of_full_depth_is_kept_with_less_gpu_time(efficiency: Efficiency) -> None:
    full = one_job(efficiency)
    made = with_depth(full, "goodput")
    (job,) = made.data_parallel
    assert isinstance(job.depth, FreeDepth) and job.depth.min_progress is not None
    assert Fraction(job.depth.min_progress) * job.iterations >= 20
    plan = solve(made, "greedy", Options(threads=1)).plan
    assert plan is not None and check(made, plan) == ()
    assert progress_of(made, plan)["j"] * job.iterations >= 20
    ((_, _, phase),) = plan.all_phases()
    rows = phase.data_parallel_jobs[0].levels
    assert busy_us(full, rows) < busy_us(full, [(3,) * 4] * 20)


def kinds(workers: int) -> Iterator[tuple[int, ...]]:
    return (row for row in combinations_with_replacement((1, 2, 3), workers) if row[-1] == 3)


@pytest.mark.parametrize("efficiency", [QUIET, MIXED, NOISY], ids=["quiet", "mixed", "noisy"])
def test_no_levels_of_three_workers_take_less_gpu_time(efficiency: Efficiency) -> None:
    """With three workers and levels, candidates are all levels but for order."""
    full = one_job(efficiency, 1_000, 3)
    (job,) = with_depth(full, "goodput").data_parallel
    least = min(busy_us(full, [row]) * Fraction(efficiency.most, efficiency.progress(row)) for row in kinds(3))
    share = Fraction(1 if isinstance(job.depth, FullDepth) else job.depth.keyed()["min_progress"])
    taken = min(busy_us(full, [row]) for row in kinds(3) if efficiency.progress(row) >= share * efficiency.most)
    assert least * 1_000 <= taken * job.iterations <= least * 1_002


def altered_to(instance: Instance, iterations: int) -> Instance:
    return replace(instance, jobs=tuple(replace(job, iterations=iterations) for job in instance.data_parallel))


def test_full_depth_stays_where_nothing_is_better_or_known() -> None:
    # Of one iteration at lower levels two would be needed.
    once = one_job(Efficiency((0, 500, 500), (1, 1, 1)), iterations=1)
    assert isinstance(with_depth(altered_to(once, 20), "goodput").data_parallel[0].depth, FreeDepth)
    for full in (one_job(None), one_job(NOISY), once, one_job(QUIET, workers=1)):
        assert with_depth(full, "goodput") == full
        assert with_depth(with_depth(full, "staircase"), "goodput") == full
        assert with_depth(full, "staircase").data_parallel[0].depth == StaircaseDepth()


def test_the_fastest_type_of_the_cluster_counts() -> None:
    """On the fast type backward passes are nothing, and so is what lower levels save."""
    segments = tuple(replace(one, backward_us={"slow": 900, "v": 0}) for one in SEGMENTS)
    models = {"net": Model(segments, efficiency=MIXED)}
    made = [
        instance_of("x", models, MeasuredSetting(kind, 1, 4, depth="goodput", iterations=50)) for kind in ("v", "slow")
    ]
    assert [type(one.data_parallel[0].depth) for one in made] == [FullDepth, FreeDepth]
    other = replace(made[1].cluster.servers[0], name="other")
    cluster = replace(made[0].cluster, servers=(*made[0].cluster.servers, other))
    assert with_depth(replace(made[1], cluster=cluster), "goodput").data_parallel[0].depth == FullDepth()
