"""What differs on a GPU: the allocator's peak, streams, the device of gradients, and what a level saves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from replayed import instance, replayed
from test_own_trainings import carried_out, digests, owned
from torch import nn

from jigsaw_opt.executor.exchange.by_bucket import GradientExchange
from jigsaw_opt.executor.models.building import build_network, even_segments, replica
from jigsaw_opt.executor.partial import PartialBackprop
from jigsaw_opt.executor.processes import run_group
from jigsaw_opt.executor.profiling import profile_replica
from jigsaw_opt.executor.worker import TrainingRecipe, Worker, ZooWorker
from jigsaw_opt.problem.measured.replay import Replay
from jigsaw_opt.problem.measured.times import MeasuredBlock

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture
def worker() -> Worker:
    network = build_network("gpt", {"layers": 6, "width": 256, "rows": 64})
    built = replica(network, even_segments(network, 6), 8)
    return ZooWorker(0, built, TrainingRecipe("sgd", {"lr": 1e-3}), torch.device("cuda", 0))


def test_peak_memory_falls_with_the_level(worker: Worker) -> None:
    found = profile_replica(worker.replica, worker.recipe, worker.device, 2, 3)
    peaks = [level.memory_bytes for level in found.levels]
    # The last segment is the embedding, which saves next to nothing.
    assert peaks[:-1] == sorted(set(peaks[:-1])) and peaks[-1] >= peaks[-2]
    assert found.model("gpu", {"zoo": "mlp", "arguments": {}, "batch_size": 4}).state_factor == 2


def test_a_block_leaves_the_gradients_of_its_suffix(worker: Worker) -> None:
    announced: list[int] = []
    worker.block(2, announced.append)
    for bucket in announced:
        worker.transfer(bucket, (2,), GradientExchange((0,)))
    assert announced == [1, 2]
    assert all(buffer.is_cuda for buffer in worker.buckets.buffers)
    assert [bool(buffer.any()) for buffer in worker.buckets.buffers] == [True, True, False, False, False, False]


def test_processes_of_a_plan_share_a_device(tmp_path: Path) -> None:
    replay = replayed(tmp_path, instance(), "--device", "cuda", "--baseline", "gang")
    assert all(len(set(job.parameters_sha256)) == 1 for job in replay.timeline.jobs)
    assert all(block.end_us > block.start_us for block in blocks(replay))
    assert replay.machine["kind"] == "cuda" and replay.machine["backend"] == "gloo"
    # Weights, gradients and momentum of the workers, and some activations; nothing of the interpreter.
    assert all(0 < gpu.memory_bytes < 64 * 2**20 for gpu in replay.gpus)


def blocks(replay: Replay) -> list[MeasuredBlock]:
    return [block for job in replay.timeline.jobs for iteration in job.iterations for block in iteration.blocks]


def test_a_training_of_ones_own_goes_on_as_if_it_had_never_ended(tmp_path: Path) -> None:
    problem = owned("noisy", "seeded")
    whole = carried_out(tmp_path, problem, "--device", "cuda", "--iterations", 3)
    options = ("--device", "cuda", "--checkpoint", tmp_path / "saved")
    carried_out(tmp_path, problem, "--iterations", 1, *options)
    later = carried_out(tmp_path, problem, "--iterations", 3, *options, "--resume")
    assert digests(later) == digests(whole)


CUTS = ("4", "8")


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    rows: list[nn.Module] = []
    for _ in range(6):
        rows += [nn.Linear(256, 256), nn.GELU()]
    return nn.Sequential(*rows).cuda()


@pytest.mark.parametrize("autocast", [False, True])
def test_a_lower_level_keeps_fewer_activations_and_the_same_gradients(autocast: bool) -> None:
    kept, found = [], []
    inputs = torch.randn(4096, 256, device="cuda")
    for level in (1, 2, 3):
        model = PartialBackprop(layers(), CUTS)
        model.prepare(inputs)
        model._rule = lambda iteration, level=level: (level,)
        before = torch.cuda.memory_allocated()
        with torch.autocast("cuda", torch.float16, enabled=autocast):
            loss = model(inputs).float().square().mean()
        kept.append(torch.cuda.memory_allocated() - before)
        loss.backward()
        found.append([None if p.grad is None else p.grad.clone() for p in model.parameters()])
    assert kept == sorted(set(kept))
    for partial in found[:2]:
        there = [(own, other) for own, other in zip(partial, found[2], strict=True) if own is not None]
        assert 0 < len(there) < len(partial)
        for own, other in there:
            torch.testing.assert_close(own, other, rtol=1e-3 if autocast else 1e-5, atol=1e-6)


def trained() -> list[torch.Tensor]:
    model = PartialBackprop(layers(), CUTS, "rotation", debug=2)
    optimiser = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    generator = torch.Generator("cuda").manual_seed(dist.get_rank())
    for _ in range(10):
        model(torch.randn(64, 256, device="cuda", generator=generator)).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
    return [p.detach().cpu() for p in model.parameters()]


@pytest.mark.slow
def test_two_processes_hold_the_same_bits() -> None:
    first, second = run_group(trained, 2)
    assert all(torch.equal(own, other) for own, other in zip(first, second, strict=True))
    assert not torch.equal(first[0], layers()[0].weight.cpu())
