"""Started by torchrun on two hosts, a plan comes to the same parameters as on one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from replayed import instance, replayed  # noqa: E402

from jigsaw_opt.documents import load_replay  # noqa: E402


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_two_agents_end_with_the_parameters_of_one_host(tmp_path: Path) -> None:
    problem = instance()
    alone = replayed(tmp_path, problem, "--iterations", 2)
    output, port = tmp_path / "two.json", free_port()
    run = ["run", tmp_path / "plan.json", "--instance", tmp_path / "instance.json", "--iterations", 2, "-o", output]
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
