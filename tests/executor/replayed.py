"""The instance that the tests of the replay carry out, and commands on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jigsaw_opt.cli import main
from jigsaw_opt.documents import decode_instance, load_replay, save_instance, save_plan
from jigsaw_opt.problem import Instance
from jigsaw_opt.problem.measured.replay import Replay
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def instance(**changes: Any) -> Instance:
    """Two hosts of one GPU, a link, and three jobs that share them: two of two workers, one of one."""
    sizes = (("dense0", 4 * 65 * 64), ("dense1", 4 * 65 * 64), ("dense2", 4 * 65 * 10))
    segments = [
        {"name": name, "forward_us": {"box": 300}, "backward_us": {"box": 500}, "parameter_bytes": size}
        | {"activation_bytes": 4096}
        for name, size in sizes
    ]
    hosts = ("h0", "h1")
    host = {"gpu_type": "box", "gpus": 1, "gpu_memory": 10**9, "fabric_bandwidth": 10**9}
    job = {"model": "net", "workers": 2, "iterations": 2, "depth": {"rule": "staircase"}}
    document: dict[str, Any] = {
        "format": "jigsaw-instance/1",
        "name": "three jobs",
        "cluster": {
            "servers": [{"name": name, **host} for name in hosts],
            "links": [{"name": "cable", "ends": hosts, "bandwidth": 10**9, "latency_us": 50}],
        },
        "models": {
            "net": {
                "segments": segments,
                "executor": {"zoo": "mlp", "arguments": {"hidden": [64, 64]}, "batch_size": 4},
            }
        },
        "jobs": [{"name": "a", **job}, {"name": "b", **job}, {"name": "c", **job, "workers": 1, "iterations": 3}],
        "horizon": "finite",
        "objective": "makespan",
    }
    return decode_instance(json.dumps({**document, **changes}))


def written(folder: Path, problem: Instance) -> tuple[Path, Path]:
    """Files of an instance and of a plan for it."""
    files = folder / "instance.json", folder / "plan.json"
    plan = solve(problem, "greedy", Options(seed=0)).plan
    assert plan is not None
    save_instance(problem, files[0])
    save_plan(plan, files[1])
    return files


def replayed(folder: Path, problem: Instance, *options: object) -> Replay:
    """The replay of a plan from the command line."""
    source, plan = written(folder, problem)
    output = folder / "replay.json"
    assert run("run", source, plan, "-o", output, *options) == 0
    return load_replay(output)
