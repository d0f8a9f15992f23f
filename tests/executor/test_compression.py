"""Hooks that compress gradients, with `PartialBackprop` and `DistributedDataParallel`, in three processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import deepcopy
from fractions import Fraction
from typing import Any

import pytest
import torch
import torch.distributed as dist
from distributed_training import is_same_everywhere
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import jigsaw_opt
from jigsaw_opt.executor.exchange.compression import BLOCK, CompressedExchange
from jigsaw_opt.executor.processes import run_group
from tests.refusals import misuse, require_data, told

pytestmark = pytest.mark.xdist_group("compressed gradients")

LEVELS = ((2, 2, 2), (1, 2, 1), (2, 1, 2), (1, 1, 1), (1, 1, 2))
"""Levels of the workers by iteration."""
HOOKS: dict[str, Callable[[], CompressedExchange]] = {
    "TopK(1)": lambda: jigsaw_opt.TopK("1"),
    "TopK(1/10)": lambda: jigsaw_opt.TopK(Fraction(1, 10)),
    "EightBit()": jigsaw_opt.EightBit,
}


class Branching(nn.Module):
    """Two layers, and a weight that only batches of 3 rows use."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.early, self.late = nn.Linear(30, 20), nn.Linear(20, 4)
        self.rare = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.late(torch.tanh(self.early(x)))
        return found * self.rare if len(x) == 3 else found


def wrapped(hook: Any = None) -> jigsaw_opt.PartialBackprop:
    model = jigsaw_opt.PartialBackprop(Branching(), ["late"], lambda iteration, worker: LEVELS[iteration % 5][worker])
    if hook is not None:
        model.register_comm_hook(None, hook)
    return model


def gradients(model: nn.Module, iterations: int, rows: int = 2) -> list[Tensor]:
    """Flat gradients of some iterations at the same parameters, zeros where there are none."""
    found = []
    for iteration in range(iterations):
        draws = torch.Generator().manual_seed(10 * iteration + dist.get_rank())
        model(torch.randn(rows, 30, generator=draws)).square().sum().backward()
        found.append(torch.cat([(0 * p if p.grad is None else p.grad).detach().flatten() for p in model.parameters()]))
        model.zero_grad()
    return found


def held_back(hook: CompressedExchange, model: nn.Module) -> Tensor:
    """What all processes together hold back."""
    pieces = [hook._memory.get(p, torch.zeros_like(p)).flatten() for p in model.parameters()]
    total = torch.cat(pieces).detach().clone()
    dist.all_reduce(total)
    return total


def lost(name: str) -> dict[str, Any]:
    """What is missing in the end, and how far the first mean is from the exact one."""
    hook = HOOKS[name]()
    model, exact = wrapped(hook), gradients(wrapped(), 5)
    found = gradients(model, 5)
    missing = sum(exact) - sum(found) - held_back(hook, model)
    return {
        "first": float((found[0] - exact[0]).abs().max()),
        "largest": float(exact[0].abs().max()),
        "held back": float(held_back(hook, model).abs().max()),
        "missing": float(missing.abs().max()),
        "same": is_same_everywhere(torch.stack(found)),
        "memory": hook.memory_bytes,
        "sent": hook.sent_bytes,
    }


def lost_with_ddp(name: str) -> tuple[float, bool]:
    hook = HOOKS[name]()
    model, plain = DistributedDataParallel(Branching()), DistributedDataParallel(Branching())
    model.register_comm_hook(None, hook)
    found, exact = gradients(model, 4, rows=3), gradients(plain, 4, rows=3)
    missing = sum(exact) - sum(found) - held_back(hook, model)
    return float(missing.abs().max()), is_same_everywhere(torch.stack(found))


class Quadratic(nn.Module):
    """The least of ``(x - target)^2 / 2``, which all workers share and none has alone."""

    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.zeros(2))

    def forward(self, target: Tensor) -> Tensor:
        return (self.x - target).square().sum() / 2


def minimised(forgets: bool) -> list[float]:
    """Where training ends: each worker's largest slope is in the first number, and those cancel out."""
    hook = jigsaw_opt.TopK("1/2")
    model = DistributedDataParallel(Quadratic())
    model.register_comm_hook(None, hook)
    target = torch.tensor([(30.0, -30.0, 0.0)[dist.get_rank()], 1.0 if dist.get_rank() < 2 else 4.0])
    optimiser = torch.optim.SGD(model.parameters(), 0.05)
    for step in range(250):
        if step == 200:
            optimiser.param_groups[0]["lr"] = 0.005
        model(target).backward()
        optimiser.step()
        optimiser.zero_grad()
        if forgets:
            hook._memory.clear()
    return [float(number) for number in model.module.x]


def overflown() -> bool:
    """Whether a step that overflows on one worker leaves what all hold back as it was, and the next one is finite."""
    hook = jigsaw_opt.EightBit()
    model = jigsaw_opt.PartialBackprop(Branching(), ["late"], "full")
    model.register_comm_hook(None, hook)
    gradients(model, 1)
    before = held_back(hook, model)
    loss = model(torch.ones(2, 30)).sum()
    (loss * torch.inf if dist.get_rank() == 1 else loss).backward()
    overflows = not all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)
    model.zero_grad()
    kept = torch.equal(before, held_back(hook, model))
    return overflows and kept and bool(gradients(model, 1)[0].isfinite().all())


