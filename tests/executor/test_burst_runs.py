"""Bursts carried out: gradients, replays, and shapes that are none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

import piped  # noqa: E402
from replayed import run  # noqa: E402

from jigsaw_opt.documents import instance_sha256, load_plan, load_replay, save_instance, save_plan  # noqa: E402
from jigsaw_opt.documents.readers.profiles.burst_costs import read_burst_costs  # noqa: E402
from jigsaw_opt.documents.replay import require_replay_of  # noqa: E402
from jigsaw_opt.executor.catalogue import stages_entry  # noqa: E402
from jigsaw_opt.executor.pipeline.hosted_burst import rows_of  # noqa: E402
from jigsaw_opt.executor.processes import run_group  # noqa: E402
from jigsaw_opt.executor.replay.request import ReplayRequest  # noqa: E402
from jigsaw_opt.planning.burst import burst_instance, exact_plan  # noqa: E402
from jigsaw_opt.planning.burst.schedule import gpus_per_layer  # noqa: E402
from jigsaw_opt.problem import Instance, Model  # noqa: E402
from jigsaw_opt.problem.compiled.timetable import job_end  # noqa: E402
from jigsaw_opt.problem.job import Job, StaircaseDepth  # noqa: E402
from jigsaw_opt.problem.model import Segment  # noqa: E402
from jigsaw_opt.problem.rules.keyed import altered  # noqa: E402
from jigsaw_opt.problem.task_graph import Edge, TaskGraphJob  # noqa: E402
from jigsaw_opt.solvers.options import Options  # noqa: E402
from jigsaw_opt.solvers.solve import solve  # noqa: E402

WIDTHS = (2, 1, 3, 3, 1)
SIZES = (4 * 65 * 64, 4 * 65 * 64, 4 * 65 * 10)


def costs() -> dict[str, Any]:
    """Five layers, each with one choice of GPUs, and times for moving and synchronising."""
    layers = []
    for number, gpus in enumerate(WIDTHS):
        config = {"gpus": gpus, "gpu_us": 900.0, "fwd_us": 300.0, "bwd_us": 600.0, "sync_us": 90.0 * (gpus > 1)}
        layer = {"id": number, "name": "linear", "single_gpu_us": 900.0, "configs": [config]}
        layers.append(layer | ({"xfer_us": [[80.0 * (gpus != WIDTHS[number - 1])]]} if number else {}))
    return {"gpus": 3, "layers": layers}


def instance() -> Instance:
    plan = exact_plan(read_burst_costs(json.dumps(costs())), 100.0)
    return burst_instance(plan, "burst", "finite")


def shape_of(of: Instance) -> Any:
    [job] = of.jobs
    assert isinstance(job, TaskGraphJob)
    return job.shape


def test_samples_are_shared_out_evenly() -> None:
    assert [rows_of(rank, 3, 12) for rank in range(4)] == [range(4), range(4, 8), range(8, 12), range(0)]


def test_bursts_are_known_by_their_operations() -> None:
    shape = shape_of(instance())
    assert gpus_per_layer(shape) == WIDTHS
    for changed, told in (
        (altered(shape, edges=shape.edges[1:]), "do not follow one another"),
        (altered(shape, edges=(*shape.edges, Edge("F0", "B0"))), "do not follow one another"),
        (altered(shape, blocks=(replace(shape.blocks[0], name="X0"), *shape.blocks[1:])), "not those of layers"),
        (altered(shape, blocks=(replace(shape.blocks[0], slots=("gpu1", "gpu0")), *shape.blocks[1:])), "first slots"),
    ):
        assert told in str(gpus_per_layer(changed))
    assert stages_entry(instance(), ["own:net"]) == {"train": "own:net", "arguments": {}, "cuts": []}


@pytest.mark.slow
def test_gradients_of_a_burst_are_those_of_one_process(tmp_path: Path) -> None:
    of = instance()
    plan = solve(of, "greedy", Options(threads=1)).plan
    assert plan is not None
    entry = {"train": "piped:layers", "arguments": {}, "cuts": []}
    found = run_group(piped.burst, 3, ReplayRequest(instance=of, plan=plan), entry)
    assert [layers for layers, _, _ in found] == [[0, 1, 2, 3, 4], [0, 2, 3], [2, 3]]
    assert all(largest > 1e-3 and difference < 1e-6 for _, difference, largest in found)


@pytest.mark.slow
def test_a_burst_and_a_job_beside_it_train_as_without_one_another(tmp_path: Path) -> None:
    segments = tuple(Segment(f"dense{n}", {"gpu": 100}, {"gpu": 200}, size, 64) for n, size in enumerate(SIZES))
    network = {"zoo": "mlp", "arguments": {"hidden": [64, 64]}, "batch_size": 4}
    burst = instance()
    spb = Job("spb", "net", 2, 2, depth=StaircaseDepth())
    models = {"net": Model(segments, executor=network)}
    cluster = replace(burst.cluster, servers=(replace(burst.cluster.servers[0], gpu_memory=10**9),))
    whole = replace(burst, cluster=cluster, models=models, jobs=(spb, *burst.jobs))
    plan = solve(whole, "greedy", Options(threads=1)).plan
    assert plan is not None and {*plan.jobs[0].gpus} < {*plan.jobs[1].gpus}
    found = []
    for names in (("spb", "burst"), ("spb",), ("burst",)):
        own = altered(whole, jobs=tuple(job for job in whole.jobs if job.name in names))
        kept = plan.with_jobs(tuple(job for job in plan.jobs if job.name in names))
        files = tmp_path / "instance.json", tmp_path / "plan.json"
        save_instance(own, files[0])
        length = max(map(job_end, kept.jobs))
        save_plan(
            replace(kept, instance_sha256=instance_sha256(own), objective=length, bound=0, status="feasible"), files[1]
        )
        seed = ("--seed", 1) if names == ("burst",) else ()
        output = tmp_path / "replay.json"
        common = ("--trust", "piped:layers", "--iterations", 3, "--warm-up", 1, "-o", output)
        assert run("run", *files, *common, *seed) == 0
        found.append({job.name: job.parameters_sha256 for job in load_replay(output).timeline.jobs})
    assert found[0] == found[1] | found[2] and len(found[0]) == 2


@pytest.mark.slow
def test_a_burst_is_measured(tmp_path: Path) -> None:
    files, replay = (tmp_path / "burst.json", tmp_path / "plan.json"), tmp_path / "replay.json"
    (tmp_path / "costs.json").write_text(json.dumps(costs()))
    assert run("burst", tmp_path / "costs.json", "--limit", 100, "-o", files[0]) == 0
    assert run("solve", files[0], "--solver", "greedy", "-o", files[1], "-q") == 0
    assert run("run", *files, "--trust", "piped:layers", "--iterations", 2, "-o", replay) == 0
    found = load_replay(replay)
    require_replay_of(load_plan(files[1]), found, "replay")
    assert set(found.kinds) == set("AFBSG") and found.kinds["F"].count == 10
    [job] = found.timeline.jobs
    assert len({digest.split("+")[-1] for digest in job.parameters_sha256[1:]}) == 1, "layer 3 is the same on both"
    assert run("plot", *files, "--replay", replay, "-o", tmp_path / "burst.html") == 0
