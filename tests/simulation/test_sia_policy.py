"""Configurations on servers, and Sia's policy on small workloads and on a shared one."""

from __future__ import annotations

from pathlib import Path

import pytest

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.performance.seconds import Seconds
from jigsaw_opt.scheduling.placement.configurations import Configured, all_configurations, place
from jigsaw_opt.scheduling.policy import JobState, Observation
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.simulation.inputs.clusters import grid
from jigsaw_opt.simulation.inputs.reading import read_setting
from jigsaw_opt.simulation.results.folder import restore, snapshot
from jigsaw_opt.simulation.results.metrics import summarise

CLUSTER = "3x4:aws+1x8:rtx"


def setting(text: str, jobs: int = 4) -> Setting:
    cluster = grid(text)
    assert cluster is not None
    workload = Workload("w", tuple(TraceJob(f"j{k}", 0, "m", 1, iterations=10) for k in range(jobs)))
    return Setting(cluster, workload, Seconds())


def active(where: Setting, gpus: dict[int, tuple[int, ...]]) -> dict[int, JobState]:
    return {
        index: JobState(index, job, 1, share=Share((index,), gpus[index]) if index in gpus else None)
        for index, job in enumerate(where.workload.jobs)
    }


def test_parts_of_a_server_and_whole_servers() -> None:
    found = all_configurations(setting("3x4:a+2x8:b"))
    assert [(one.servers, one.gpus) for one in found if one.gpu_type == "a"] == [
        (1, 1),
        (1, 2),
        (1, 4),
        (2, 8),
        (3, 12),
    ]
    assert [(one.servers, one.gpus) for one in found if one.gpu_type == "b"] == [
        (1, 1),
        (1, 2),
        (1, 4),
        (1, 8),
        (2, 16),
    ]


def test_servers_of_one_type_are_equal() -> None:
    with pytest.raises(UsageError, match="3 to 4 GPUs"):
        all_configurations(setting("1x3:a+1x4:a"))


def test_a_job_with_the_same_configuration_stays() -> None:
    where = setting("2x4:a")
    jobs = active(where, {0: (4, 5), 1: (2,)})
    wanted = {0: Configured("a", 1, 2), 1: Configured("a", 1, 1), 2: Configured("a", 1, 4)}
    shares = {
        share.jobs[0]: share.gpus
        for share in place(where, wanted | {2: Configured("a", 1, 1)}, Observation(0, jobs, ()))
    }
    assert shares[0] == (4, 5) and shares[1] == (2,)


def test_small_jobs_make_room_for_a_whole_server() -> None:
    where = setting("2x4:a")
    jobs = active(where, {0: (4, 5), 1: (2,)})
    wanted = {0: Configured("a", 1, 2), 1: Configured("a", 1, 1), 2: Configured("a", 1, 4)}
    shares = {share.jobs[0]: share.gpus for share in place(where, wanted, Observation(0, jobs, ()))}
    assert sorted(map(len, shares.values())) == [1, 2, 4]
    assert shares[2] in ((0, 1, 2, 3), (4, 5, 6, 7))
    assert sum(shares[k] == gpus for k, gpus in {0: (4, 5), 1: (2,)}.items()) == 1


def test_every_set_of_configurations_within_the_capacity_finds_room() -> None:
    where = setting("4x8:a", jobs=12)
    jobs = active(where, {k: (3 * k,) for k in range(10)})
    sizes = [16, 4, 4, 2, 2, 1, 1, 1, 1]
    wanted = {k: Configured("a", max(1, size // 8), size) for k, size in enumerate(sizes)}
    shares = place(where, wanted, Observation(0, jobs, ()))
    assert {share.jobs[0]: len(share.gpus) for share in shares} == dict(enumerate(sizes))
    assert len({gpu for share in shares for gpu in share.gpus}) == sum(sizes)
    assert all(len({gpu // 8 for gpu in share.gpus}) == max(1, len(share.gpus) // 8) for share in shares)


def read(shared: Path, workload: str, cluster: str = CLUSTER, policy: str = "sia") -> Setting:
    return read_setting(workload, cluster, policy, performance=f"goodput:{shared / 'cluster/sia/profiles'}")


def test_a_job_grows_to_at_most_twice_its_gpus_and_a_snapshot_changes_nothing(
    shared_data: Path, tmp_path: Path
) -> None:
    workload = tmp_path / "w.csv"
    workload.write_text("name,time,application,num_replicas,batch_size\nd,0,deepspeech2,4,320\nc,100,cifar10,4,512\n")
    made = read(shared_data, f"sia:{workload}")
    simulation = Simulation(made)
    simulation.run(until_us=500_000_000)
    resumed = restore(snapshot(simulation, "same"), Simulation(made), "same", "snapshot")
    simulation.run()
    resumed.run()
    outcome = simulation.close()
    assert resumed.close().stints == outcome.stints
    assert summarise(made, outcome).unfinished == 0
    for job in (0, 1):
        held = [stint.gpus for stint in outcome.stints if stint.job == job]
        assert held[0] == 1
        most = 1
        for gpus in held:
            assert gpus <= 2 * most
            most = max(most, gpus)
        assert most >= 4


def test_a_rigid_job_between_configurations_is_refused(shared_data: Path, tmp_path: Path) -> None:
    workload = tmp_path / "w.csv"
    workload.write_text("name,time,application,num_replicas,batch_size\nc,0,cifar10,3,512\n")
    rigid = read(shared_data, f"pollux:{workload}")
    with pytest.raises(UsageError, match="3 GPUs"):
        Simulation(rigid)


def test_what_a_rigid_job_needs_at_least_counts_for_it(shared_data: Path, tmp_path: Path) -> None:
    # Either the wide job or both narrow ones; by N_i^min the wide one is worth four narrow ones.
    workload = tmp_path / "w.csv"
    lines = "".join(f"c{k},0,cifar10,{gpus},512\n" for k, gpus in enumerate((1, 4, 1)))
    workload.write_text(f"name,time,application,num_replicas,batch_size\n{lines}")
    simulation = Simulation(read(shared_data, f"pollux:{workload}", "1x4:aws", "sia:power=1"))
    simulation.run(until_us=0)
    assert [record.index for record in simulation.close().jobs if record.start_us is not None] == [1]
