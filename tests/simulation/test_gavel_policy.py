"""Policies for several types of GPU: Gavel by measured throughputs, Sia by configurations on servers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt.documents.readers.gavel import GavelJobType, Throughputs
from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.performance.protocol import rate_of
from jigsaw_opt.scheduling.performance.seconds import Seconds
from jigsaw_opt.scheduling.performance.table import Table
from jigsaw_opt.scheduling.placement.configurations import Configured, all_configurations, place
from jigsaw_opt.scheduling.policies.gavel import GAVEL
from jigsaw_opt.scheduling.policy import JobState, Observation
from jigsaw_opt.simulation.engine.records import SimulationOutcome
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.simulation.results.metrics import SimulationSummary, summarise
from tests.refusals import misuse, require_data
from tests.simulation.asked import setting_of
from tests.simulation.cases import run, types

RATES: Throughputs = {
    "fast": {
        GavelJobType("a", 1): {None: (10.0,), GavelJobType("b", 1): (6.0, 2.0)},
        GavelJobType("b", 1): {None: (4.0,), GavelJobType("a", 1): (2.0, 6.0)},
        GavelJobType("a", 2): {None: (18.0,)},
    },
    "fast_unconsolidated": {GavelJobType("a", 2): {None: (9.0,)}},
    "slow": {GavelJobType("a", 1): {None: (2.0,)}, GavelJobType("b", 1): {None: (2.0,)}},
}


def jobs(*kinds: tuple[str, int, int], submit_us: int = 0) -> tuple[TraceJob, ...]:
    """Jobs by model, GPUs and iterations."""
    return tuple(TraceJob(f"j{k}", submit_us, m, g, iterations=n) for k, (m, g, n) in enumerate(kinds))


def setting(cluster: str, work: tuple[TraceJob, ...], **changes: int) -> Setting:
    made, times = types(cluster), {"round_us": 60_000_000, "restart_us": 0}
    return Setting(made, Workload("w", work), Table(made, RATES), **times | changes)


def simulated(where: Setting, objective: str = "max_sum") -> tuple[SimulationOutcome, SimulationSummary]:
    simulation = Simulation(where.under(GAVEL, objective=objective))
    simulation.run()
    outcome = simulation.close()
    return outcome, summarise(where, outcome)


def test_throughputs_depend_on_type_and_on_how_far_gpus_are_spread() -> None:
    where = setting("2x2:fast+1x1:slow", jobs(("a", 2, 1), ("a", 1, 1)))
    table, (wide, narrow) = where.performance, where.workload.jobs
    assert table.speeds(Share((0,), (0, 1)), [wide], [0])[0].rate == rate_of(1_000_000 / 18)
    assert table.speeds(Share((0,), (1, 2)), [wide], [0])[0].rate == rate_of(1_000_000 / 9)
    assert table.speeds(Share((1,), (4,)), [narrow], [0])[0].rate == rate_of(1_000_000 / 2)
    assert table.refuses(Share((0,), (3, 4)), [wide]) is not None


def test_a_measured_pair_shares_gpus() -> None:
    where = setting("1x1:fast+1x1:slow", jobs(("a", 1, 1), ("b", 1, 1)))
    table, both = where.performance, list(where.workload.jobs)
    assert table.refuses(Share((0, 1), (0,)), both) is None
    rates = [speed.rate for speed in table.speeds(Share((0, 1), (0,)), both, [0, 0])]
    assert rates == [rate_of(1_000_000 / 6), rate_of(1_000_000 / 2)]
    assert table.refuses(Share((0, 1), (1,)), both) is not None


def test_a_type_with_fewer_gpus_than_a_job_asks_for_is_none_for_it() -> None:
    where = setting("1x1:fast+2x1:slow", jobs(("a", 2, 1)))
    table, wide = where.performance, where.workload.jobs[0]
    assert table.throughput(wide, "fast") == 0.0
    require_data(table.unknown(wide), "'a'", "2 GPUs", "slow")
    require_data(table.unknown(replace(wide, gpus=4)), "'a'", "4 GPUs")
    with misuse("unsupported", naming=["'j0'", "2"]):
        run(where, GAVEL)


def test_what_was_not_measured_on_many_servers_runs_as_on_few() -> None:
    rates = {"fast": RATES["fast"], "fast_unconsolidated": {}}
    (speed,) = Table(types("2x2:fast"), rates).speeds(Share((0,), (1, 2)), jobs(("a", 2, 1)), [0])
    assert speed.rate == rate_of(1_000_000 / 18)


def test_the_sum_of_throughput_puts_every_job_where_it_gains_most() -> None:
    outcome, _ = simulated(setting("1x1:fast+1x1:slow", jobs(("b", 1, 2000), ("a", 1, 2000))))
    held = {stint.job: stint for stint in outcome.stints if stint.start_us == 0}
    assert outcome.jobs[1].finish_us == 200_000_000
    assert held[0].end_us == 240_000_000  # on the slow one until the round after the other's end


def test_equal_jobs_take_turns() -> None:
    outcome, found = simulated(setting("1x1:fast", jobs(*[("a", 1, 3000)] * 3)), "max_min")
    finishes = [record.finish_us for record in outcome.jobs]
    assert max(f for f in finishes if f is not None) == 900_000_000
    assert min(f for f in finishes if f is not None) > 600_000_000
    assert found.restarts >= 6


def test_the_makespan_favours_the_job_with_most_to_do() -> None:
    work = jobs(("a", 1, 12_000), ("a", 1, 1200))
    first, _ = simulated(setting("1x1:fast+1x1:slow", work), "makespan")
    makespan = max(record.finish_us or 0 for record in first.jobs)
    assert makespan <= 1_260_000_000


def test_gavel_needs_throughputs_of_each_job() -> None:
    with misuse("unsupported", naming=["'j0'", "1"]):
        run(setting("1x1:fast+1x1:slow", jobs(("c", 1, 1))), GAVEL)


def test_rounds_are_longer_than_a_start() -> None:
    where = setting("1x1:fast+1x1:slow", jobs(("a", 1, 1)), restart_us=60_000_000)
    with pytest.raises(UsageError, match="round_s=120"):
        run(where, GAVEL)


def equal_jobs(text: str, jobs: int = 4) -> Setting:
    workload = Workload("w", tuple(TraceJob(f"j{k}", 0, "m", 1, iterations=10) for k in range(jobs)))
    return Setting(types(text), workload, Seconds())


def placed(where: Setting, held: dict[int, tuple[int, ...]], sizes: list[int], per_server: int) -> dict[int, tuple]:
    """GPUs by job, for jobs of such sizes of which some hold GPUs."""
    wanted = {k: Configured("a", max(1, size // per_server), size) for k, size in enumerate(sizes)}
    jobs = {
        index: JobState(index, job, 1, share=Share((index,), held[index]) if index in held else None)
        for index, job in enumerate(where.workload.jobs)
    }
    return {share.jobs[0]: share.gpus for share in place(where, wanted, Observation(0, jobs, ()))}


def test_parts_of_a_server_and_whole_servers() -> None:
    found = all_configurations(equal_jobs("3x4:a+2x8:b"))
    by_type = {name: [(one.servers, one.gpus) for one in found if one.gpu_type == name] for name in "ab"}
    parts = [(1, 1), (1, 2), (1, 4)]
    assert by_type == {"a": [*parts, (2, 8), (3, 12)], "b": [*parts, (1, 8), (2, 16)]}


def test_servers_of_one_type_are_equal() -> None:
    with pytest.raises(UsageError, match="3 to 4 GPUs"):
        all_configurations(equal_jobs("1x3:a+1x4:a"))


def test_a_job_with_the_same_configuration_stays_but_makes_room_for_a_whole_server() -> None:
    held = {0: (4, 5), 1: (2,)}
    shares = placed(equal_jobs("2x4:a"), held, [2, 1, 1], 4)
    assert (shares[0], shares[1]) == (held[0], held[1])
    shares = placed(equal_jobs("2x4:a"), held, [2, 1, 4], 4)
    assert sorted(map(len, shares.values())) == [1, 2, 4]
    assert shares[2] in ((0, 1, 2, 3), (4, 5, 6, 7))
    assert sum(shares[k] == gpus for k, gpus in held.items()) == 1


def test_every_set_of_configurations_within_the_capacity_finds_room() -> None:
    sizes = [16, 4, 4, 2, 2, 1, 1, 1, 1]
    shares = placed(equal_jobs("4x8:a", jobs=12), {k: (3 * k,) for k in range(10)}, sizes, 8)
    assert {job: len(gpus) for job, gpus in shares.items()} == dict(enumerate(sizes))
    assert len({gpu for gpus in shares.values() for gpu in gpus}) == sum(sizes)
    assert all(len({gpu // 8 for gpu in gpus}) == max(1, len(gpus) // 8) for gpus in shares.values())


@pytest.fixture
def read(shared_data: Path, tmp_path: Path) -> Callable[..., Setting]:
    """A setting of jobs in the rows of a workload."""

    def made(kind: str, *rows: str, cluster: str = "3x4:aws+1x8:rtx", policy: str = "sia") -> Setting:
        workload = tmp_path / "w.csv"
        workload.write_text("\n".join(("name,time,application,num_replicas,batch_size", *rows)) + "\n")
        profiles = f"goodput:{shared_data / 'cluster/sia/profiles'}"
        return setting_of(f"{kind}:{workload}", cluster, policy, performance=profiles)

    return made


def test_a_job_grows_to_at_most_twice_its_gpus(read: Callable[..., Setting]) -> None:
    made = read("sia", "d,0,deepspeech2,4,320", "c,100,cifar10,4,512")
    simulation = Simulation(made)
    simulation.run()
    outcome = simulation.close()
    assert summarise(made, outcome).unfinished == 0
    for job in (0, 1):
        held = [stint.gpus for stint in outcome.stints if stint.job == job]
        most = [max(held[:k], default=0.5) for k in range(len(held))]
        assert held[0] == 1 and max(held) >= 4
        assert all(gpus <= 2 * before for gpus, before in zip(held, most, strict=True))


def test_a_rigid_job_between_configurations_is_refused(read: Callable[..., Setting]) -> None:
    with pytest.raises(UsageError, match="3 GPUs"):
        Simulation(read("pollux", "c,0,cifar10,3,512"))


def test_what_a_rigid_job_needs_at_least_counts_for_it(read: Callable[..., Setting]) -> None:
    # Either the wide job or both narrow ones; by N_i^min the wide one is worth four narrow ones.
    rows = [f"c{k},0,cifar10,{gpus},512" for k, gpus in enumerate((1, 4, 1))]
    simulation = Simulation(read("pollux", *rows, cluster="1x4:aws", policy="sia:power=1"))
    simulation.run(until_us=0)
    assert [record.index for record in simulation.close().jobs if record.start_us is not None] == [1]
