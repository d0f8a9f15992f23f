"""Tiresias on the workloads of Pollux, against the results that Pollux's authors published."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jigsaw_opt import simulate
from jigsaw_opt.simulation.results.metrics import completion_us


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_mean_completion_is_within_a_hundredth_of_the_published(shared_data: Path, number: int) -> None:
    folder = shared_data / "cluster" / "pollux"
    published = json.loads((folder / "published_results" / "tiresias-1.0_summary.json").read_text())
    name = f"workload-{number}"
    found = simulate(
        f"pollux:{folder / 'workloads' / name}.csv",
        "16x4:aws",
        "las",
        performance=f"epochs:{shared_data / 'cluster' / 'sia' / 'profiles'}",
    )
    assert found.summary.mean_completion_h == pytest.approx(published["avgs"][name] / 3600, rel=0.01)
    jobs = found.setting.workload.jobs
    same = sum(
        abs(completion_us(found.setting, record) / 1e6 - published["jcts"][name][jobs[record.index].name]) <= 60
        for record in found.outcome.jobs
    )
    assert same >= 0.75 * len(jobs)
