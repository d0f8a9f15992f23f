"""A plan carried out from the command line: everything happens, in the plan's order, and is measured."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import jsonschema
import pytest
from replayed import instance, replayed, written

from jigsaw_opt.documents import encode_instance, load_plan, load_replay, schema
from jigsaw_opt.documents.replay import decode_replay, encode_replay, plan_sha256
from jigsaw_opt.problem.measured.replay import Replay
from jigsaw_opt.problem.measured.times import Timeline
from jigsaw_opt.problem.plan import Plan
from tests.refusals import ends

CYCLIC = {"horizon": "cyclic", "objective": "period"}


@pytest.fixture(scope="module")
def finite(tmp_path_factory: pytest.TempPathFactory) -> tuple[Replay, Plan, Path]:
    folder = tmp_path_factory.mktemp("finite")
    replay = replayed(folder, instance(), "--iterations", 2, "--baseline", "gang")
    return replay, load_plan(folder / "plan.json"), folder


def on_gpu(timeline: Timeline, gpu: str) -> list[tuple[int, int, int, int]]:
    """Measured blocks of a GPU by start, with job and iteration."""
    return sorted(
        (block.start_us, block.end_us, number, job.first_iteration + k)
        for number, job in enumerate(timeline.jobs)
        for k, iteration in enumerate(job.iterations)
        for name, block in zip(job.gpus, iteration.blocks, strict=True)
        if name == gpu
    )


def planned_on(plan: Plan, gpu: str, turns: int, length_us: int) -> list[tuple[int, int, int]]:
    """Starts of blocks of a GPU, with job and iteration, where the plan is carried out so many times."""
    return sorted(
        (block.start_us + turn * length_us, number, turn * len(job.iterations) + k)
        for turn in range(turns)
        for number, job in enumerate(plan.jobs)
        for k, iteration in enumerate(job.iterations)
        for name, block in zip(job.gpus, iteration.blocks, strict=True)
        if name == gpu
    )


def test_every_block_runs_alone_on_its_gpu_in_the_order_of_the_plan(finite: tuple[Replay, Plan, Path]) -> None:
    replay, plan, _ = finite
    for gpu in ("h0/0", "h1/0"):
        measured = on_gpu(replay.timeline, gpu)
        assert all(first[1] <= second[0] for first, second in pairwise(measured))
        planned = planned_on(plan, gpu, 2, plan.objective)
        assert [entry[2:] for entry in measured] == [entry[1:] for entry in planned]


def test_transfers_on_a_link_follow_the_plan_and_the_barrier_holds(finite: tuple[Replay, Plan, Path]) -> None:
    replay, plan, _ = finite
    moved = []
    for number, job in enumerate(replay.timeline.jobs):
        for k, iteration in enumerate(job.iterations):
            planned = plan.jobs[number].iterations[k % len(plan.jobs[number].iterations)].transfers
            assert [t.bucket for t in iteration.transfers] == [t.bucket for t in planned]
            assert iteration.transfers[:1] == () or all(
                b.start_us <= iteration.transfers[0].end_us for b in iteration.blocks
            )
            turn = k // len(plan.jobs[number].iterations)
            moved += [
                (turn, p.start_us, t.start_us, t.end_us) for p, t in zip(planned, iteration.transfers, strict=True)
            ]
        for before, after in pairwise(job.iterations):
            assert max(b.end_us for b in before.blocks) <= min(b.end_us for b in after.blocks)
    assert len(moved) == 2 * 2 * 2 * 3
    ordered = sorted(moved)
    assert all(first[3] <= second[2] for first, second in pairwise(ordered))


def test_the_document_says_what_it_is_and_reads_back(finite: tuple[Replay, Plan, Path]) -> None:
    replay, plan, folder = finite
    document = json.loads((folder / "replay.json").read_text())
    jsonschema.validate(document, schema("replay"))
    assert decode_replay(encode_replay(replay)) == replay
    assert replay.plan_sha256 == plan_sha256(plan) and replay.instance_sha256 == plan.instance_sha256
    assert replay.summary.predicted_us == plan.objective and replay.summary.measured_us
    assert replay.machine["backend"] == "gloo" and replay.machine["processes"] == 2
    parameters = 4 * (65 * 64 + 65 * 64 + 65 * 10)
    for gpu in replay.gpus:  # weights, gradients and momentum of its workers; the instance plans four times the weights
        held = 3 * parameters * sum(gpu.name in job.gpus for job in plan.data_parallel)
        assert held < gpu.memory_bytes < held + 10_000 < gpu.planned_memory_bytes
    assert len(replay.timeline.origins_us) == 2
    assert [len(job.iterations) for job in replay.timeline.jobs] == [4, 4, 6]
    digests = [set(job.parameters_sha256) for job in replay.timeline.jobs]
    assert all(len(own) == 1 for own in digests) and len(set.union(*digests)) == 3


def test_a_model_that_cannot_be_built_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = instance()
    bare = type(problem.models["net"])(problem.models["net"].segments)
    source, plan = written(tmp_path, type(problem)(problem.name, problem.cluster, {"net": bare}, problem.jobs))
    ends("3: missing-field $.models.net", "run", source, plan)


def test_jobs_on_different_processes_take_turns_on_a_common_link(tmp_path: Path) -> None:
    """Hosts in a row; job a sits on the outer ones, b on the last two, so only the second cable is common."""
    base = json.loads(encode_instance(instance()))
    servers = [{**base["cluster"]["servers"][0], "name": f"h{k}", "gpu_type": kind} for k, kind in enumerate("xyz")]
    cable = base["cluster"]["links"][0]
    links = [{**cable, "name": f"cable{k}", "ends": [f"h{k}", f"h{k + 1}"]} for k in range(2)]
    models = {
        name: {
            **base["models"]["net"],
            "segments": [
                {**s, "forward_us": dict.fromkeys(kinds, 300), "backward_us": dict.fromkeys(kinds, 500)}
                for s in base["models"]["net"]["segments"]
            ],
        }
        for name, kinds in (("outer", "xz"), ("right", "yz"))
    }
    jobs = [{**base["jobs"][0], "name": name, "model": name, "iterations": 4} for name in models]
    problem = instance(cluster={"servers": servers, "switches": [], "links": links}, models=models, jobs=jobs)
    replay = replayed(tmp_path, problem, "--dry")
    plan = load_plan(tmp_path / "plan.json")
    assert [set(job.gpus) for job in plan.jobs] == [{"h0/0", "h2/0"}, {"h1/0", "h2/0"}]
    moved = sorted(
        (p.start_us, m.start_us, m.end_us)
        for job, measured in zip(plan.jobs, replay.timeline.jobs, strict=True)
        for planned, found in zip(job.iterations, measured.iterations, strict=True)
        for p, m in zip(planned.transfers, found.transfers, strict=True)
    )
    assert len(moved) == 2 * 4 * 3
    assert all(first[2] <= second[1] for first, second in pairwise(moved))


def test_periods_overlap(tmp_path: Path) -> None:
    """All processes of a cyclic plan stop after the same period, with blocks in the plan's order."""
    replay = replayed(tmp_path, instance(**CYCLIC), "--iterations", 20, "--time-triggered", "--dry")
    plan = load_plan(tmp_path / "plan.json")
    assert plan.period_us is not None and replay.timeline.passes == 20
    assert replay.timeline.origins_us == ()
    for measured, job in zip(replay.timeline.jobs, plan.jobs, strict=True):
        assert len(measured.iterations) == replay.timeline.passes * len(job.iterations)
    for gpu in ("h0/0", "h1/0"):
        blocks = on_gpu(replay.timeline, gpu)
        planned = planned_on(plan, gpu, replay.timeline.passes, plan.period_us)
        assert [entry[2:] for entry in blocks] == [entry[1:] for entry in planned]
        # Paced: nothing begins before its time, counted from the same moment for all.
        assert all(block[0] >= expected[0] for block, expected in zip(blocks, planned, strict=True))
    assert replay.summary.objective == "period" and replay.summary.measured_us is not None
    assert replay.summary.measured_us >= plan.period_us * 0.99


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_two_agents_end_with_the_parameters_of_one_host(tmp_path: Path) -> None:
    problem = instance()
    alone = replayed(tmp_path, problem, "--iterations", 2)
    output, port = tmp_path / "two.json", free_port()
    run = ["run", tmp_path / "instance.json", tmp_path / "plan.json", "--iterations", 2, "-o", output]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", 2, "--nproc-per-node", 1]
    meeting = ["--master-addr", "127.0.0.1", "--master-port", port]
    agents = [
        subprocess.Popen(
            [str(part) for part in (*launcher, *meeting, "--node-rank", node, "-m", "jigsaw_opt", *run)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            text=True,
        )
        for node in range(2)
    ]
    printed = [agent.communicate(timeout=240)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], printed
    assert "makespan predicted" in printed[0] and "makespan predicted" not in printed[1]
    two = load_replay(output)
    assert [job.parameters_sha256 for job in two.timeline.jobs] == [
        job.parameters_sha256 for job in alone.timeline.jobs
    ]
    losses = [[[b.loss for b in i.blocks] for job in r.timeline.jobs for i in job.iterations] for r in (alone, two)]
    assert losses[0] == losses[1]
