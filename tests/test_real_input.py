"""Measured profiles in, a checked plan out: four PipeDream profiles of V100s as jobs on two servers of four GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import decode_instance, decode_plan, encode_instance, encode_plan
from jigsaw_opt.documents.readers import read_pipedream
from jigsaw_opt.instances.measured import MeasuredSetting, instance_of
from jigsaw_opt.problem import Instance
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve

MODELS = ("vgg16", "resnet50", "alexnet", "gnmt")


@pytest.fixture
def measured(shared_data: Path) -> Instance:
    profiles = shared_data / "pipeline" / "pipedream"
    texts = {name: (profiles / f"{name}.graph.txt").read_bytes() for name in MODELS}
    models = {name: read_pipedream(text, "v100", segments=4) for name, text in texts.items()}
    setting = MeasuredSetting(
        gpu_type="v100",
        servers=2,
        gpus=4,
        gpu_memory=32 * 10**9,
        topology="line",
        bandwidth=1_250_000_000,
        latency_us=20,
        fabric_bandwidth=150 * 10**9,
        workers=4,
        iterations=2,
        depth="staircase",
        objective="makespan",
    )
    return instance_of("pipedream", models, setting)


def test_measured_profiles_give_a_checked_plan(measured: Instance) -> None:
    result = solve(measured, "auto", Options(work_limit=1.0, threads=1))
    assert result.plan is not None
    plan = decode_plan(encode_plan(result.plan))
    assert check(decode_instance(encode_instance(measured)), plan) == ()
    # Some worker of each iteration runs a full block.
    longest = max(job.iterations * measured.models[job.model].block_us("v100")[-1] for job in measured.data_parallel)
    assert longest <= result.bound <= plan.objective
