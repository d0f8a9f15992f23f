"""`PartialBackprop` beside what distributed training of PyTorch has: communication hooks and sharded parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from partial_training import difference
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from jigsaw_opt.executor.partial import PartialBackprop
from jigsaw_opt.executor.processes import run_group
from tests.refusals import misuse, require_data, told

pytestmark = pytest.mark.xdist_group("peers of partial backpropagation")

LEVELS = ((3, 3), (1, 3), (3, 2), (1, 1))
Gradients = dict[str, Tensor | None]


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))


def wrapped() -> PartialBackprop:
    return PartialBackprop(layers(), ["2", "4"], lambda iteration, worker: LEVELS[iteration % 4][worker])


def trained(model: nn.Module) -> list[Gradients]:
    """Gradients of four iterations, with a step after each."""
    optimiser, found = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), []
    for iteration in range(4):
        draws = torch.Generator().manual_seed(10 * iteration + dist.get_rank())
        model(torch.randn(5, 6, generator=draws)).square().mean().backward()
        own = [p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad for p in model.parameters()]
        found.append({str(at): None if grad is None else grad.clone() for at, grad in enumerate(own)})
        optimiser.step()
        optimiser.zero_grad()
    return found


def apart(found: list[Gradients], wanted: list[Gradients]) -> float:
    return max(difference(own, other) for own, other in zip(found, wanted, strict=True))


def with_hook(hook: Any) -> float:
    """How far gradients are from those without a hook."""
    model = wrapped()
    model.register_comm_hook(None, hook)
    return apart(trained(model), trained(wrapped()))


def against_ddp() -> float:
    """How far gradients of a compressing hook at full depth are from those of `DistributedDataParallel` with it."""
    ours, theirs = PartialBackprop(layers(), ["2"], "full"), DistributedDataParallel(layers())
    for model in (ours, theirs):
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return apart(trained(ours), trained(theirs))


def sharded() -> tuple[float, bool, list[int]]:
    """How far gradients are from those of whole parameters, and numbers that this process holds of some of them."""
    mesh = init_device_mesh("cpu", (2,))
    model = fully_shard(wrapped(), mesh=mesh)
    far = apart(trained(model), trained(wrapped()))
    held = [p for p in model.parameters() if isinstance(p, DTensor)]
    inside = layers()
    fully_shard(inside[2], mesh=mesh)
    with misuse("unsupported module", naming=("'2'", "fully_shard(PartialBackprop")):
        PartialBackprop(inside, ["2"])
    with misuse("unsupported module", naming=("the module",)):
        PartialBackprop(fully_shard(layers(), mesh=mesh), ["2"])
    return far, len(held) == 6, [p.to_local().numel() for p in held[:2]]


class Counting(nn.Module):
    """One weight a level, and a buffer that counts batches."""

    def __init__(self) -> None:
        super().__init__()
        self.early, self.late = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
        self.register_buffer("batches", torch.zeros(()))
        for layer in (self.early, self.late):
            nn.init.ones_(layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        self.batches += 1
        out: Tensor = self.late(self.early(x))
        return out


def uneven(hook: Any = None) -> tuple[list[float], list[float], int, list[list[float | None]]]:
    """Parameters and buffers at the end, iterations, and gradients; rank 1 has two batches, rank 0 has four.

    Rank 0 goes to level 1 in every other iteration, rank 1 to level 2; inputs are 1 and 3. Nothing is stepped.
    """
    model = PartialBackprop(Counting(), ["late"], lambda iteration, worker: 2 if worker else 1 + iteration % 2)
    if hook is not None:
        model.register_comm_hook(None, hook)
    seen = []
    with model.join():
        for _ in range(2 if dist.get_rank() else 4):
            model(torch.full((1, 1), 3.0 if dist.get_rank() else 1.0)).sum().backward()
            grads = [layer.weight.grad for layer in (model.early, model.late)]
            seen.append([None if grad is None else float(grad) for grad in grads])
            model.zero_grad()
        with torch.no_grad():
            model.late.weight += 1 + dist.get_rank()
    held = [float(p) for p in model.parameters()]
    return held, [float(b) for b in model.buffers()], model.iteration, seen


def early_ends() -> str:
    model = PartialBackprop(Counting(), ["late"], "full")

    def joined() -> None:
        with model.join(throw_on_early_termination=True):
            for _ in range(2 if dist.get_rank() else 4):
                model(torch.ones(1, 1)).sum().backward()

    return told(joined)


def without_a_batch(prepared: bool) -> list[float] | str:
    """What is said, or the parameters at the end; rank 1 has no batch at all."""
    model = PartialBackprop(Counting(), ["late"], "full")
    if prepared:
        model.prepare(torch.ones(1, 1))

    def joined() -> None:
        with model.join():
            for _ in range(1 - dist.get_rank()):
                model(torch.ones(1, 1)).sum().backward()
                with torch.no_grad():
                    model.late.weight += 1

    return told(joined) or [float(p) for p in model.parameters()]


def peers() -> dict[str, Any]:
    hooks = {name: getattr(default_hooks, name) for name in ("allreduce_hook", "fp16_compress_hook")}
    return {
        "hooks": {name: with_hook(hook) for name, hook in hooks.items()},
        "ddp": against_ddp(),
        "refused": told(lambda: with_hook(list(hooks.values())[dist.get_rank()])),
        "uneven": [uneven(), uneven(default_hooks.allreduce_hook)],
        "early": early_ends(),
        "without a batch": [without_a_batch(prepared=True), without_a_batch(prepared=False)],
        "sharded": sharded(),
    }


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    """By rank, what each loop came to."""
    return run_group(peers, 2)


@pytest.mark.parametrize(("hook", "most"), [("allreduce_hook", 1e-7), ("fp16_compress_hook", 1e-3)])
def test_hooks_exchange_the_mean_over_contributors(found: list[dict[str, Any]], hook: str, most: float) -> None:
    assert all(rank["hooks"][hook] <= most for rank in found)
    assert hook == "allreduce_hook" or all(rank["hooks"][hook] > 0 for rank in found), "compressed numbers are rounded"


def test_a_compressing_hook_gives_what_it_gives_with_ddp(found: list[dict[str, Any]]) -> None:
    assert all(rank["ddp"] <= 1e-6 for rank in found)


def test_processes_with_other_hooks_raise(found: list[dict[str, Any]]) -> None:
    for rank in found:
        require_data(rank["refused"], "allreduce_hook on rank 0", "fp16_compress_hook on rank 1")


def test_a_wrapper_can_be_sharded_and_what_is_sharded_within_is_refused(found: list[dict[str, Any]]) -> None:
    for rank in found:
        far, all_sharded, numbers = rank["sharded"]
        assert far <= 1e-7 and all_sharded and numbers == [24, 4]


def test_uneven_batches_train_on_the_workers_that_have_some(found: list[dict[str, Any]]) -> None:
    """Both weights are 1, so a gradient is the mean input of those that reach the weight and have a batch."""
    rows = [[3, 2], [2, 2], [None, 1], [1, 1]]
    for rank, count in zip(found, (4, 2), strict=True):
        for held, batches, iterations, seen in rank["uneven"]:
            assert (held, batches, iterations) == ([1, 2], [4], 4)
            assert seen == rows[:count]


def test_a_process_without_any_batch_follows_if_the_parts_are_known_and_else_all_say_so(
    found: list[dict[str, Any]],
) -> None:
    for rank in found:
        held, said = rank["without a batch"]
        assert held == [1, 2]
        require_data(said, "ranks 1 have had no batch", "prepare")


def test_an_early_end_is_told_with_iteration_and_rank_where_that_is_asked_for(found: list[dict[str, Any]]) -> None:
    for rank in found:
        require_data(rank["early"], "iteration 2", "rank 1")


def test_a_hook_is_a_function_and_alone() -> None:
    model = PartialBackprop(layers(), ["2"])
    with misuse("wrong-type hook"):
        model.register_comm_hook(None, "fp16")  # type: ignore[arg-type]
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    with misuse("duplicate-name hook"):
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
