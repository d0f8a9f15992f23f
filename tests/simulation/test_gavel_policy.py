"""Gavel's policy and measured throughputs by kind of job and GPU type."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jigsaw_opt.documents.readers.traces.gavel import GavelJobType, Throughputs
from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.performance.seconds import Seconds
from jigsaw_opt.scheduling.performance.speed import rate_of
from jigsaw_opt.scheduling.performance.table import Table
from jigsaw_opt.scheduling.policies.gavel import GAVEL
from jigsaw_opt.simulation.engine.records import SimulationOutcome
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.simulation.inputs.clusters import grid
from jigsaw_opt.simulation.results.metrics import SimulationSummary, summarise
from tests.refusals import misuse, require_data
from tests.simulation.cases import run

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
    made = grid(cluster)
    assert made is not None
    return Setting(made, Workload("w", work), Table(made, RATES), **{"round_us": 60_000_000, "restart_us": 0} | changes)


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
    assert isinstance(table, Table)
    assert table.throughput(wide, "fast") == 0.0
    require_data(table.unknown(wide), "'a'", "2 GPUs", "slow")
    require_data(table.unknown(replace(wide, gpus=4)), "'a'", "4 GPUs")
    with misuse("unsupported", naming=["'j0'", "2"]):
        run(where, GAVEL)


def test_what_was_not_measured_on_many_servers_runs_as_on_few() -> None:
    made = grid("2x2:fast")
    assert made is not None
    rates = {"fast": RATES["fast"], "fast_unconsolidated": {}}
    (speed,) = Table(made, rates).speeds(Share((0,), (1, 2)), jobs(("a", 2, 1)), [0])
    assert speed.rate == rate_of(1_000_000 / 18)


def test_time_in_which_nothing_ran_counts_for_no_type() -> None:
    work = (*jobs(("a", 1, 100)), TraceJob("late", 10**12, "a", 1, iterations=100))
    simulation = Simulation(setting("1x1:fast+1x1:slow", work).under(GAVEL))
    simulation.run()
    # Half a round for each of two jobs, and at most the round in which the first ended.
    assert max(simulation._policy._scheduler.type_us.values()) <= 2 * 30e6 + 60e6  # type: ignore[attr-defined]


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


def test_gavel_needs_throughputs_by_type() -> None:
    made = grid("1x1:fast")
    assert made is not None
    with misuse("missing-option performance"):
        GAVEL.start(Setting(made, Workload("w", jobs(("a", 1, 1))), Seconds()), {"objective": "max_sum"})
    with misuse("unsupported", naming=["'j0'", "1"]):
        run(setting("1x1:fast+1x1:slow", jobs(("c", 1, 1))), GAVEL)


def test_rounds_are_longer_than_a_start() -> None:
    where = setting("1x1:fast+1x1:slow", jobs(("a", 1, 1)), restart_us=60_000_000)
    with pytest.raises(UsageError, match="round_s=120"):
        run(where, GAVEL)
