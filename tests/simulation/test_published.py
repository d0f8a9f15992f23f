"""Tiresias on the workloads of Pollux, against the results that Pollux's authors published."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jigsaw_opt.simulation.metrics import completion_us, summarise
from jigsaw_opt.simulation.request import SimulationRequest, prepare


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_mean_completion_is_within_a_hundredth_of_the_published(shared_data: Path, number: int) -> None:
    folder = shared_data / "cluster" / "pollux"
    published = json.loads((folder / "published_results" / "tiresias-1.0_summary.json").read_text())
    name = f"workload-{number}"
    prepared = prepare(
        SimulationRequest(
            f"pollux:{folder / 'workloads' / name}.csv",
            "16x4:aws",
            "las",
            f"epochs:{shared_data / 'cluster' / 'sia' / 'profiles'}",
        )
    )
    simulation = prepared.start()
    simulation.run()
    outcome = simulation.close()
    mean_h = summarise(prepared.setting, outcome).mean_completion_h
    assert mean_h == pytest.approx(published["avgs"][name] / 3600, rel=0.01)
    jobs = prepared.setting.workload.jobs
    same = sum(
        abs(completion_us(prepared.setting, record) / 1e6 - published["jcts"][name][jobs[record.index].name]) <= 60
        for record in outcome.jobs
    )
    assert same >= 0.75 * len(jobs)
