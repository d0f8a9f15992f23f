"""Measured profiles in, a checked plan out: four PipeDream profiles of V100s as jobs on two servers of four GPUs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import decode_instance, decode_plan, encode_instance, encode_plan
from jigsaw_opt.documents.readers import read_pipedream
from jigsaw_opt.instances.measured import MeasuredSetting, instance_of
from jigsaw_opt.problem import Instance, Job
from jigsaw_opt.problem.costs import transfer_us
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Status
from jigsaw_opt.solvers.solve import solve

SHARED = Path(os.environ.get("JIGSAW_SHARED", Path(__file__).parents[2] / "shared"))
PROFILES = SHARED / "data" / "pipeline" / "pipedream"
MODELS = ("vgg16", "resnet50", "alexnet", "gnmt")


@pytest.fixture(scope="module")
def measured() -> Instance:
    if not PROFILES.is_dir():
        pytest.skip(f"no PipeDream profiles in {PROFILES}; set JIGSAW_SHARED to the folder that has data/")
    texts = {name: (PROFILES / f"{name}.graph.txt").read_bytes() for name in MODELS}
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


@pytest.mark.parametrize("solver", ["greedy", "cpsat"])
def test_measured_profiles_give_a_checked_plan(measured: Instance, solver: str) -> None:
    result = solve(measured, solver, Options(work_limit=2.0, threads=1))
    assert result.status in (Status.FEASIBLE, Status.OPTIMAL)
    assert result.plan is not None
    plan = decode_plan(encode_plan(result.plan))
    assert check(decode_instance(encode_instance(measured)), plan) == ()
    assert _longest_job_us(measured) <= result.bound <= plan.objective <= _serial_us(measured)


def _iteration_us(instance: Instance, job: Job) -> int:
    """Least time of an iteration: some worker runs a full block."""
    return instance.models[job.model].block_us("v100")[-1]


def _longest_job_us(instance: Instance) -> int:
    return max(job.iterations * _iteration_us(instance, job) for job in instance.jobs)


def _serial_us(instance: Instance) -> int:
    """One job after the other, each at full depth on the four GPUs of a server, nothing hidden behind anything."""
    fabric = instance.cluster.servers[0].fabric_bandwidth
    return sum(
        job.iterations
        * (_iteration_us(instance, job) + sum(transfer_us(size, 4, 4, fabric, 0) for size in _buckets(instance, job)))
        for job in instance.jobs
    )


def _buckets(instance: Instance, job: Job) -> tuple[int, ...]:
    return instance.models[job.model].bucket_bytes()
