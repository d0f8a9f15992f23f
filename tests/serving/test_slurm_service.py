"""The client beside a pretended Slurm, with a real service that decides: killed, refused, and begun again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from socket import create_server
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra serve)")

import uvicorn

from jigsaw_opt import LiveScheduler
from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.scheduling import JobFinished
from jigsaw_opt.serving.slurm import commands
from jigsaw_opt.serving.slurm.client import ClientSetting, SlurmClient
from jigsaw_opt.serving.slurm.cluster import SlurmCluster
from jigsaw_opt.serving.slurm.commands import Command
from jigsaw_opt.serving.slurm.log import ClientLog, read_log
from jigsaw_opt.serving.slurm.reading import read_nodes
from jigsaw_opt.serving.slurm.scheduler import ServedScheduler, ServiceError
from jigsaw_opt.serving.tokens import read_tokens
from tests.serving.pretended_slurm import PretendedSlurm
from tests.serving.services import JournalStore, ServedPaths, Service, ServiceLimits, Tokens
from tests.serving.test_slurm_client import ACT, POLICY, KilledError

TOKEN = "0123456789abcdef"


def cluster_of(slurm: PretendedSlurm) -> Cluster:
    """Return the nodes of a Slurm as a cluster."""
    return SlurmCluster(read_nodes(slurm(commands.NODES))).cluster


@contextmanager
def listening(folder: Path, slurm: PretendedSlurm, tokens: Tokens | None = None, **own: Any) -> Iterator[str]:
    """Serve the nodes of a Slurm on a free port inside the block; yields the address."""
    limits = ServiceLimits(lease_s=0.3)
    cluster = cluster_of(slurm)

    def make(given: Any, **more: Any) -> LiveScheduler:
        return LiveScheduler(cluster, **given, **more)

    store = JournalStore(folder / "served.db", limits.lease_s)
    service = Service(
        store, make, {"policy": POLICY, "round_us": 0, "restart_us": 0}, clock=slurm.clock, limits=limits, **own
    )
    service.start()
    application = ServedPaths(service, tokens)
    server = uvicorn.Server(uvicorn.Config(application.app, log_config=None, access_log=False, ws="none"))
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]  # a thread takes no signals
    with create_server(("127.0.0.1", 0)) as sockets:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sockets]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{sockets.getsockname()[1]}"
        finally:
            server.should_exit = True
            application.end()
            thread.join()
            service.stop()


def client_of(url: str, slurm: PretendedSlurm, log: ClientLog, setting: ClientSetting = ACT) -> SlurmClient:
    """Return a client that asks the service."""
    return SlurmClient(
        slurm, log, lambda found: ServedScheduler(url, TOKEN, found, not setting.act), setting, slurm.clock
    )


def play(url: str, slurm: PretendedSlurm, path: Path, polls: int, killed: list[Command]) -> None:
    """Look so often, with a new client whenever the last one was killed."""
    left = polls
    while left:
        with ClientLog(path) as log:
            try:
                client = client_of(url, slurm, log)
                while left:
                    left -= 1
                    assert client.poll()
                    slurm.advance(5)
            except KilledError:
                assert killed


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_client_that_is_killed_at_every_third_command_starts_each_job_once(tmp_path: Path, when: str) -> None:
    slurm, killed, count = PretendedSlurm(2, 4), list[Command](), 0

    def kill(command: Command) -> None:
        nonlocal count
        if command[0] == "scontrol":
            count += 1
            if count % 3 == 1:
                killed.append(command)
                raise KilledError

    setattr(slurm, when, kill)
    sizes = ((4, 1), (8, 2), (1, 1), (3, 1), (2, 1), (4, 1), (1, 1))
    jobs = [slurm.submit(gpus, 12, nodes=nodes, held=k != 3) for k, (gpus, nodes) in enumerate(sizes)]
    with listening(tmp_path, slurm) as url:
        play(url, slurm, tmp_path / "log", 60, killed)
    assert len(killed) >= 5
    assert [job.state for job in jobs] == ["COMPLETED"] * len(jobs)
    assert [len(job.started) for job in jobs] == [1] * len(jobs)
    ended = [entry["job"] for entry in read_log(tmp_path / "log") if entry["entry"] == "ended"]
    assert sorted(ended) == [job.name for job in jobs]
    assert "given-back" not in [entry["entry"] for entry in read_log(tmp_path / "log")]


def test_a_service_that_is_away_is_waited_for_and_asked_what_it_knows(tmp_path: Path) -> None:
    slurm = PretendedSlurm(1, 4)
    first, second = slurm.submit(4, 100), slurm.submit(4, 20)
    with ClientLog(tmp_path / "log") as log:
        with listening(tmp_path, slurm) as url:
            client = client_of(url, slurm, log)
            assert client.poll()
            slurm.advance(10)
        slurm.fail("n0", delay_s=30)
        assert not client.poll()
        assert not client.poll()
        with listening(tmp_path, slurm) as url:
            client._connect = lambda found: ServedScheduler(url, TOKEN, found, False)
            for _ in range(40):
                assert client.poll()
                slurm.advance(10)
                slurm.states["n0"] = "idle"
    assert [job.state for job in (first, second)] == ["COMPLETED"] * 2
    assert (len(first.started), len(second.started)) == (2, 1)
    said = [entry["text"] for entry in read_log(tmp_path / "log") if entry.get("subject") == "service"]
    assert len(said) == 1
    assert said[0].startswith("the service does not answer: ")


def test_jobs_that_slurm_has_no_more_end_in_the_service(tmp_path: Path) -> None:
    slurm = PretendedSlurm(1, 4)
    slurm.has_accounting = True
    job = slurm.submit(2, 20)
    with listening(tmp_path, slurm) as url:
        with ClientLog(tmp_path / "log") as log:
            client_of(url, slurm, log).poll()
        slurm.advance(100)
        slurm.forgotten = {job.name}
        # The log is lost: what the service knows is enough.
        with ClientLog(tmp_path / "other") as log:
            client_of(url, slurm, log).poll()
        assert ServedScheduler(url, TOKEN, cluster_of(slurm), False).known().jobs == {}
    (ended,) = (entry for entry in read_log(tmp_path / "other") if entry["entry"] == "ended")
    assert (ended["job"], ended["state"]) == ("1", "COMPLETED")


def test_a_shadow_asks_a_shadow_and_predicts(tmp_path: Path) -> None:
    slurm = PretendedSlurm(1, 4)
    slurm.submit(4, 500, held=False, limit_s=600)
    slurm.submit(2, 500, held=False, limit_s=600)
    with listening(tmp_path, slurm, shadow=True) as url:
        with pytest.raises(UsageError, match="is a shadow, so the client must not --act"):
            ServedScheduler(url, TOKEN, cluster_of(slurm), False).known()
        with ClientLog(tmp_path / "log") as log:
            client = client_of(url, slurm, log, ClientSetting())
            for _ in range(3):
                client.poll()
                slurm.advance(5)
    assert {command[0] for command in slurm.called} == {"squeue", "sinfo"}
    (predicted,) = (entry for entry in read_log(tmp_path / "log") if entry["entry"] == "predicted")
    assert (predicted["job"], predicted["middle_us"] // 10**6) == ("2", slurm.jobs[1].begins_s + 600)


def test_what_a_service_refuses(tmp_path: Path) -> None:
    slurm, cluster = PretendedSlurm(1, 4), cluster_of(PretendedSlurm(1, 4))
    path = tmp_path / "tokens"
    path.write_text(f'{{"token": "{TOKEN}", "name": "slurm", "role": "operate"}}\n')
    with listening(tmp_path, slurm, read_tokens(path)) as url:
        scheduler = ServedScheduler(url, TOKEN, cluster, False)
        assert scheduler.known() == ({}, {})
        with pytest.raises(UsageError, match="'7'"):
            scheduler.handle(JobFinished(0, "7"))
        with pytest.raises(ServiceError, match="401: a known token is needed"):
            ServedScheduler(url, "another", cluster, False).known()
        with pytest.raises(UsageError, match="acts: give it --shadow"):
            ServedScheduler(url, TOKEN, cluster, True).known()
        with pytest.raises(UsageError, match="other nodes than Slurm has: n0"):
            ServedScheduler(url, TOKEN, cluster_of(PretendedSlurm(1, 8)), False).known()
        with pytest.raises(ServiceError, match="404"):
            ServedScheduler(f"{url}/elsewhere", TOKEN, cluster, False).known()


@pytest.mark.parametrize("url", ["http://cluster:8440", "ftp://localhost", "localhost:8440", "https://", ""])
def test_a_token_is_sent_in_the_clear_to_this_machine_alone(url: str) -> None:
    with pytest.raises(UsageError, match="is neither https://HOST nor http:// on this machine"):
        ServedScheduler(url, TOKEN, cluster_of(PretendedSlurm(1, 4)), False)
