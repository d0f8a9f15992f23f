"""Throughput models, the batch size with the greatest goodput, and jobs of Sia's profiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from jigsaw_opt.documents.readers.profiles.pollux import Application, Epoch, PolluxSample
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.performance.goodput import Adaptive, Goodput
from jigsaw_opt.scheduling.performance.profiles import ApplicationProfile
from jigsaw_opt.scheduling.performance.speed import UNITS
from jigsaw_opt.scheduling.performance.throughput import Measured, ThroughputModel, fit
from jigsaw_opt.simulation.inputs.clusters import grid

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


def application(noise: float) -> Application:
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
    quiet, noisy = (Adaptive(ApplicationProfile(application(noise))) for noise in (0.01, 100.0))
    batches = [one.goodput(1, 2, 0, MODEL)[1] for one in (quiet, noisy)]
    assert batches[0].samples < batches[1].samples <= 512
    assert all(8 <= batch.local <= 128 for batch in batches)


def test_too_many_gpus_for_the_largest_batch_are_of_no_use() -> None:
    assert Adaptive(ApplicationProfile(application(5.0))).goodput(1, 512, 0, MODEL)[0] == 0.0


def goodput(noise: float = 5.0) -> Goodput:
    cluster = grid("2x4:gpu")
    assert cluster is not None
    return Goodput(cluster, {"gpu": {"toy": ApplicationProfile(application(noise))}})


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
    from jigsaw_opt.scheduling.performance.kinds import performance_of

    cluster = grid("1x8:rtx")
    assert cluster is not None
    performance = performance_of("goodput", shared_data / "cluster/sia/profiles", cluster)
    refused = performance.unknown(TraceJob("g", 0, "gpt_pmp", 8, batch_size=48))
    assert refused is not None and "one GPU" in refused
    assert performance.unknown(TraceJob("c", 0, "cifar10", 8, batch_size=512)) is None
