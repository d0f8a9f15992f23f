"""Foreground jobs keep their speed and their GPUs; background jobs get holes and GPUs without one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.problem.costs import needed_bytes
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.scheduling.policies.fifo import FIFO
from jigsaw_opt.scheduling.policies.fill import FILL, SEPARATE
from jigsaw_opt.scheduling.policy import Policy
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.simulation.results.metrics import SimulationSummary, summarise
from jigsaw_opt.simulation.results.result import jobs_csv
from tests.refusals import carries
from tests.simulation.cases import finish_s, restarts, run, starts_s
from tests.simulation.resumable import foregrounds


def of(*jobs: TraceJob, memory: int = 10**9) -> Setting:
    """Two servers of four GPUs behind slow links."""
    where = foregrounds()
    servers = tuple(replace(server, gpu_memory=memory) for server in where.cluster.servers)
    cluster = replace(where.cluster, servers=servers)
    models: dict[str, Model] = dict(where.performance.models)
    return replace(where, cluster=cluster, workload=Workload("w", jobs), performance=Profiled(cluster, models))


def front(name: str, gpus: int = 8, iterations: int = 4000, model: str = "large", submit_us: int = 0) -> TraceJob:
    return TraceJob(name, submit_us, model, gpus, iterations, foreground=True)


def back(name: str, gpus: int = 1, iterations: int = 1000, model: str = "small", submit_us: int = 0) -> TraceJob:
    return TraceJob(name, submit_us, model, gpus, iterations)


def measured(where: Setting, policy: Policy, **options: str) -> SimulationSummary:
    return summarise(where, run(where, policy, **options))


def shares_at(where: Setting, text: str, until_us: int = 0) -> dict[int, Share]:
    simulation = Simulation(where.under(text))
    simulation.run(until_us=until_us)
    return {index: share for share in simulation._under_way.shares for index in share.jobs}


@pytest.mark.parametrize("slowdown", ["1", "1.1", "1.5"])
def test_the_background_ends_earlier_in_holes_and_the_guarantee_is_kept(slowdown: str) -> None:
    where = foregrounds()
    apart, filled = measured(where, SEPARATE), measured(where, FILL, slowdown=slowdown)
    assert filled.mean_background_completion_h < 0.9 * apart.mean_background_completion_h
    assert apart.worst_foreground_slowdown == pytest.approx(1, abs=1e-6)
    assert filled.worst_foreground_slowdown <= float(slowdown) + 1e-6
    assert apart.background_gpu_hours == filled.background_gpu_hours


def test_jobs_of_one_gpu_go_into_holes_and_wide_ones_wait() -> None:
    where = of(front("f"), back("a"), back("b", model="large"), back("wide", gpus=4))
    shares = shares_at(where, "fill")
    assert shares[0] == shares[1] == shares[2] == Share((0, 1, 2), tuple(range(8)), (), 1.1)
    assert 3 not in shares
    assert shares_at(where, "separate").keys() == {0}


@pytest.mark.parametrize(("order", "first"), [("submission", 1), ("shortest", 2)])
def test_the_background_goes_by_submission_or_by_what_is_left(order: str, first: int) -> None:
    where = of(front("f", gpus=4), back("long", gpus=4, iterations=900), back("short", gpus=4))
    jobs = (*where.workload.jobs[:2], replace(where.workload.jobs[2], iterations=20))
    where = replace(where, workload=Workload("w", jobs))
    assert shares_at(where, f"separate:order={order}").keys() == {0, first}


def test_background_jobs_make_way_for_a_foreground_job_and_no_foreground_job_moves() -> None:
    where = of(back("a", gpus=8, iterations=9000), front("f", submit_us=1), front("g", submit_us=2))
    outcome = run(where, FILL)
    assert restarts(outcome) == [1, 0, 0] and None not in finish_s(outcome)
    assert finish_s(outcome)[1] <= starts_s(outcome)[2]


def test_nothing_is_added_where_memory_does_not_suffice() -> None:
    jobs = front("f"), back("a")
    performance = of(*jobs).performance
    model = performance.models["large"]
    need = needed_bytes([(model.state_bytes, model.activation_bytes()[-1])])
    assert 1 in shares_at(of(*jobs), "fill")
    assert 1 not in shares_at(of(*jobs, memory=need), "fill")


def test_a_foreground_without_holes_that_may_not_be_slowed_down_is_left_alone() -> None:
    jobs = front("f", gpus=4), front("g", gpus=4), back("a")
    assert 2 not in shares_at(of(*jobs), "fill:slowdown=1")
    assert 2 in shares_at(of(*jobs), "fill:slowdown=1.5")


def test_shares_that_cannot_be_filled_are_refused() -> None:
    where = of(front("f"), back("a"), back("wide", gpus=2))
    f, a, wide = where.workload.jobs
    refuses: Callable[..., str | None] = where.performance.refuses
    assert carries(str(refuses(Share((0, 1), (0, 1), (), 1.1), [f, a])), "asks", "8 GPUs")
    assert carries(str(refuses(Share((0,), tuple(range(8)), (), 1.1), [f])), "each")
    assert carries(str(refuses(Share((0, 2), tuple(range(8)), (), 1.1), [f, wide])), "each")


def test_without_a_foreground_all_jobs_run_in_the_background() -> None:
    for policy in (FILL, SEPARATE):
        outcome = run(of(back("a"), back("b")), policy)
        assert [record.start_us for record in outcome.jobs] == [0, 0]


@pytest.mark.parametrize(
    ("change", "options", "code", "message"),
    [("2", [], 3, "trace.csv:3: foreground"), ("", ["--foreground-gpus", "2"], 0, ""), ("1", [], 0, "")],
)
def test_the_command_line_says_what_is_in_the_foreground(
    change: str, options: list[str], code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, out = tmp_path / "trace.csv", tmp_path / "out"
    trace.write_text(f"name,submit_s,model,gpus,iterations,foreground\na,0,m,1,5,0\nb,0,m,2,5,{change}\n")
    command = ["simulate", "--workload", str(trace), "--cluster", "2x4", "--policy", "separate", "-o", str(out)]
    assert main([*command, *options]) == code
    assert message in capsys.readouterr().err and out.exists() == (code == 0)
    if code == 0:
        summary = json.loads((out / "summary.json").read_text())
        assert (summary["foreground_jobs"], summary["worst_foreground_slowdown"]) == (1, 1.0)


def test_other_policies_tell_of_the_foreground_too() -> None:
    where = foregrounds()
    told = measured(where, FIFO)
    assert told.foreground_jobs == 3
    assert told.mean_foreground_slowdown is not None
    lines = jobs_csv(where, run(where, FILL)).splitlines()
    column = lines[0].split(",").index("foreground")
    assert [line.split(",")[column] for line in lines[1:5]] == ["1", "0", "0", "0"]
    nothing = replace(where, workload=Workload("w", tuple(replace(j, foreground=False) for j in where.workload.jobs)))
    assert measured(nothing, FIFO).background_gpu_hours is None