def loaded() -> float:
    """What is held back after other parameters have been loaded."""
    hook = jigsaw_opt.TopK("1/10")
    model = wrapped(hook)
    gradients(model, 1)
    assert held_back(hook, model).any()
    model.load_state_dict(model.state_dict())
    return float(held_back(hook, model).abs().max())


def rarely_used() -> tuple[float, float]:
    """What is held back of a weight after a batch that uses it, and after one that does not."""
    hook = jigsaw_opt.TopK("1/1000")
    model = jigsaw_opt.PartialBackprop(Branching(), ["late"], "full")
    model.register_comm_hook(None, hook)
    gradients(model, 1, rows=3)
    first = float(held_back(hook, model)[:4].abs().sum())
    gradients(model, 3)
    return first, float(held_back(hook, model)[:4].abs().sum())


def peers() -> dict[str, Any]:
    torch.set_num_threads(1)
    return {
        "lost": {name: lost(name) for name in HOOKS},
        "ddp": {name: lost_with_ddp(name) for name in HOOKS},
        "minimised": [minimised(forgets=True), minimised(forgets=False)],
        "overflown": overflown(),
        "rare": rarely_used(),
        "loaded": loaded(),
        "refused": told(
            lambda: gradients(wrapped(jigsaw_opt.TopK("1/100") if dist.get_rank() else jigsaw_opt.EightBit()), 1)
        ),
    }


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    """By rank, what was found."""
    return run_group(peers, 3)


@pytest.mark.parametrize("name", HOOKS)
def test_means_and_what_is_held_back_add_up_to_the_exact_means(found: list[dict[str, Any]], name: str) -> None:
    """Levels differ between iterations, so the number of contributors does."""
    for rank in found:
        lost = rank["lost"][name]
        assert lost["missing"] <= 1e-5 * lost["largest"] and lost["same"]
        assert (lost["held back"] == 0) == (name == "TopK(1)")
        missing, same = rank["ddp"][name]
        assert missing <= 1e-5 * lost["largest"] and same


def test_the_first_mean_is_as_near_as_its_compression_allows(found: list[dict[str, Any]]) -> None:
    for rank in found:
        first = {name: rank["lost"][name]["first"] / rank["lost"][name]["largest"] for name in HOOKS}
        assert first["TopK(1)"] <= 1e-6
        assert 0 < first["EightBit()"] <= 2 / 127
        assert 0 < first["TopK(1/10)"] < 1


def test_a_worker_sends_nothing_of_what_its_level_does_not_reach(found: list[dict[str, Any]]) -> None:
    """The part at the input has 624 numbers, the late layer 84; a number takes 8 bytes with its place."""
    early, late = 8 * 63, 8 * 9
    for rank, times in enumerate((2, 2, 3)):
        lost = found[rank]["lost"]["TopK(1/10)"]
        assert lost["sent"] == 5 * late + times * early
        assert lost["memory"] == 4 * (620 + 84)  # no batch uses the rare weight, so nothing of it is held back


def test_error_feedback_converges_where_the_largest_numbers_alone_do_not(found: list[dict[str, Any]]) -> None:
    for rank in found:
        forgetful, mindful = rank["minimised"]
        assert abs(forgetful[1] - 2) > 0.5
        assert mindful == pytest.approx([0, 2], abs=0.3)


def test_a_step_that_overflows_changes_nothing_that_is_held_back(found: list[dict[str, Any]]) -> None:
    assert all(rank["overflown"] for rank in found)


def test_what_is_held_back_of_a_parameter_waits_for_its_next_gradient(found: list[dict[str, Any]]) -> None:
    for rank in found:
        first, later = rank["rare"]
        assert first == later > 0 == rank["loaded"]


def test_processes_with_other_hooks_raise(found: list[dict[str, Any]]) -> None:
    for rank in found:
        require_data(rank["refused"], "EightBit() on rank 0", "TopK(1/100) on ranks 1, 2")


@pytest.mark.parametrize(("dtype", "size"), [(torch.float64, 1e60), (torch.float64, 1e-60), (torch.float32, 1.0)])
def test_factors_of_eight_bits_have_the_range_of_the_numbers(dtype: torch.dtype, size: float) -> None:
    """A factor of 4 bytes would overflow from 4e40 on, and be 0 below 1e-43."""
    exact = torch.linspace(-1, 1, 2 * BLOCK, dtype=dtype).mul_(size).view(2, BLOCK)
    rest = exact.clone()
    message = jigsaw_opt.EightBit._message(rest)
    found = jigsaw_opt.EightBit._numbers(message, dtype)
    assert message.shape == (2, BLOCK + dtype.itemsize)
    assert 0 < float((found - exact).abs().max()) <= 1.001 * size / 254
    assert torch.equal(rest, exact - found)


@pytest.mark.parametrize("share", ["0", "-1/2", "3/2", "1/0", "half", 0.5, 1])
def test_a_share_that_is_none_is_refused(share: Any) -> None:
    with misuse("out-of-range share"):
        jigsaw_opt.TopK(share)


def test_a_hook_goes_to_another_process_without_what_it_holds_back() -> None:
    hook = jigsaw_opt.TopK("2/4")
    hook._memory[nn.Parameter(torch.zeros(2))] = torch.zeros(2)
    for copy in (pickle.loads(pickle.dumps(hook)), deepcopy(hook)):
        assert (copy.__name__, copy.memory_bytes) == ("TopK(1/2)", 0)
