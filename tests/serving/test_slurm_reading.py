"""Outputs of a Slurm 22.05 with three nodes of four GPUs, and the shapes that later versions print."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.serving.slurm import commands
from jigsaw_opt.serving.slurm.cluster import SlurmCluster
from jigsaw_opt.serving.slurm.commands import Command, SlurmError, run_command
from jigsaw_opt.serving.slurm.log import ClientLog, open_jobs, read_log, released_jobs
from jigsaw_opt.serving.slurm.plain import JOBS_PLAIN, NODES_PLAIN, AnySlurm
from jigsaw_opt.serving.slurm.reading import SlurmJob, SlurmNode, read_ended, read_jobs, read_nodes

DATA = Path(__file__).parents[1] / "data" / "slurm"
NOW_US = 1_796_007_960_000_000


def text(name: str) -> str:
    return (DATA / name).read_text()


def jobs() -> dict[str, SlurmJob]:
    return {job.name: job for job in read_jobs(text("squeue-22.05.json"), NOW_US)}


def test_jobs_of_json() -> None:
    found = jobs()
    assert list(found) == ["1", "2", "3", "4_1", "4_2", "4_3", "4_7", "5", "6", "7", "8", "9"]
    states = {name: job.state for name, job in found.items()}
    assert {name for name in found if states[name] == "runs"} == {"1", "7"}
    assert {name for name in found if states[name] == "ended"} == {"5", "6"}
    assert {name for name, job in found.items() if job.held} == {"2", "3", "4_1", "4_2", "4_3", "4_7", "9"}
    # 8 waits for 1, and 9 may begin in an hour.
    assert {name for name, job in found.items() if not job.ready} == {"8", "9"}
    assert [job.gpus for job in found.values()] == [2, 8, 0, 2, 2, 2, 2, 1, 1, 4, 4, 4]
    assert found["7"].indices == {"n1": (0, 1, 2), "n2": (0,)}
    assert (found["7"].nodes, found["7"].requeue) == (("n1", "n2"), False)
    assert (found["2"].least_nodes, found["2"].most_nodes, found["2"].comment) == (2, 2, "a=b | c")
    assert (found["4_7"].array, found["4_7"].array_limit, found["4_7"].per_node) == ("4", 2, 2)
    assert (found["1"].start_us, found["1"].limit_us) == (1_796_007_950_000_000, 600_000_000)
    assert found["2"].start_us is None


class OldSlurm:
    """A Slurm that refuses JSON with these words, and prints plain text; it keeps what it was asked."""

    def __init__(self, refusal: str, jobs: str, nodes: str = "") -> None:
        self.refusal, self.asked = refusal, list[Command]()
        self._printed = {JOBS_PLAIN: jobs, NODES_PLAIN: nodes}

    def __call__(self, command: Command) -> str:
        """Return what it prints."""
        self.asked.append(command)
        if command not in self._printed:
            raise SlurmError(f"squeue failed: squeue: {self.refusal}")
        return self._printed[command]


def read_plain(lines: str) -> list[SlurmJob]:
    """Return the jobs of plain text."""
    return read_jobs(AnySlurm(OldSlurm("unrecognized option '--json'", lines))(commands.JOBS), NOW_US)


def test_plain_text_tells_the_same_but_for_numbers_of_gpus_and_most_nodes() -> None:
    told = [replace(job, indices={}, most_nodes=None) for job in jobs().values()]
    assert read_plain(text("squeue-22.05.txt")) == told


@pytest.mark.parametrize("refusal", ["invalid option -- '-'", "fatal: Unable to find plugin: serializer/json"])
def test_json_is_asked_for_only_until_it_is_refused(refusal: str) -> None:
    old = OldSlurm(refusal, text("squeue-22.05.txt"), text("sinfo-22.05.txt"))
    run = AnySlurm(old)
    assert len(read_jobs(run(commands.JOBS), NOW_US)) == 12
    assert read_nodes(run(commands.NODES)) == read_nodes(text("sinfo-22.05.json"))
    assert len(read_jobs(run(commands.JOBS), NOW_US)) == 12
    assert old.asked == [commands.JOBS, JOBS_PLAIN, NODES_PLAIN, JOBS_PLAIN]


def test_a_slurm_that_does_not_answer_is_not_asked_in_plain_text() -> None:
    old = OldSlurm("Unable to contact slurm controller (connect failure)", text("squeue-22.05.txt"))
    for _ in range(2):
        with pytest.raises(SlurmError, match="Unable to contact"):
            AnySlurm(old)(commands.JOBS)
    assert old.asked == [commands.JOBS] * 2


def test_plain_text_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(SlurmError, match="2 columns, not 24"):
        read_plain("1|2\n")
    with pytest.raises(SlurmError, match="a time that is no number of seconds: '2026-12-01T10:00:00'"):
        read_plain(text("squeue-22.05.txt").replace("1796007947", "2026-12-01T10:00:00"))
    # An array whose tasks Slurm has shortened, and a task alone, as a record of a job that has several components.
    line = text("squeue-22.05.txt").splitlines()[4]
    (shortened,) = read_plain(line.replace("4_[1-3,7%2]", "4_[1-3,...%2]"))
    assert (shortened.strange, shortened.array_limit) == ("its number cannot be read", 2)
    (task,) = read_plain(line.replace("4_[1-3,7%2]", "4_7"))
    assert (task.name, task.array, task.limit_us) == ("4_7", "4", 86_400_000_000)


@pytest.mark.parametrize(
    ("state", "meant"),
    [("idle", "up"), ("idle*", "down"), ("down$", "down"), ("drng", "closed"), ("mixed-", "up"), ("idle~", "up")],
)
def test_what_states_of_nodes_mean_in_plain_text(state: str, meant: str) -> None:
    run = AnySlurm(OldSlurm("unrecognized option", "", f"n[1-2]|{state}|gpu:4\n"))
    assert read_nodes(run(commands.NODES)) == [SlurmNode("n1", "gpu:4", meant), SlurmNode("n2", "gpu:4", meant)]


def test_how_jobs_ended() -> None:
    job = SlurmJob("7_1", "runs", "RUNNING", 2, start_us=5)
    (known,) = read_ended("7_1|CANCELLED by 0|1796007950|1796007960\nbad line\n", [job])
    assert (known.state, known.told, known.end_us, known.gpus) == ("ended", "CANCELLED by 0", 1_796_007_960_000_000, 2)
    (unknown,) = read_ended("7|COMPLETED|1|2\n7_1|RUNNING|Unknown|Unknown\n", [job])
    assert (unknown.told, unknown.start_us, unknown.end_us) == ("RUNNING", 5, None)
    assert [one.told for one in read_ended("", [job])] == ["UNKNOWN"]
    assert commands.accounting(["7", "8_1"])[-1] == "--jobs=7,8_1"


def changed(number: str, **values: Any) -> SlurmJob:
    """Return a job of the output with other values."""
    tree = json.loads(text("squeue-22.05.json"))
    (row,) = (row for row in tree["jobs"] if str(row["job_id"]) == number)
    (job,) = read_jobs(json.dumps({"jobs": [{**row, **values}]}), NOW_US)
    return job


def test_jobs_come_in_order_of_submission() -> None:
    tree = json.loads(text("squeue-22.05.json"))
    mixed = {"jobs": tree["jobs"][::-1]}
    assert [job.name for job in read_jobs(json.dumps(mixed), NOW_US)] == list(jobs())


def as_later_versions(value: Any, key: str = "") -> Any:
    """Return JSON as versions from 23.11 on print it: numbers that may be unset, and states that are lists."""
    if isinstance(value, dict):
        return {name: as_later_versions(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [as_later_versions(one, key) for one in value]
    if key == "job_state":
        return [value]
    if key in ("array_job_id", "array_task_id", "priority", "node_count", "tasks", "max_nodes", "array_max_tasks"):
        return {"set": value is not None, "infinite": False, "number": value or 0}
    if key in ("time_limit", "submit_time", "start_time", "end_time"):
        return {"set": True, "infinite": False, "number": value}
    return value.replace("gres:", "gres/") if isinstance(value, str) else value


def test_json_of_later_versions_tells_the_same() -> None:
    tree = as_later_versions(json.loads(text("squeue-22.05.json")))
    assert {job.name: job for job in read_jobs(json.dumps(tree), NOW_US)} == jobs()


def test_unlimited_jobs_of_later_versions() -> None:
    tree = as_later_versions(json.loads(text("squeue-22.05.json")))
    tree["jobs"][0]["time_limit"] = {"set": False, "infinite": True, "number": 0}
    tree["jobs"][1] |= {"hold": True, "priority": {"set": True, "infinite": False, "number": 5}}
    tree["jobs"][2]["job_state"] = ["PENDING", "REQUEUE_HOLD"]
    found = {job.name: job for job in read_jobs(json.dumps(tree), NOW_US)}
    assert found["1"].limit_us is None
    assert found["2"].held
    assert (found["3"].state, found["3"].held) == ("waits", True)


@pytest.mark.parametrize(
    ("states", "state"),
    [("RUNNING", "runs"), ("COMPLETING", "runs"), ("SUSPENDED", "runs"), ("NODE_FAIL", "ended"), ("PENDING", "waits")],
)
def test_what_states_mean(states: str, state: str) -> None:
    assert changed("1", job_state=states).state == state


@pytest.mark.parametrize(
    ("resources", "gpus", "types"),
    [
        ("cpu=8,gres/gpu=4,gres/gpu:a100=4", 4, ("a100",)),
        ("cpu=8,gres/gpu:A100=3,gres/gpu:v100=1", 4, ("a100", "v100")),
        ("cpu=8,gres/shard=4", 0, ()),
        ("gres/gpu:1g.10gb=2", 2, ("1g.10gb",)),
    ],
)
def test_gpus_of_resources(resources: str, gpus: int, types: tuple[str, ...]) -> None:
    job = changed("1", tres_alloc_str=resources, tres_req_str="", tres_per_task="")
    assert (job.gpus, job.types) == (gpus, types)


def test_heterogeneous_jobs_and_shortened_arrays_are_left_to_slurm() -> None:
    assert changed("1", array_job_id=4, array_task_string="1-3,...").strange == "its number cannot be read"
    assert changed("1", job_id=10**19).strange == "its number cannot be read"
    assert changed("1", het_job_id=4).strange == "it has several components"


def test_nodes() -> None:
    told = [SlurmNode("n0", "gpu:4", "up"), SlurmNode("n1", "gpu:4", "up"), SlurmNode("n2", "gpu:4", "closed")]
    assert read_nodes(text("sinfo-22.05.json")) == told
    later = {
        "sinfo": [
            {"nodes": {"nodes": ["n0", "n1"]}, "gres": {"total": "gpu:4"}, "node": {"state": ["MIXED"]}},
            {"nodes": {"nodes": ["n2"]}, "gres": {"total": "gpu:4"}, "node": {"state": ["IDLE", "DRAIN"]}},
        ]
    }
    assert read_nodes(json.dumps(later)) == told


@pytest.mark.parametrize(
    ("state", "meant"),
    [("idle", "up"), ("IDLE+NOT_RESPONDING", "down"), ("DOWN+MAINT", "down"), ("drng", "closed"), ("mixed", "up")],
)
def test_what_states_of_nodes_mean(state: str, meant: str) -> None:
    row = {"name": "n1", "state": state, "state_flags": [], "gres": "gpu:4"}
    assert [node.state for node in read_nodes(json.dumps({"nodes": [row]}))] == [meant]


@pytest.mark.parametrize("read", [read_jobs, lambda words, _now: read_nodes(words)])
@pytest.mark.parametrize("wrong", ["", "{", "[]", '{"jobs": 3, "nodes": 3}', '{"jobs": [1], "nodes": [1]}'])
def test_what_is_no_json_of_slurm_is_refused(read: Callable[[str, int], object], wrong: str) -> None:
    with pytest.raises(SlurmError):
        read(wrong, NOW_US)


@pytest.mark.parametrize("job", ["", "1;reboot", "1 2", "--all", "1_2_3", "1,2", "-1", "12345678901", "1\n"])
def test_commands_take_numbers_of_jobs_alone(job: str) -> None:
    for make in (commands.release, commands.hold, commands.requeue, commands.state_of):
        with pytest.raises(SlurmError, match="no number of a job"):
            make(job)
    with pytest.raises(SlurmError, match="no number of a job"):
        commands.place(job, ["n0"])


@pytest.mark.parametrize("node", ["", "a b", "n[0-3]", "n0,n1", "-n", "$(reboot)", "n0\n", "a" * 65])
def test_commands_take_names_of_nodes_alone(node: str) -> None:
    with pytest.raises(SlurmError, match="no name of a node"):
        commands.place("7", [node])


def test_commands() -> None:
    assert commands.place("7_1", ["n0", "gpu-1.x"]) == ("scontrol", "update", "jobid=7_1", "reqnodelist=n0,gpu-1.x")
    assert commands.place("7", []) == ("scontrol", "update", "jobid=7", "reqnodelist=")


def test_running_a_command() -> None:
    assert run_command(("printenv", "SLURM_BITSTR_LEN", "SLURM_TIME_FORMAT")) == "0\n%s\n"
    with pytest.raises(SlurmError, match="cannot be run"):
        run_command(("no-such-program-of-slurm",))
    with pytest.raises(SlurmError, match="exit code 1"):
        run_command(("false",))
    with pytest.raises(SlurmError, match="did not answer within"):
        run_command(("sleep", "5"), 0.05)


TWO_TYPES = [
    SlurmNode("n0", "gpu:a100:4,gpu:v100:2", "up"),
    SlurmNode("n1.x", "gpu:a100:4", "up"),
    SlurmNode("c", "", "up"),
]


def test_a_cluster_of_nodes() -> None:
    found = SlurmCluster(TWO_TYPES)
    assert found.nodes == {"n0": 6, "n1.x": 4}
    assert found.servers_of("n0") == ("n0.a100", "n0.v100")
    assert found.nodes_of(["n0.a100/0", "n0.v100/1", "n1.x/3"]) == {"n0": 2, "n1.x": 1}
    with pytest.raises(InvalidInputError, match="no node with a GPU"):
        SlurmCluster([SlurmNode("c", "", "up")])


def test_gpus_of_a_job_that_runs() -> None:
    cluster = SlurmCluster([SlurmNode(f"n{k}", "gpu:4", "up") for k in range(3)])
    job = jobs()["7"]
    assert cluster.where(job) == {"n1": 3, "n2": 1}
    assert cluster.gpus_for(job, cluster.where(job), (), ()) == ("n1/0", "n1/1", "n1/2", "n2/0")
    # Where Slurm tells no numbers, any free ones are as good.
    unknown = replace(job, indices={})
    assert cluster.where(unknown) == {"n1": 2, "n2": 2}
    assert cluster.gpus_for(unknown, cluster.where(unknown), {"n1/0"}, ()) == ("n1/1", "n1/2", "n2/0", "n2/1")
    assert cluster.gpus_for(unknown, cluster.where(unknown), {"n1/0", "n1/1", "n1/2"}, ()) is None


def test_a_plan_is_fitted_to_the_nodes_that_a_job_asks_for() -> None:
    cluster = SlurmCluster([SlurmNode(f"n{k}", "gpu:4", "up") for k in range(3)])
    whole = ("n0/0", "n0/1", "n0/2", "n0/3")
    two_nodes = SlurmJob("1", "waits", "PENDING", 4, least_nodes=2, most_nodes=2)
    assert cluster.fitted(two_nodes, whole, (), ()) == ("n0/0", "n0/1", "n1/0", "n1/1")
    assert cluster.fitted(two_nodes, whole, (), {"n1"}) == ("n0/0", "n0/1", "n2/0", "n2/1")
    assert cluster.fitted(two_nodes, whole, {"n1/0", "n1/1", "n1/2"}, {"n2"}) is None
    one_node = replace(two_nodes, least_nodes=1, most_nodes=1)
    assert cluster.fitted(one_node, whole, (), ()) == whole
    assert cluster.fitted(one_node, ("n0/0", "n0/1", "n1/0", "n1/1"), (), ()) == whole
    # Three GPUs cannot be spread evenly over two nodes, and Slurm would choose how.
    assert cluster.fitted(replace(two_nodes, gpus=3), ("n0/0", "n0/1", "n0/2"), (), ()) is None


def test_types_of_gpus_are_kept_to() -> None:
    cluster = SlurmCluster(TWO_TYPES)
    job = SlurmJob("1", "waits", "PENDING", 2, types=("v100",), limit_us=60_000_000, partition="low")
    assert cluster.gpus_for(job, {"n0": 2}, (), ()) == ("n0.v100/0", "n0.v100/1")
    assert cluster.gpus_for(job, {"n1.x": 2}, (), ()) is None
    made = cluster.trace_job(job)
    assert (made.gpu_types, made.time_limit_us, made.duration_us, made.queue) == (
        ("v100",),
        60_000_000,
        60_000_000,
        "low",
    )


def test_a_log_outlives_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "client.jsonl"
    with ClientLog(path) as log:
        log.write(1, "command", command=list(commands.place("7", ["n0"])))
        log.write(2, "command", command=list(commands.place("8_1", ["n0"])))
        log.write(3, "given-back", job="7")
        with pytest.raises(Exception, match="another process is writing"), ClientLog(path):
            pass
    with path.open("a") as file:
        file.write('{"time_us": 4, "ent')
    with ClientLog(path) as log:
        log.write(5, "alive")
    assert [entry["time_us"] for entry in read_log(path)] == [1, 2, 3, 5]
    assert released_jobs(path) == {"8_1"}
    assert released_jobs(tmp_path / "none") == set()
    assert open_jobs(tmp_path / "none") == {}


def test_other_files_are_no_logs(tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_text("some words\n")
    with pytest.raises(InvalidInputError, match="is no log of jigsaw slurm"):
        list(read_log(path))
