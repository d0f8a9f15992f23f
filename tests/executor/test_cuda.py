"""What differs on a GPU: the allocator's peak, streams, the device of gradients."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from jigsaw_opt.executor.building import build_network, even_segments, replica  # noqa: E402
from jigsaw_opt.executor.exchange import Exchange  # noqa: E402
from jigsaw_opt.executor.profiling import profile  # noqa: E402
from jigsaw_opt.executor.worker import Recipe, Worker  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture
def worker() -> Worker:
    network = build_network("gpt", {"layers": 6, "width": 256, "rows": 64})
    built = replica(network, even_segments(network, 6), 8)
    return Worker(0, built, Recipe("sgd", {"lr": 1e-3}), torch.device("cuda", 0))


def test_peak_memory_falls_with_the_level(worker: Worker) -> None:
    found = profile(worker, 2, 3)
    peaks = [level.memory_bytes for level in found.levels]
    # The last segment is the embedding, which saves next to nothing.
    assert peaks[:-1] == sorted(set(peaks[:-1])) and peaks[-1] >= peaks[-2]
    assert found.model("gpu", {}).state_factor == 2


def test_a_block_leaves_the_gradients_of_its_suffix(worker: Worker) -> None:
    announced: list[int] = []
    worker.block(2, announced.append)
    for bucket in announced:
        worker.transfer(bucket, (2,), Exchange((0,)))
    assert announced == [1, 2]
    assert all(buffer.is_cuda for buffer in worker.buckets.buffers)
    assert [bool(buffer.any()) for buffer in worker.buckets.buffers] == [True, True, False, False, False, False]
