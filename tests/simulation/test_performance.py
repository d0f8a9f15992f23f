"""Rates, throughput models and batch sizes against other ways to work them out."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from jigsaw_opt import simulate
from jigsaw_opt.documents.readers.profiles.pollux import Application, Epoch, PolluxSample
from jigsaw_opt.errors import UsageError
from jigsaw_opt.instances import load, names
from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.depth import FullDepth
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.performance import UNITS, Speed, rate_of
from jigsaw_opt.scheduling.performance.epochs import Epochs
from jigsaw_opt.scheduling.performance.goodput import Goodput
from jigsaw_opt.scheduling.performance.kinds import KINDS, performance_of
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.scheduling.performance.profiles import ApplicationProfile, BatchSplit, Measured, ThroughputModel, fit
from jigsaw_opt.simulation.inputs.contention import contention_of
from jigsaw_opt.simulation.inputs.workload_changes import with_models
from jigsaw_opt.simulation.results.metrics import completion_us
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from tests.refusals import carries
from tests.simulation.cases import cluster, types
from tests.simulation.resumable import network


def test_rates_are_exact_to_a_billionth_of_an_iteration_a_second() -> None:
    assert rate_of(1_000_000) == 10**9
    assert rate_of(Fraction(1, 3)) == 3 * UNITS
    assert rate_of(10**30) == 1


def test_contention_stretches_only_the_exchange() -> None:
    assert Speed(3000, 7, 0.5).stretched(2.0) == Speed(2000, 7, 0.5)
    assert Speed(3000, None, 0.0).stretched(9.0) == Speed(3000)


def test_jobs_share_servers_whose_route_passes_through_another() -> None:
    servers = tuple(Server(f"s{k}", "v", 2, 10**9, 10**9) for k in range(3))
    line = tuple(Link("-".join(pair), pair, 10**9, 10) for pair in (("s0", "s1"), ("s1", "s2")))
    direct = (Link("s0-s2", ("s0", "s2"), 10**9, 10),)
    jobs = [TraceJob(name, 0, "net", 4, 3) for name in "ab"]
    share, models = Share((0, 1), (0, 1, 4, 5)), {"net": network(10, 20)}
    through, beside = (Profiled(Cluster(servers, (), links), models) for links in (line, direct))
    assert through.refuses(share, jobs) is None
    assert through.speeds(share, jobs, [0, 0]) == beside.speeds(share, jobs, [0, 0])  # both links are busy at once


def test_the_time_alone_is_that_on_servers_that_links_join() -> None:
    models, job = {"net": network(10, 20)}, TraceJob("j", 0, "net", 8, 3)
    servers = tuple(Server(f"s{k}", "v", gpus, 10**9, 10**9) for k, gpus in enumerate((4, 2, 4, 4)))
    pairs = [("s0", "s1"), ("s2", "s3")]
    apart = Cluster(servers, (), tuple(Link("-".join(pair), pair, 10**9) for pair in pairs))
    on_last = Profiled(apart, models).speeds(Share((0,), tuple(range(6, 14))), [job], [0])[0]
    assert on_last.rate == rate_of(Fraction(Profiled(apart, models).alone_us(job), 3))
    unknown = Profiled(replace(apart, links=()), models)  # nothing is known of its exchange
    assert unknown.alone_us(job) == 3 * models["net"].block_us("v")[-1] < Profiled(apart, models).alone_us(job)


@pytest.mark.parametrize("name", names("tiny")[:6])
def test_an_iteration_alone_is_as_long_as_the_exact_solver_makes_it(name: str) -> None:
    instance = load(name)
    profiled = Profiled(instance.cluster, instance.models)
    gpus = [instance.cluster.gpu_name(s, k) for s, one in enumerate(instance.cluster.servers) for k in range(one.gpus)]
    for job in instance.jobs:
        alone = replace(job, depth=FullDepth(), iterations=1, release_us=0, weight=1)
        one = replace(instance, jobs=(alone,), horizon="finite", objective="makespan")
        best = solve(one, "cpsat", Options(work_limit=5, threads=1))
        assert best.status == "optimal"
        trace = TraceJob("j", 0, job.model, job.workers, 1)
        assert profiled.alone_us(trace) >= best.objective
        placed = tuple(sorted(gpus.index(name) for name in best.plan.jobs[0].gpus))
        (speed,) = profiled.speeds(Share((0,), placed), [trace], [0])
        assert speed.rate == rate_of(best.objective)


def application(**changes: object) -> Application:
    curves = {(1,): _curve(0.1), (2,): _curve(0.2), (1, 1): _curve(0.3), (4,): _curve(0.4)}
    scaling = {(1, 1): _curve(0.1), (1, 4): _curve(0.4), (2, 2): _curve(0.3), (4, 8): _curve(0.9)}
    epochs = {8: (Epoch(100, 1, 0), Epoch(150, 1, 3)), 16: (Epoch(101, 1, 0), Epoch(152, 1, 5))}
    return replace(Application("net", "gpu", curves, scaling, epochs), **changes)  # type: ignore[arg-type]


def _curve(step_s: float) -> tuple[PolluxSample, ...]:
    return PolluxSample(4, step_s, step_s / 2), PolluxSample(8, 1.5 * step_s, step_s / 2)


def test_step_times_lie_between_the_measured_ones() -> None:
    profile = ApplicationProfile(application())
    assert profile.iteration_s((2,), BatchSplit(4, 1, 2)) == (0.2, 0.1)
    assert profile.iteration_s((0, 2), BatchSplit(6, 1, 2)) == pytest.approx((0.25, 0.1))
    assert profile.iteration_s((2,), BatchSplit(16, 1, 2)) == pytest.approx((0.2 * 2 + 0.1, 0.1))
    assert profile.iteration_s((1,), BatchSplit(4, 3, 1)) == pytest.approx((0.1 + 2 * 0.05, 0.05))
    # Three servers with a GPU each lie half way from two (2 GPUs) to four (8, the least that was measured there).
    assert profile.iteration_s((1, 1, 1), BatchSplit(4, 1, 3))[0] == pytest.approx((0.3 + 0.9) / 2)


def test_a_batch_is_spread_over_few_passes_and_gains_by_the_noise_of_the_gradient() -> None:
    profile = ApplicationProfile(application())
    assert [profile.spread(16, 2), profile.spread(16, 1)] == [BatchSplit(8, 1, 2), BatchSplit(8, 2, 1)]
    assert (profile.spread(15, 1).samples, profile.spread(8, 1)) == (16, BatchSplit(8, 1, 1))
    assert profile.gain(8, 1) == profile.gain(16, 0) == 1.0  # without noise a larger batch is worth nothing
    assert profile.gain(16, 1) == pytest.approx((5 + 1) / (5 / 2 + 1))
    assert profile.gain(12, 1) == pytest.approx((4 + 1) / (4 / 1.5 + 1))


def test_epochs_add_up_to_the_time_alone() -> None:
    performance = Epochs(cluster(), {"gpu": {"net": ApplicationProfile(application())}})
    job = TraceJob("j", 0, "net", 2, batch_size=16)
    assert performance.unknown(job) is None
    assert performance.work(job) == 150 * UNITS
    # (2,): 8 samples a GPU take 0.3 s; the first epoch gains nothing, the second 12/7.
    assert performance.alone_us(job) == pytest.approx((100 * 0.3 + 50 * 0.3 * 3.5 / 6) * 1e6, abs=2)
    (first,) = performance.speeds(Share((0,), (0, 1)), [job], [0])
    (second,) = performance.speeds(Share((0,), (0, 1)), [job], [100 * UNITS])
    assert (first.until, second.until) == (100 * UNITS, None)
    assert first.exchange == second.exchange == 0.0
    (spread,) = performance.speeds(Share((0,), (3, 4)), [job], [0])
    assert spread.exchange == pytest.approx(0.15 / 0.45)
    assert carries(str(performance.unknown(replace(job, model="x"))), "model", "'x'")
    assert carries(str(performance.unknown(replace(job, batch_size=17))), "17", "'net'", "8", "16")


def test_jobs_of_a_profile_that_say_how_much_they_do() -> None:
    performance = Goodput(cluster(), {"gpu": {"net": ApplicationProfile(application())}})
    whole = TraceJob("j", 0, "net", 2, batch_size=16)
    part, more = replace(whole, name="k", iterations=120), replace(whole, name="l", iterations=300)
    # 16 samples gain nothing in the first 100 iterations, and 12/7 in those after them.
    assert [performance.alone_us(job) for job in (whole, part, more)] == pytest.approx(
        [(100 + rest * 7 / 12) * 0.3e6 for rest in (50, 20, 200)], abs=2
    )
    assert [performance.iterations_left(job, 0) for job in (whole, part, more)] == pytest.approx(
        [100 + rest * 7 / 12 for rest in (50, 20, 200)]
    )
    assert performance.iterations_left(more, 280 * UNITS) == pytest.approx(20 * 7 / 12)


def test_models_that_need_several_gpus_are_not_covered() -> None:
    wide = application(placements={(2,): _curve(0.2)})
    for kind in (Epochs, Goodput):
        performance = kind(cluster(), {"gpu": {"net": ApplicationProfile(wide)}})
        assert carries(str(performance.unknown(TraceJob("j", 0, "net", 2, batch_size=16))), "measured")


def test_models_are_drawn_for_traces_without_them() -> None:
    instance = load("tiny/000")
    profiled = Profiled(instance.cluster, instance.models)
    trace = Workload("w", tuple(TraceJob(f"j{k}", k, "seconds", 1, 50) for k in range(40)))
    drawn = with_models(trace, profiled, sorted(instance.models), 3)
    assert drawn == with_models(trace, profiled, sorted(instance.models), 3)
    assert {job.model for job in drawn.jobs} == set(instance.models)
    for job in drawn.jobs:
        one = profiled.alone_us(replace(job, iterations=1))
        assert abs(profiled.alone_us(job) - 50_000_000) <= one / 2
    wrong = TraceJob("wide", 0, "seconds", 999, 5), TraceJob("endless", 1, "seconds", 1), TraceJob("fine", 2, "x", 1, 5)
    with pytest.raises(UsageError) as caught:
        with_models(Workload("w", wrong), profiled, sorted(instance.models), 0)
    assert [line.strip()[:42] for line in str(caught.value).splitlines()] == [
        "job 'wide' can run with none of the models",
        "job 'endless' has no duration",
    ]


def test_jobs_that_meet_on_a_link_share_it() -> None:
    servers = tuple(Server(f"s{k}", "gpu", 4, 10**9, 10**9) for k in range(3))
    links = tuple(Link(f"l{k}", (f"s{k}", "switch"), 100, 0) for k in range(3))
    joined = Cluster(servers, ("switch",), links)
    placements = [(0, 4), (5, 8), (1, 2)]
    assert contention_of("exclusive", joined) is None
    fair, degraded = contention_of("fair", joined), contention_of("degraded:1/2", joined)
    assert list(fair.factors(placements)) == [2.0, 2.0, 1.0]
    assert list(degraded.factors(placements)) == [2.5, 2.5, 1.0]
    assert list(fair.factors(placements[1:])) == [1.0, 1.0]
    for text in ("unfair", "fair:2", "degraded", "degraded:-1", "degraded:x", "degraded:1/0", "degraded:1e999999999"):
        with pytest.raises(UsageError):
            contention_of(text, joined)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_says_what_is_wrong_with_its_source(kind: str, tmp_path: Path) -> None:
    source = tmp_path if kind == "seconds" else None
    with pytest.raises(UsageError):
        performance_of(kind, source, cluster())


@pytest.mark.parametrize("number", [1, 3])
def test_mean_completion_is_within_a_hundredth_of_the_published(shared_data: Path, number: int) -> None:
    folder, name = shared_data / "cluster" / "pollux", f"workload-{number}"
    published = json.loads((folder / "published_results" / "tiresias-1.0_summary.json").read_text())
    profiles = shared_data / "cluster" / "sia" / "profiles"
    found = simulate(f"pollux:{folder / 'workloads' / name}.csv", "16x4:aws", "las", performance=f"epochs:{profiles}")
    assert found.summary.mean_completion_h == pytest.approx(published["avgs"][name] / 3600, rel=0.01)
    jobs, theirs_s = found.setting.workload.jobs, published["jcts"][name]
    ours_s = {jobs[one.index].name: completion_us(found.setting, one) / 1e6 for one in found.outcome.jobs}
    assert sum(abs(ours_s[job] - theirs_s[job]) <= 60 for job in ours_s) >= 0.75 * len(jobs)


MODEL = ThroughputModel(0.05, 0.002, 0.1, 0.005, 0.04, 0.003, 1.8)


def measurements(servers: tuple[int, ...] = (1, 2, 4), gpus: tuple[int, ...] = (1, 2, 4)) -> list[Measured]:
    """Measurements as `MODEL` says: some GPUs on each of some servers."""
    found = []
    for count in servers:
        for each in gpus:
            for local in (8, 32, 128):
                step = float(MODEL.step_s(count, count * each, local))
                found.append(Measured(count, count * each, local, step, step - float(MODEL.compute_s(local))))
    return found


def toy(noise: float) -> Application:
    curves = {
        (gpus,): tuple(PolluxSample(one.local, one.step_s, one.sync_s) for one in measurements((1,), (gpus,)))
        for gpus in (1, 2, 4)
    }
    epochs = {size: tuple(Epoch(float(k + 1), 1.0, noise) for k in range(3)) for size in (16, 64, 512)}
    return Application("toy", "gpu", curves, {(1, gpus[0]): curve for gpus, curve in curves.items()}, epochs)


def test_a_fit_finds_the_model_that_made_the_measurements() -> None:
    found = fit(measurements())
    for one in measurements():
        assert float(found.step_s(one.servers, one.gpus, one.local)) == pytest.approx(one.step_s, rel=0.03)
        assert float(found.compute_s(one.local)) == pytest.approx(one.step_s - one.sync_s, rel=0.03)


def test_what_was_never_measured_scales_perfectly() -> None:
    alone = MODEL.known_from(within=False, across=False)
    assert float(alone.step_s(4, 16, 32)) == pytest.approx(float(MODEL.compute_s(32)), rel=1e-4)
    one_server = MODEL.known_from(within=True, across=False)
    assert float(one_server.exchange_s(2, 8)) == pytest.approx(1.1 * float(MODEL.exchange_s(1, 8)))
    assert MODEL.known_from(within=True, across=True) == MODEL


def test_a_noisy_gradient_asks_for_a_larger_batch() -> None:
    quiet, noisy = (ApplicationProfile(toy(noise)) for noise in (0.01, 100.0))
    batches = [one.goodput(1, 2, 0, MODEL)[1] for one in (quiet, noisy)]
    assert batches[0].samples < batches[1].samples <= 512
    assert all(8 <= batch.local <= 128 for batch in batches)


def goodput(noise: float = 5.0) -> Goodput:
    return Goodput(types("2x4:gpu"), {"gpu": {"toy": ApplicationProfile(toy(noise))}})


def test_rigid_jobs_keep_their_batch_and_adaptive_ones_choose() -> None:
    performance = goodput(noise=100.0)
    rigid = TraceJob("r", 0, "toy", 2, batch_size=16)
    adaptive = TraceJob("a", 0, "toy", 2, batch_size=16, min_gpus=1, max_gpus=4)
    share = Share((0,), (0, 1))
    (slow,), (fast,) = (performance.speeds(share, [job], [0]) for job in (rigid, adaptive))
    assert slow.rate < fast.rate
    assert slow.until == fast.until == UNITS


def test_what_a_job_measures_is_what_it_runs_at() -> None:
    performance = goodput()
    job = TraceJob("a", 0, "toy", 2, batch_size=16, min_gpus=1, max_gpus=4)
    gpu_type, measured = performance.measured(job, Share((0,), (0, 1)), 0)
    assert gpu_type == "gpu"
    assert (measured.servers, measured.gpus) == (1, 2)
    assert measured.step_s == pytest.approx(float(MODEL.step_s(1, 2, measured.local)), rel=0.1)
    values = performance.goodputs(job, "gpu", ((1, 1), (1, 2), (1, 4)), 0, frozenset([measured]))
    assert 0 < values[0] < values[1] < values[2]


def test_a_pipeline_is_no_adaptive_model(shared_data: Path) -> None:
    performance = performance_of("goodput", shared_data / "cluster/sia/profiles", types("1x8:rtx"))
    refused = performance.unknown(TraceJob("g", 0, "gpt_pmp", 8, batch_size=48))
    assert refused is not None and "one GPU" in refused
    assert performance.unknown(TraceJob("c", 0, "cifar10", 8, batch_size=512)) is None
