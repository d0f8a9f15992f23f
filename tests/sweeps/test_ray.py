"""The same sweeps on a Ray cluster of two nodes, one of which dies in mid-run."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.sweeps.engine_ray import RayEngine
from jigsaw_opt.sweeps.record import Record
from jigsaw_opt.sweeps.task import SweepTask, rows_of, sweep
from tests.refusals import misuse
from tests.sweeps.calls import calls, killed, measured_once_open, squared
from tests.sweeps.test_sweep import wait_for

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (extra ray)")
STORE_BYTES = 80_000_000
# What a row tells of the machine that it was made on, and not of the simulation.
OF_THE_MACHINE = {"host", "seconds", "cpu_seconds", "median_policy_ms", "p95_policy_ms"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    made = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "object_store_memory": STORE_BYTES, "include_dashboard": False},
    )
    try:
        yield made
    finally:
        made.shutdown()


def test_a_task_that_kills_its_process_is_an_error_row(cluster: Any, tmp_path: Path) -> None:
    tasks = [SweepTask("killed", killed, (tmp_path, 99)), SweepTask("0", squared, (tmp_path, 3))]
    with Record(tmp_path / "rows.jsonl") as record:
        sweep(tasks, RayEngine(cluster.address), record)
        died, fine = rows_of(tasks, record)
    assert died["error"] and "square" not in died
    assert (fine["error"], fine["square"]) == (None, 9)


def measures(folder: Path) -> list[dict[str, Any]]:
    """The rows of a sweep without what is of the machine, in the order of their keys."""
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    made = [{name: row[name] for name in row if name not in OF_THE_MACHINE} for row in rows]
    return sorted(made, key=lambda row: str(row["key"]))


def test_simulations_on_the_cluster_are_those_of_this_machine_though_a_node_dies(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, ray, local = tmp_path / "trace.csv", tmp_path / "ray", tmp_path / "local"
    # Names so long that a task's arguments, above 100 kB, do not travel with it but lie in the cluster's store.
    jobs = [f"{k:0300},{k % 97},seconds,{1 + k % 4},{1 + 7919 * k % 300}" for k in range(400)]
    trace.write_text("\n".join(["name,submit_s,model,gpus,iterations", *jobs]) + "\n")
    command = ["simulate", "--sweep", "--workload", str(trace), "--policy", "fifo", "srtf", "--seeds", "0,1"]
    command += ["--cluster", "server/plain", "--draw-models"]
    node = cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)

    def kill_the_node() -> None:
        # A core on each node: now one of the two that wait for the gate is on this node.
        try:
            wait_for(lambda: len(calls(tmp_path)) == 2)
            cluster.remove_node(node, allow_graceful=False)
        finally:
            (tmp_path / "gate").touch()

    with monkeypatch.context() as patch:
        patch.setattr("jigsaw_opt.sweeps.simulations.measure", measured_once_open(tmp_path))
        killer = threading.Thread(target=kill_the_node)
        killer.start()
        assert main([*command, "--engine", "ray", "--address", cluster.address, "-o", str(ray)]) == 0
        killer.join()
    started = Counter(name for name, _ in calls(tmp_path))
    assert sorted(started) == ["fifo-0", "fifo-1", "srtf-0", "srtf-1"]
    assert sorted(started.values()) == [1, 1, 1, 2], "what the node had under way was started once more"
    assert os.getpid() not in {int(pid) for _, pid in calls(tmp_path)}
    assert main([*command, "-o", str(local)]) == 0
    assert measures(ray) == measures(local)
    assert [row["error"] for row in measures(ray)] == [None] * 4


def test_a_task_larger_than_every_node_is_refused(cluster: Any, tmp_path: Path) -> None:
    with misuse("does-not-fit cores"):
        next(RayEngine(cluster.address, cores=64).run([SweepTask("0", squared, (tmp_path, 3))]))
