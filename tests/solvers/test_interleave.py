"""Grouping of jobs by stages: against enumeration, and on the groups that Muri's own program made."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from references.muri_groups import read

from jigsaw_opt.formulations.interleave.rotation import Group, StagedJob, Timing
from jigsaw_opt.formulations.interleave.rounds import normalised_throughput
from jigsaw_opt.solvers.allocation import interleave
from jigsaw_opt.solvers.allocation.interleave import Grouping, group_jobs, throughput_bound
from tests.refusals import misuse


def random_jobs(seed: int, number: int, classes: int) -> list[StagedJob]:
    draw = random.Random(seed)
    kinds = []
    for _ in range(classes):
        load, compute, network = (draw.randint(0, 300) for _ in range(3))
        kinds.append(StagedJob(draw.choice((1, 1, 2)), load, compute, network, load + compute + network + 1))
    return [draw.choice(kinds) for _ in range(number)]


def partitions(jobs: list[StagedJob]) -> Iterator[list[list[StagedJob]]]:
    if not jobs:
        yield []
        return
    first, *others = jobs
    for groups in partitions(others):
        yield [[first], *groups]
        for k, group in enumerate(groups):
            if len(group) < 4 and group[0].gpus == first.gpus:
                yield [*groups[:k], [first, *group], *groups[k + 1 :]]


def best_value(jobs: list[StagedJob], gpus: int, timing: Timing) -> float:
    best = 0.0
    for groups in partitions(jobs):
        if sum(group[0].gpus for group in groups) <= gpus:
            best = max(best, normalised_throughput(Counter(map(tuple, groups)), timing))
    return best


def assert_valid(grouping: Grouping, jobs: list[StagedJob], gpus: int, timing: Timing) -> None:
    placed: Counter[StagedJob] = Counter()
    for group, number in grouping.groups.items():
        assert 1 <= len(group) <= 4
        assert len({job.gpus for job in group}) == 1
        for job in group:
            placed[job] += number
    assert placed == Counter(jobs)
    assert sum(number * group[0].gpus for group, number in grouping.groups.items()) <= gpus
    assert grouping.value == pytest.approx(normalised_throughput(grouping.groups, timing))


@pytest.mark.parametrize("timing", ["published", "steady", "planned"])
@pytest.mark.parametrize("seed", range(4))
def test_exact_groups_are_the_best_of_all_partitions(seed: int, timing: Timing) -> None:
    jobs = random_jobs(seed, 6, 6)
    gpus = -(-sum(job.gpus for job in jobs) // 2)
    best = best_value(jobs, gpus, timing)
    exact = group_jobs(jobs, gpus, "exact", timing)
    assert_valid(exact, jobs, gpus, timing)
    assert exact.value == pytest.approx(best)
    assert exact.bound is not None
    assert exact.bound == pytest.approx(best)
    matching = group_jobs(jobs, gpus, "matching", timing)
    assert_valid(matching, jobs, gpus, timing)
    assert matching.value <= best + 1e-9
    assert throughput_bound(jobs, gpus, timing) >= best - 1e-9


def test_columns_that_pay_lead_to_the_same_optimum_and_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = random_jobs(7, 16, 9)
    gpus = -(-sum(job.gpus for job in jobs) // 3)
    whole, relaxed = group_jobs(jobs, gpus, "exact"), throughput_bound(jobs, gpus)
    monkeypatch.setattr(interleave, "_FEW", 5)
    monkeypatch.setattr(interleave, "_MORE", 3)
    few = group_jobs(jobs, gpus, "exact")
    assert few.value == pytest.approx(whole.value)
    assert few.bound == pytest.approx(whole.bound)
    assert throughput_bound(jobs, gpus) == pytest.approx(relaxed)
    assert relaxed >= whole.value - 1e-9


def test_first_columns_that_hold_too_little_still_lead_to_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interleave, "_FEW", 1)
    monkeypatch.setattr(interleave, "_MORE", 1)
    for seed in range(8):
        jobs = random_jobs(seed, 6, 6)
        gpus = -(-sum(job.gpus for job in jobs) // 2)
        found = group_jobs(jobs, gpus, "exact")
        assert_valid(found, jobs, gpus, "steady")
        assert found.value == pytest.approx(best_value(jobs, gpus, "steady"))


def test_a_limit_of_nodes_leaves_groups_no_worse_than_the_matching_and_a_bound() -> None:
    jobs = random_jobs(17, 24, 9)
    gpus = -(-sum(job.gpus for job in jobs) // 3)
    matching, exact = group_jobs(jobs, gpus, "matching"), group_jobs(jobs, gpus)
    for nodes in (0, 1, 50):
        limited = group_jobs(jobs, gpus, nodes=nodes)
        assert_valid(limited, jobs, gpus, "steady")
        assert limited.bound is not None
        assert matching.value - 1e-9 <= limited.value <= exact.value + 1e-9 <= limited.bound + 2e-9


def test_with_gpus_for_all_every_job_is_alone() -> None:
    jobs = random_jobs(3, 12, 4)
    for method in ("exact", "matching"):
        grouping = group_jobs(jobs, sum(job.gpus for job in jobs), method)
        assert all(len(group) == 1 for group in grouping.groups)
        assert grouping.value == pytest.approx(len(jobs))


def test_too_many_jobs_are_refused() -> None:
    jobs = [StagedJob(2, 1, 1, 1, 3)] * 9
    with misuse("does-not-fit", naming=["6 GPUs", "groups of 4", "5"]):
        group_jobs(jobs, 5)


def test_muri_groups_are_valued_as_muri_does_and_surpassed(shared_data: Path) -> None:
    files = sorted((shared_data / "cluster/instances/muri").glob("*.json"))
    assert files
    for path in files:
        case = read(path)
        again = normalised_throughput(case.groups, "published")
        assert again == pytest.approx(case.value, abs=6e-4), path.name
        matching = group_jobs(case.jobs, case.gpus, "matching", "published")
        exact = group_jobs(case.jobs, case.gpus, "exact", "published")
        assert_valid(matching, case.jobs, case.gpus, "published")
        assert_valid(exact, case.jobs, case.gpus, "published")
        assert again <= matching.value <= exact.value + 1e-9
        assert exact.bound is not None
        assert exact.value <= exact.bound + 1e-9 <= throughput_bound(case.jobs, case.gpus, "published") + 1e-6


def test_groups_of_pairs_are_flattened() -> None:
    grouping = group_jobs([StagedJob(1, 5, 5, 5, 15)] * 8, 2, "matching")
    (group,) = grouping.groups
    alike: Group = (StagedJob(1, 5, 5, 5, 15),) * 4
    assert group == alike
    assert grouping.groups[group] == 2
