"""Partial backpropagation on a GPU: what a level saves, and two processes that train alike by streams of their own."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from jigsaw_opt.executor.partial import PartialBackprop  # noqa: E402
from jigsaw_opt.executor.processes import run_group  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
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
