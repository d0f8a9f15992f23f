"""The client beside a pretended Slurm: whole days of events, killed at every command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from jigsaw_opt import LiveScheduler
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.scheduling.live.events import ClusterEvent
from jigsaw_opt.serving.slurm import commands
from jigsaw_opt.serving.slurm.belief import Belief
from jigsaw_opt.serving.slurm.client import ClientSetting, SlurmClient
from jigsaw_opt.serving.slurm.cluster import SlurmCluster
from jigsaw_opt.serving.slurm.commands import Command, Runner
from jigsaw_opt.serving.slurm.log import ClientLog, read_log
from jigsaw_opt.serving.slurm.reading import read_jobs, read_nodes
from jigsaw_opt.serving.slurm.scheduler import LocalScheduler
from tests.serving.pretended_slurm import SECOND_US, PretendedSlurm, random_day

POLICY = "backfill:kind=conservative:reserve=servers:placement=consolidated"
ACT = ClientSetting(act=True, patience_us=60 * SECOND_US)


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed process wrote is there without that; it is for machines that lose their power."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


class KilledError(BaseException):
    """The client is killed."""


def client_of(
    slurm: PretendedSlurm,
    log: ClientLog,
    setting: ClientSetting = ACT,
    policy: str = POLICY,
    run: Runner | None = None,
) -> SlurmClient:
    def connect(cluster: Cluster) -> LocalScheduler:
        return LocalScheduler(LiveScheduler(cluster, policy, round_us=0, restart_us=0), not setting.act, 1)

    return SlurmClient(run or slurm, log, connect, setting, slurm.clock)


def kinds(path: Path) -> list[str]:
    return [entry["entry"] for entry in read_log(path)]


def test_held_jobs_run_where_the_plan_says(tmp_path: Path) -> None:
    slurm = PretendedSlurm(2, 4)
    first = slurm.submit(3, 50, held=False)
    one, wide, two = slurm.submit(2, 30), slurm.submit(8, 30, nodes=2), slurm.submit(1, 30)
    with ClientLog(tmp_path / "log") as log:
        client = client_of(slurm, log)
        for _ in range(30):
            assert client.poll()
            slurm.advance(5)
    assert all(len(job.started) == 1 for job in slurm.jobs.values())
    planned = {e["job"]: tuple(e["nodes"]) for e in read_log(tmp_path / "log") if e["entry"] == "plan"}
    assert {str(job.number): job.started[0][1] for job in (one, wide, two)} == planned
    assert wide.started[0][0] >= first.ends_s
    told = {e["job"]: e["nodes"] for e in read_log(tmp_path / "log") if e["entry"] == "running"}
    assert {job: tuple(nodes) for job, nodes in told.items()} == {"1": ("n0",), **planned}


def test_shadow_sends_nothing_and_says_what_it_would_do(tmp_path: Path) -> None:
    slurm = PretendedSlurm(1, 4)
    slurm.submit(3, 40, held=False)
    slurm.submit(2, 40, held=False)
    slurm.submit(1, 40, held=True)
    with ClientLog(tmp_path / "log") as log:
        client = client_of(slurm, log, ClientSetting())
        for _ in range(20):
            client.poll()
            slurm.advance(5)
    assert {command[0] for command in slurm.called} == {"squeue", "sinfo"}
    entries = list(read_log(tmp_path / "log"))
    assert [e["job"] for e in entries if e["entry"] == "running"] == ["1", "2"]
    (predicted,) = (e for e in entries if e["entry"] == "predicted")
    # Job 1 is taken to last as long as it may, an hour.
    assert (predicted["job"], predicted["middle_us"] // SECOND_US) == ("2", slurm.jobs[1].begins_s + 3600)
    # Job 3 is held by its user, which is nobody else's affair.
    assert "jobs are held: 1" in [e.get("text") for e in entries]


def test_what_is_not_for_the_client_is_left_alone(tmp_path: Path) -> None:
    slurm = PretendedSlurm(1, 4)
    other = slurm.submit(1, 10, comment="by hand")
    own = slurm.submit(1, 10, comment="for jigsaw")
    slurm.submit(0, 10)
    setting = ClientSetting(act=True, comment="jigsaw", partition="low")
    with ClientLog(tmp_path / "log") as log:
        client = client_of(slurm, log, setting)
        client.poll()
    assert not other.started
    assert len(own.started) == 1
    text = "jobs wait in other partitions or without the comment: 1; jobs without a GPU wait: 1"
    assert text in [entry.get("text") for entry in read_log(tmp_path / "log")]


def test_a_job_that_names_its_nodes_is_given_back(tmp_path: Path) -> None:
    slurm = PretendedSlurm(2, 4)
    job = slurm.submit(1, 10, wanted=("n1",))
    with ClientLog(tmp_path / "log") as log:
        client_of(slurm, log).poll()
    assert job.started == [(slurm.now_s, ("n1",))]
    assert "given-back" in kinds(tmp_path / "log")


def test_a_start_that_fails_again_and_again_is_given_back(tmp_path: Path) -> None:
    slurm = PretendedSlurm(1, 4)
    job = slurm.submit(1, 10)
    slurm.refuses = lambda command: command[1] == "update" and command[-1] != "reqnodelist="
    with ClientLog(tmp_path / "log") as log:
        client = client_of(slurm, log)
        for _ in range(4):
            client.poll()
    assert kinds(tmp_path / "log").count("failed") == 3
    assert len(job.started) == 1


def test_a_node_that_fails_and_one_that_closes(tmp_path: Path) -> None:
    slurm = PretendedSlurm(3, 4)
    jobs = [slurm.submit(4, 100) for _ in range(3)]
    with ClientLog(tmp_path / "log") as log:
        client = client_of(slurm, log)
        client.poll()
        assert sorted(job.started[0][1] for job in jobs) == [("n0",), ("n1",), ("n2",)]
        slurm.advance(10)
        slurm.states["n1"] = "drained"
        slurm.fail("n0")
        for _ in range(60):
            client.poll()
            slurm.advance(5)
    by_node = {job.started[0][1][0]: job for job in jobs}
    assert by_node["n1"].restarts == 0
    # What ran on the failed node runs again elsewhere, once.
    assert [nodes for _, nodes in by_node["n0"].started] == [("n0",), ("n2",)]
    assert all(job.state == "COMPLETED" for job in jobs)


def test_a_job_whose_node_failed_keeps_its_place(tmp_path: Path) -> None:
    slurm = PretendedSlurm(1, 4)
    failed = slurm.submit(4, 1000)
    with ClientLog(tmp_path / "log") as log:
        client = client_of(slurm, log)
        client.poll()
        slurm.advance(10)
        slurm.fail("n0", delay_s=120)
        later = [slurm.submit(4, 200), slurm.submit(4, 200)]
        slurm.advance(10)
        client.poll()
        slurm.states["n0"] = "idle"
        for _ in range(30):
            client.poll()
            slurm.advance(10)
    # Slurm has it wait for two minutes. One job ran meanwhile, and the other one comes after it.
    assert [len(job.started) for job in (failed, *later)] == [2, 1, 0]
    assert failed.started[1][0] >= later[0].ends_s
    assert "jobs wait for a dependency or a time: 1" in [e.get("text") for e in read_log(tmp_path / "log")]


def test_nodes_that_are_added_are_taken_in(tmp_path: Path) -> None:
    slurm = PretendedSlurm(1, 4)
    first, second = slurm.submit(4, 500), slurm.submit(4, 100)
    with ClientLog(tmp_path / "log") as log:
        client = client_of(slurm, log)
        client.poll()
        slurm.advance(10)
        slurm.states["n1"] = "idle"
        client.poll()
    assert [job.started[0][1] for job in (first, second)] == [("n0",), ("n1",)]
    begun = [list(entry["nodes"]) for entry in read_log(tmp_path / "log") if entry["entry"] == "begin"]
    assert begun == [["n0"], ["n0", "n1"]]
    assert [len(job.started) for job in (first, second)] == [1, 1]


def test_tasks_are_predicted_once_their_array_lets_them_run(tmp_path: Path) -> None:
    slurm = PretendedSlurm(1, 2)
    slurm.submit(1, 95, held=False)
    tasks = [slurm.submit(2, 45, array=2, task=k, array_limit=1) for k in range(2)]
    with ClientLog(tmp_path / "log") as log:
        client = client_of(slurm, log)
        for _ in range(20):
            client.poll()
            slurm.advance(10)
    assert all(len(task.started) == 1 for task in tasks)
    predicted = [e["job"] for e in read_log(tmp_path / "log") if e["entry"] == "predicted"]
    assert predicted == ["2_0", "2_1"]


def test_a_slurm_that_does_not_answer_is_waited_for(tmp_path: Path) -> None:
    slurm = PretendedSlurm(1, 4)
    slurm.submit(1, 10)
    with ClientLog(tmp_path / "log") as log:
        client = client_of(slurm, log)
        slurm.answers = False
        assert not client.poll()
        assert not client.poll()
        slurm.answers = True
        assert client.poll()
    told = [e["text"] for e in read_log(tmp_path / "log") if e.get("subject") == "slurm"]
    assert told == ["Slurm does not answer: Unable to contact slurm controller", "Slurm answers"]


@pytest.mark.parametrize("has_accounting", [True, False])
def test_jobs_that_slurm_forgot_while_the_client_was_away(tmp_path: Path, has_accounting: bool) -> None:
    slurm = PretendedSlurm(1, 4)
    slurm.has_accounting = has_accounting
    ended, listed, waits = slurm.submit(1, 20), slurm.submit(1, 30), slurm.submit(4, 10)
    for forgotten in ((), (ended,), (ended,)):
        slurm.forgotten = {job.name for job in forgotten}
        with ClientLog(tmp_path / "log") as log:
            client = client_of(slurm, log)
            for _ in range(3):
                client.poll()
                slurm.advance(1)
        slurm.advance(100)
    told = {entry["job"]: entry for entry in read_log(tmp_path / "log") if entry["entry"] == "ended"}
    assert kinds(tmp_path / "log").count("ended") == len(told) == 3
    states = ["COMPLETED" if has_accounting else "UNKNOWN", "COMPLETED", "COMPLETED"]
    assert [told[job.name]["state"] for job in (ended, listed, waits)] == states
    ends = [told[job.name]["end_us"] for job in (ended, listed, waits)]
    assert ends == [
        ended.ends_s * SECOND_US if has_accounting else None,
        listed.ends_s * SECOND_US,
        waits.ends_s * SECOND_US,
    ]
    # The accounting is asked once.
    assert [command[-1] for command in slurm.called if command[0] == "sacct"] == ["--jobs=1"]
    said = [entry["text"] for entry in read_log(tmp_path / "log") if entry.get("subject") == "accounting"]
    assert said == ["Slurm accounting storage is disabled"] * (not has_accounting)


def test_without_leave_to_preempt_nothing_that_runs_is_stopped(tmp_path: Path) -> None:
    slurm = PretendedSlurm(1, 4)
    slurm.submit(4, 500, held=False, limit_s=9_000)
    slurm.submit(4, 10, limit_s=60)
    with ClientLog(tmp_path / "log") as log:
        client = client_of(slurm, log, policy="srtf")
        for _ in range(30):
            client.poll()
            slurm.advance(30)
    told = [entry.get("text") for entry in read_log(tmp_path / "log")]
    assert "it is not stopped, and runs on" in told
    assert all(job.restarts == 0 and len(job.started) == 1 for job in slurm.jobs.values())


def test_a_preempting_policy_requeues_what_may_be_requeued(tmp_path: Path) -> None:
    slurm = PretendedSlurm(1, 4)
    old = slurm.submit(4, 5_000, limit_s=9_000)
    with ClientLog(tmp_path / "log") as log:
        client = client_of(slurm, log, ClientSetting(act=True, preempt=True), "srtf")
        new = None
        for k in range(200):
            client.poll()
            slurm.advance(60)
            if k == 5:
                new = slurm.submit(4, 600, limit_s=900)
    assert new is not None
    assert old.restarts >= 1
    assert (old.state, new.state) == ("COMPLETED", "COMPLETED")
    requeued = [command for command in slurm.called if command[:2] == ("scontrol", "requeuehold")]
    assert len(requeued) == old.restarts + new.restarts
    assert len(old.started) == old.restarts + 1


def run_day(
    slurm: PretendedSlurm,
    path: Path,
    happen: Callable[[int], None],
    seconds: int,
    setting: ClientSetting,
    every: int = 5,
) -> int:
    """Play some time, with a new client whenever the last one was killed; return how often that was."""
    killed, second = 0, 0
    while second < seconds:
        with ClientLog(path) as log:
            try:
                client = client_of(slurm, log, setting)
                while second < seconds:
                    second += 1
                    happen(second)
                    slurm.advance(1)
                    if second % every == 0:
                        client.poll()
            except KilledError:
                killed += 1
    return killed


@pytest.mark.parametrize("seed", range(4))
def test_a_day_killed_at_every_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    # Predictions have a test of their own, and take a third of the time.
    monkeypatch.setattr("jigsaw_opt.serving.slurm.client._MOST_PREDICTIONS", 0)
    slurm = PretendedSlurm(3, 4)
    count = 0

    def kill(command: Command) -> None:
        nonlocal count
        if command[0] == "scontrol":
            count += 1
            # Killed after each command, or before each second one, so that something happens at all.
            if seed % 2 == 0 or count % 2:
                raise KilledError

    slurm.before, slurm.after = (kill, slurm.after) if seed % 2 else (slurm.before, kill)
    killed = run_day(slurm, tmp_path / "log", random_day(slurm, seed, True), 300, ACT)
    assert killed > 10
    slurm.before = slurm.after = lambda command: None
    for node in slurm.states:
        slurm.states[node] = "idle"
    jobs = list(slurm.jobs.values())
    for _ in range(15):
        if any(job.state != "COMPLETED" for job in jobs):
            run_day(slurm, tmp_path / "log", lambda second: None, 100, ACT, every=10)
    assert len(jobs) > 10
    assert [job.number for job in jobs if job.state != "COMPLETED"] == []
    assert [job.number for job in jobs if len(job.started) != job.restarts + 1] == []


def test_a_shadow_of_a_day_is_never_wrong_about_what_runs(tmp_path: Path) -> None:
    slurm = PretendedSlurm(3, 4)
    run_day(slurm, tmp_path / "log", random_day(slurm, 7, False), 400, ClientSetting())
    assert "command" not in kinds(tmp_path / "log")
    told = [(e["job"], e["start_us"] // SECOND_US) for e in read_log(tmp_path / "log") if e["entry"] == "running"]
    really = [(str(job.number), start_s) for job in slurm.jobs.values() for start_s, _ in job.started[-1:]]
    assert set(told) >= {one for one in really if one[1] < slurm.now_s - 5}
    refused = [e["text"] for e in read_log(tmp_path / "log") if "refused" in str(e.get("text"))]
    assert refused == []


class EagerScheduler(LocalScheduler):
    """A scheduler that decides as soon as it has taken something in, as a service may."""

    def handle(self, *events: ClusterEvent) -> None:
        """Take the events in, and decide."""
        super().handle(*events)
        self.step(events[0].time_us)


def test_nothing_is_decided_between_events_that_belong_together(tmp_path: Path) -> None:
    slurm = PretendedSlurm(2, 4)
    for _ in range(3):
        slurm.submit(4, 500, held=False)
    with ClientLog(tmp_path / "log") as log:
        cluster = SlurmCluster(read_nodes(slurm(commands.NODES)))
        live = LiveScheduler(cluster.cluster, POLICY, round_us=0, restart_us=0)
        belief = Belief(cluster, EagerScheduler(live, False), log)
        first, second, third = read_jobs(slurm(commands.JOBS), slurm.clock())
        gpus = [tuple(f"{node}/{k}" for k in range(4)) for node in ("n0", "n1")]
        belief.put(first, gpus[0], 0)
        belief.put(second, gpus[1], 0)
        assert belief.submit(third)
        with belief.together():
            for job in (first, second):
                belief.take_off(job.name)
            belief.put(first, gpus[1], 0)
            belief.put(second, gpus[0], 0)
        assert belief.at == {"1": gpus[1], "2": gpus[0], "3": ()}
        # Where one event of a list is refused, the others count.
        with belief.together():
            belief.hold("3", True)
            belief.put(third, gpus[0], 0)
        assert belief.at == {"1": gpus[1], "2": gpus[0], "3": ()}
    (told,) = (e["text"] for e in read_log(tmp_path / "log") if "refused" in str(e.get("text")))
    assert told.startswith("JobRunning is refused: ")


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"name": "c0", "state": "idle", "gres": "gpu:0"}, ""),
        ({"name": "c0", "state": "idle", "gres": "gpumem:40"}, ""),
        ({"name": "n_", "state": "idle", "gres": "gpu:4"}, "n_: 'n_' is no name of a node"),
        ({"name": "c0", "state": "idle", "gres": "gpu:a|b:2"}, "c0: "),
        ({"state": "idle"}, "a row: cannot be read (KeyError)"),
    ],
)
def test_a_node_that_is_strange_keeps_no_job_from_starting(tmp_path: Path, row: dict[str, str], told: str) -> None:
    slurm = PretendedSlurm(2, 4)

    def call(command: Command) -> str:
        if command[:2] == ("scontrol", "release"):
            # Slurm takes longer than two looks to start a job.
            slurm.jobs[int(command[2])].may_begin_s = slurm.now_s + 25
        found = slurm(command)
        return json.dumps({"nodes": [*json.loads(found)["nodes"], row]}) if command[0] == "sinfo" else found

    jobs = [slurm.submit(2, 500) for _ in range(3)]
    with ClientLog(tmp_path / "log") as log:
        client = client_of(slurm, log, run=call)
        for _ in range(6):
            assert client.poll()
            slurm.advance(10)
    assert [len(job.started) for job in jobs] == [1, 1, 1]
    assert kinds(tmp_path / "log").count("begin") == 1
    assert kinds(tmp_path / "log").count("command") == 2 * len(jobs)
    (said,) = (e["text"] for e in read_log(tmp_path / "log") if e.get("subject") == "slurm")
    assert said.startswith(f"Slurm answers, but 1 nodes or jobs are left out: {told}" if told else "Slurm answers")
    assert bool(told) == ("left out" in said)


@pytest.mark.parametrize("wrong", [{"gres_detail": [5]}, {"submit_time": "9" * 5000}])
def test_a_job_that_cannot_be_read_is_left_as_it_is(tmp_path: Path, wrong: dict[str, object]) -> None:
    slurm, looks = PretendedSlurm(1, 4), 0

    def call(command: Command) -> str:
        nonlocal looks
        found = slurm(command)
        if command[0] != "squeue":
            return found
        looks += 1
        rows = json.loads(found)["jobs"]
        return json.dumps({"jobs": [rows[0] | (wrong if looks == 2 else {}), *rows[1:], *rows]})

    first, second = slurm.submit(2, 25), slurm.submit(2, 25)
    slurm.refuses = lambda command: command[:3] == ("scontrol", "release", "2")
    with ClientLog(tmp_path / "log") as log:
        client = client_of(slurm, log, run=call)
        for _ in range(4):
            assert client.poll()
            slurm.advance(10)
    ended = [(entry["job"], entry["state"]) for entry in read_log(tmp_path / "log") if entry["entry"] == "ended"]
    assert ended[0] == ("1", "COMPLETED")
    assert (len(first.started), len(second.started)) == (1, 0)
    # Each row stands there twice, and a command is sent once.
    failed = [entry["time_us"] for entry in read_log(tmp_path / "log") if entry["entry"] == "failed"]
    assert failed.count(failed[0]) == 1
