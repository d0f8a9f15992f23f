"""Iterations below full depth count by their progress, and models of which nobody knows it are told."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from jigsaw_opt.documents import save_instance
from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.depth import FullDepth, StaircaseDepth
from jigsaw_opt.problem.efficiency import Efficiency
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.model import Model, Segment
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.performance import UNITS, rate_of
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.scheduling.policies.jigsaw import JIGSAW
from jigsaw_opt.scheduling.policy import Observation
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.simulation.results.folder import restore, snapshot
from jigsaw_opt.simulation.results.metrics import summarise, with_efficiency
from jigsaw_opt.simulation.results.result import jobs_csv
from jigsaw_opt.simulation.simulate import simulate
from tests.refusals import misuse, refuses
from tests.simulation.cases import Scripted, Watched, run
from tests.simulation.resumable import MODELS, segmented

NOISY = Efficiency((1000, 1000), (1, 1))
"""Half of the workers make two thirds of the progress of a bucket, so a half and two thirds of it without noise."""
BOX = Cluster((Server("s", "v", 2, 10**9, 10**12),))
PLAIN = Model(tuple(Segment(f"s{k}", {"v": 100}, {"v": 200}, 10**6, 0) for k in range(2)))
PAIR = Share((0, 1), (0, 1), (StaircaseDepth(),) * 2)
HELD = Scripted(lambda seen: Decision((PAIR,)))


def setting(efficiency: Efficiency | None, counted: str = "goodput", iterations: int = 700) -> Setting:
    models = {"net": replace(PLAIN, efficiency=efficiency), "other": PLAIN}
    jobs = tuple(TraceJob(name, 0, "net", 2, iterations) for name in "ab")
    return Setting(BOX, Workload("w", jobs), Profiled(BOX, models, counted), restart_us=0)


def ends_us(where: Setting) -> tuple[int, int]:
    first, second = (record.finish_us for record in run(where, HELD).jobs)
    assert first is not None
    assert second is not None
    return first, second


def test_a_job_at_the_staircase_takes_as_many_more_iterations_as_they_are_worth_less() -> None:
    # Two workers at levels 1 and 2: both reach the first bucket, and one the second, which is worth
    # (1 / (1 + 1)) / (2 / (2 + 1)) = 3/4 of its progress. So 700 whole iterations are (700 / (7/8)) = 800 of these.
    (period_us, progress), second = Profiled(BOX, {"net": replace(PLAIN, efficiency=NOISY)})._shared.iterations(
        PAIR, [TraceJob(name, 0, "net", 2, 1) for name in "ab"]
    ) or ((0, 0), None)
    assert progress == Fraction(7, 8)
    assert second == (period_us, progress)
    assert ends_us(setting(NOISY, "raw")) == (700 * period_us,) * 2
    assert ends_us(setting(NOISY)) == (800 * period_us,) * 2
    assert ends_us(setting(Efficiency((0, 0), (1, 1)))) == (700 * period_us,) * 2


def test_rates_of_partial_iterations_are_rounded_down_and_never_to_nothing() -> None:
    assert rate_of(Fraction(3), Fraction(1, 2)) == UNITS // 6 < Fraction(UNITS, 6)
    assert rate_of(7, Fraction(2, 3)) == 2 * UNITS // 21
    assert rate_of(10 * UNITS, Fraction(1, 2)) == 1


def test_models_without_an_efficiency_count_raw_and_are_named_where_a_job_ran_below_full_depth() -> None:
    unknown, known, raw = setting(None), setting(NOISY), setting(None, "raw")
    assert ends_us(unknown) == ends_us(raw)
    assert run(unknown, HELD).raw_models == run(raw, HELD).raw_models == ("net",)
    assert run(known, HELD).raw_models == ()
    whole = replace(PAIR, depths=())
    assert run(unknown, Scripted(lambda seen: Decision((whole,)))).raw_models == ()


def test_jobs_that_ran_below_full_depth_are_counted_and_marked_however_they_count() -> None:
    for where in (setting(None), setting(NOISY), setting(None, "raw")):
        outcome = run(where, HELD)
        assert summarise(where, outcome).partial_depth_jobs == 2
        assert [row["partial_depth"] for row in csv.DictReader(jobs_csv(where, outcome).splitlines())] == ["1", "1"]
    mixed = replace(PAIR, depths=(FullDepth(), StaircaseDepth()))
    outcome = run(setting(NOISY), Scripted(lambda seen: Decision((mixed,))))
    assert outcome.partial_jobs == (1,)


def test_efficiency_of_the_cluster_is_of_progress() -> None:
    found = [summarise(where, run(where, HELD)).cluster_efficiency for where in (setting(NOISY), setting(NOISY, "raw"))]
    assert found[0] == found[1] * 7 / 8


def test_a_snapshot_keeps_which_models_were_counted_raw_and_is_of_one_way_to_count() -> None:
    where = replace(segmented(), restart_us=0).under("jigsaw:depth=free")
    simulation = Simulation(where)
    simulation.run(until_us=60_000_000)
    data = snapshot(simulation, where.inputs())
    again, outcome = restore(data, Simulation(where), where.inputs(), "s").close(), simulation.close()
    assert outcome.raw_models and outcome.partial_jobs
    assert (again.raw_models, again.partial_jobs) == (outcome.raw_models, outcome.partial_jobs)
    other = replace(where, performance=where.performance.counting("raw"))
    with refuses("mismatch s"):
        restore(data, Simulation(other), other.inputs(), "s")


def test_the_request_says_what_iterations_count_for_and_the_summary_tells_it(tmp_path: Path) -> None:
    jobs = Workload("w", tuple(TraceJob(name, 0, "small", 4, 1000) for name in "ab"))
    box = Cluster((Server("s", "v", 4, 10**9, 10**10),))
    instance = Instance("i", box, {"small": MODELS["small"]}, (Job("j", "small", 4, 1),))
    save_instance(instance, tmp_path / "instance.json")
    for counted in ("goodput", "raw"):
        folder = tmp_path / counted
        policy = "jigsaw:depth=free"
        simulate(jobs, str(tmp_path / "instance.json"), policy, efficiency=counted, folder=folder)
        told = json.loads((folder / "summary.json").read_text())
        assert (told["efficiency"], told["raw_models"]) == (counted, ["small"])
    assert with_efficiency("cluster_efficiency", "raw", ["small"]) == "cluster_efficiency (raw)"
    assert with_efficiency("x", "goodput", ["small"], "cluster_efficiency") == "x (goodput; 1 model raw)"
    assert with_efficiency("restarts", "goodput", ["small"]) == "restarts"
    with misuse("unknown-value efficiency", naming=["goodput or raw"]):
        simulate(jobs, instance, efficiency="gross")


def known(*noise: int) -> Setting:
    """Wide jobs of networks with noise scales in thousandths, more than fit at once."""
    where, names = segmented(), sorted(MODELS)
    models = {
        name: replace(MODELS[name], efficiency=Efficiency((scale,) * MODELS[name].depth, (1,) * MODELS[name].depth))
        for name, scale in zip(names, noise, strict=True)
    }
    return replace(where, performance=Profiled(where.cluster, models))


def partial_jobs(where: Setting, **options: str) -> set[str]:
    """Models of which jobs ever run below full depth under `jigsaw`."""
    found = set[str]()

    def look(watched: Watched, seen: Observation, decision: Decision) -> None:
        for share in decision.shares:
            below = [k for k in share.jobs if share.depth(k) != FullDepth()]
            found.update(where.workload.jobs[k].model for k in below)

    run(where, Watched(JIGSAW, look), **options)
    return found


def test_the_policy_takes_partial_levels_where_the_estimate_earns_them() -> None:
    assert partial_jobs(known(0, 0)) == set(MODELS)
    assert partial_jobs(known(10**9, 10**9)) == set()
    assert partial_jobs(segmented()) == set()
    assert partial_jobs(replace(segmented(), performance=known(0, 0).performance.counting("raw"))) == set()  # type: ignore[attr-defined]
    assert partial_jobs(known(0, 0), depth="staircase") == set(MODELS)
    assert partial_jobs(known(10**9, 10**9), depth="staircase") == set()  # jobs in turn get on faster


@pytest.mark.parametrize("noise", [(0, 0), (4000, 4000), (10**9, 10**9)])
def test_depth_by_goodput_makes_at_least_the_progress_of_full_depth(noise: tuple[int, int]) -> None:
    where = known(*noise)
    full, earned = (summarise(where, run(where, JIGSAW, depth=depth)) for depth in ("full", "goodput"))
    assert full.mean_completion_h is not None
    assert earned.mean_completion_h is not None
    assert full.mean_waiting_h is not None
    assert earned.mean_waiting_h is not None
    if noise == (10**9, 10**9):
        assert earned.cluster_efficiency == full.cluster_efficiency
        assert earned.mean_completion_h == full.mean_completion_h
        return
    assert earned.cluster_efficiency > full.cluster_efficiency
    # Jobs that share GPUs end later, which those behind them outweigh on the mean only where noise is low.
    assert earned.makespan_h < full.makespan_h
    assert earned.mean_waiting_h < full.mean_waiting_h
    if noise == (0, 0):
        assert earned.mean_completion_h < full.mean_completion_h * 0.8
